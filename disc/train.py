"""The loop: the paper's Algorithm 1, with evaluation, record and checkpoints around it."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from disc import finite, normalize
from disc.envs import borrowed
from disc.evaluate import Interrupted, evaluate
from disc.finite import NonFinite
from disc.rollout import collect
from disc.types import Actor, DiscError, Measured, Metrics, Rollout, Spec

if TYPE_CHECKING:
    from disc.agent import Agent

Callback = Callable[["Agent", Metrics], Any]
"""Called after every iteration with the agent and the row; returning False stops the run."""

Outcome = Literal["finished", "interrupted", "stopped"]


@dataclass(frozen=True)
class Plan:
    """When to do what is not learning; in environment steps, 0 turns it off."""

    steps: int
    eval_every: int
    eval_episodes: int
    checkpoint_every: int


def train(
    agent: Agent,
    plan: Plan,
    record: Callable[[Metrics], None],
    save: Callable[[], None],
    say: Callable[[str], None],
    interrupted: Callable[[], bool],
    callbacks: tuple[Callback, ...] = (),
) -> Outcome:
    """Iterate until `plan.steps` steps are taken.

    Args:
        agent: holds the algorithm, its config, the environments and the state.
        plan: when to evaluate and to save.
        record: takes the row of each iteration.
        save: writes a checkpoint.
        say: tells the user something.
        interrupted: whether to stop after this iteration.
        callbacks: see `Callback`.

    Returns:
        How it ended: at its end, by a signal, or by a callback. `agent.unscored` is the row of an
        evaluation that a signal cut short.
    """
    config, env = agent.config, agent.env
    explore = partial(agent.algorithm.explore, config, env.spec)
    say_once = cache(say)
    while agent.state.step < plan.steps or agent.unscored is not None:
        clock = time.perf_counter()
        if agent.unscored is None:
            agent.unscored = advance(agent, plan, explore)
        row, state = agent.unscored, agent.state
        before, last = state.step - config.horizon, state.step >= plan.steps
        updated = time.perf_counter()
        try:
            if plan.eval_every and (last or due(plan.eval_every, before, state.step)):
                row = {**row, **score(agent, plan, say_once, interrupted)}
        except Interrupted:  # it is made when the run goes on
            agent.elapsed += updated - clock
            return "interrupted"
        done = time.perf_counter()
        agent.elapsed += done - clock
        row |= {"time/elapsed": agent.elapsed, "time/evaluating": done - updated}
        record({**{name: float(f"{value:.9g}") for name, value in row.items()}, "step": state.step})
        agent.unscored = None
        if due(plan.checkpoint_every, before, state.step):
            save()
        answers = [callback(agent, agent.metrics[-1]) for callback in callbacks]
        if interrupted() and not last:
            return "interrupted"
        if any(isinstance(answer, bool | np.bool_) and not answer for answer in answers):
            return "stopped"
    return "finished"


def advance(agent: Agent, plan: Plan, explore: Callable[[Any], Actor]) -> Metrics:
    """One iteration, and new episodes if a checkpoint follows; its row, not yet scored."""
    begun = agent.state
    try:
        rollouts, metrics = iterate(agent, explore)
    except NonFinite:
        agent.state = finite.last_good(begun, agent.state)
        raise
    if due(plan.checkpoint_every, begun.step, agent.state.step):
        renew(agent)
    elif not plan.checkpoint_every:
        agent.env.taken.clear()  # nothing will ask for them
    names = ("time/elapsed", "eval/return", "eval/return_std", "eval/length")
    return {
        "step": agent.state.step,
        **dict.fromkeys(names, math.nan),
        **describe(rollouts, agent.env.spec),
        **metrics,
    }


def score(
    agent: Agent, plan: Plan, say: Callable[[str], None], interrupted: Callable[[], bool]
) -> Metrics:
    """Evaluate the policy as it is.

    Raises:
        Interrupted: it was left, at the first step after a signal.
    """
    state, name = agent.state, agent.maker.name
    acting = agent.algorithm.act(agent.config, agent.env.spec, state)
    episodes, where = plan.eval_episodes, (state.seed, state.step)
    with borrowed(agent.maker, f"to evaluate at step {state.step}") as env:
        found = evaluate(env, acting, episodes, *where, name=name, say=say, stop=interrupted)
    return {
        "eval/return": float(np.mean(found.returns)),
        "eval/return_std": float(np.std(found.returns)),
        "eval/length": float(np.mean(found.lengths)),
    }


def iterate(agent: Agent, explore: Callable[[Any], Actor]) -> tuple[list[Rollout], Metrics]:
    """One iteration: a batch and its update, or as many rounds of both as off-policy learners ask.

    Raises:
        NonFinite: an update gave a number that is not finite.
    """
    algorithm, config, env = agent.algorithm, agent.config, agent.env
    rollouts: list[Rollout] = []
    measured: list[Measured] = []
    sampling = 0.0
    for _ in range(config.horizon // config.at_once):
        start = time.perf_counter()
        try:
            rollout = collect(env, explore, agent.state, config.at_once, agent.threads)
        except DiscError:
            if rollouts:  # what was done to it may come from an update just before
                finite.check_state(average(measured), agent.state, rollouts[-1])
            raise
        sampling += time.perf_counter() - start
        agent.state = algorithm.observe(config, agent.state, rollout)
        state, found = algorithm.update(config, agent.state, agent.threads)
        finite.check_measured(found, state, rollout)
        agent.state = state
        rollouts.append(rollout)
        measured.append(found)
    metrics = average(measured)
    finite.check_measured(metrics, agent.state, rollout)
    finite.check_state(metrics, agent.state, rollout)
    return rollouts, {**metrics, "time/sampling": sampling}


def renew(agent: Agent) -> None:
    """Start new episodes in new environments; those under way are cut."""
    state = agent.state
    agent.env.reset(state.seed, state.step)
    agent.state = replace(state, normalizer=normalize.cut(state.normalizer))


def due(every: int, before: int, after: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]."""
    return every > 0 and after // every > before // every


def average(measured: list[Measured]) -> Metrics:
    """What the rounds of an iteration measured: means, but the sums of times."""
    names = dict.fromkeys(name for found in measured for name in found)
    row = {}
    for name in names:
        values = [float(found[name]) for found in measured if name in found]
        row[name] = sum(values) / (1 if name.startswith("time/") else len(values))
    return row


def describe(rollouts: list[Rollout], spec: Spec) -> Metrics:
    """Returns and lengths of the episodes that ended, and how the actions lie to their bounds."""
    returns, lengths, action = (
        np.concatenate([getattr(rollout, name) for rollout in rollouts])
        for name in ("returns", "lengths", "action")
    )
    ended = len(returns) > 0
    return {
        "train/return": float(np.mean(returns)) if ended else math.nan,
        "train/length": float(np.mean(lengths)) if ended else math.nan,
        "train/episodes": len(returns),
        "train/actions_outside": float(
            np.mean((action < spec.action_low) | (action > spec.action_high))
        ),
    }


@contextmanager
def interruptible(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a question that is asked between iterations.

    A second Ctrl-C raises as usual; a second SIGTERM, as some schedulers send, changes nothing.
    Off the main thread, where no handler can be set, signals are left alone.
    """
    caught: list[int] = []

    def note(number: int, frame: Any) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        caught.append(number)
        if len(caught) == 1:
            with suppress(RuntimeError):  # it came in the middle of saying something else
                say("Finishing this iteration …")

    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
