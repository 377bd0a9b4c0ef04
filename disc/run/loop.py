"""The training loop: collect, observe, update, evaluate, record, checkpoint."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from disc import host
from disc.envs.evaluate import Interrupted
from disc.envs.rollout import collect
from disc.run import evaluation, nonfinite, resume
from disc.run.directory import RunDirectory
from disc.run.nonfinite import NonFinite
from disc.run.signals import interruptible
from disc.run.terminal import Reporter
from disc.run.training import Plan, Training
from disc.types import DiscError, Measured, Metrics, Rollout, Spec

AfterIteration = Callable[[Metrics], Any]
"""Called with each row; returning False stops the run."""
RunOutcome = Literal["finished", "interrupted", "stopped"]
SAVED = "saved"  # the argument of a KeyboardInterrupt after which nothing is lost


def run(
    training: Training,
    plan: Plan,
    directory: RunDirectory | None,
    callbacks: Sequence[AfterIteration] = (),
    progress: bool = True,
) -> None:
    """Train until the plan is complete, and save; roll back after a non-finite value, if asked to.

    Args:
        training: the run, which is changed.
        plan: how long to train, when to evaluate and save.
        directory: where to record and save; closed at the end. Nothing is written if None.
        callbacks: called after each iteration.
        progress: show a progress bar on standard error.

    Raises:
        KeyboardInterrupt: after Ctrl-C or SIGTERM; its argument is SAVED.
        NonFinite: an update gave a NaN or an infinity.
    """
    title = f"{training.algorithm.NAME} on {training.maker.name}"
    with (
        closing(directory) if directory is not None else nullcontext(),
        closing(Reporter(title, plan.steps, progress)) as reporter,
        interruptible(reporter.say) as interrupted,
    ):
        host.forget_programs()
        if directory is not None:
            directory.start_trackers(reporter.say)
        begin(training, plan, directory)
        announce(training, plan, reporter.say)
        for rollbacks in itertools.count():
            try:
                outcome = train(training, plan, directory, reporter, interrupted, callbacks)
                break
            except NonFinite as error:
                resume.recover(training, directory, error, rollbacks, reporter.say)
        if directory is not None:
            if not plan.checkpoint_every:
                training.renew_episodes()  # the actions since the start were not kept
            directory.save_if_new(training)
        try:
            if outcome == "finished":
                conclude(training, plan, directory, reporter.say, interrupted)
        except Interrupted:  # the resumed run repeats it
            outcome = "interrupted"
    if outcome == "interrupted":
        raise KeyboardInterrupt(SAVED)


def begin(training: Training, plan: Plan, directory: RunDirectory | None) -> None:
    """Reset the environments if they have not been reset, and save the starting point."""
    training.config = training.config.for_steps(plan.steps)
    if not training.started:
        training.env.reset(training.seed, training.state.step)
        training.started = True
    elif not training.traced and (plan.checkpoint_every or directory is not None):
        training.renew_episodes()  # steps taken without checkpoints can't be replayed
    training.traced = bool(plan.checkpoint_every)
    begun = training.loaded or training.state.step > 0
    if directory is not None and directory.saved_step is None and begun:
        directory.save(training)  # a run that is killed starts again from here


def announce(training: Training, plan: Plan, say: Callable[[str], None]) -> None:
    """Report sizes that follow from other options, and a run that is too short to learn."""
    replay = sum(array.nbytes for array in training.state.replay)
    say(f"The replay takes {host.size(replay)} of memory.")
    if training.num_envs > 1 and (text := training.config.rounds(training.num_envs)):
        say(text)
    if plan.steps <= (first := training.config.unlearned):
        say(
            f"Nothing will be learned: the first {first:,} steps are random; give more steps, or "
            "fewer random_steps."
        )


def train(
    training: Training,
    plan: Plan,
    directory: RunDirectory | None,
    reporter: Reporter,
    interrupted: Callable[[], bool],
    callbacks: Sequence[AfterIteration],
) -> RunOutcome:
    """Iterate until `plan.steps` steps are taken, or a limit on evaluations is reached.

    Returns:
        Why it ended: it was complete, or a signal or a callback stopped it. A signal during an
        evaluation leaves the row in `training.pending`.
    """
    say_once = cache(reporter.say)
    while training.pending is not None or not evaluation.over(training, plan):
        start = time.perf_counter()
        if training.pending is None:
            training.env.remaining = plan.steps - training.state.step
            training.pending = advance(training, plan)
            for note in training.env.take_notes():
                reporter.say(note)
        row, step = training.pending, training.state.step
        before = step - training.config.horizon
        updated = time.perf_counter()
        try:
            if plan.evaluates(before, step):
                now = training.policy
                found = evaluation.score(training, now, step, plan, say_once, interrupted)
                row = {**row, **found}
        except Interrupted:  # the resumed run repeats it
            training.elapsed += updated - start
            return "interrupted"
        done = time.perf_counter()
        training.elapsed += done - start
        row |= {"time/elapsed": training.elapsed, "time/evaluating": done - updated}
        record(training, row, directory, reporter)
        training.pending = None
        better = plan.schedules(before, step) and evaluation.compare(training, plan)
        if better and directory is not None:
            directory.keep_best(training)
        if directory is not None and plan.saves(before, step):
            directory.save_if_new(training)
        answers = [callback(training.rows[-1]) for callback in callbacks]
        if evaluation.over(training, plan):
            break
        if interrupted():
            return "interrupted"
        if any(isinstance(answer, bool | np.bool_) and not answer for answer in answers):
            return "stopped"
    return "finished"


def advance(training: Training, plan: Plan) -> Metrics:
    """One iteration, then new episodes if a checkpoint is due; returns the row."""
    begun = training.state
    try:
        rollouts, metrics = iterate(training)
    except NonFinite:
        training.state = nonfinite.last_good(begun, training.state)
        raise
    if plan.saves(begun.step, training.state.step):
        training.renew_episodes()
    elif not plan.checkpoint_every:
        training.env.forget()  # no checkpoint needs the actions
    names = ("time/elapsed", "eval/return", "eval/return_std", "eval/length")
    return {
        "step": training.state.step,
        **dict.fromkeys(names, math.nan),
        **episode_metrics(rollouts, training.env.spec),
        **metrics,
    }


def iterate(training: Training) -> tuple[list[Rollout], Metrics]:
    """Collect a batch and update; off-policy algorithms do so several times per iteration.

    Raises:
        NonFinite: an update gave a NaN or an infinity.
    """
    algorithm, config, env = training.algorithm, training.config, training.env
    explore = partial(algorithm.explore, config, env.spec)
    rollouts: list[Rollout] = []
    measured: list[Measured] = []
    sampling = 0.0
    for _ in range(config.horizon // config.at_once):
        start = time.perf_counter()
        try:
            rollout = collect(env, explore, training.state, config.at_once, training.threads)
        except DiscError:
            if rollouts:  # a bad update may be the cause
                nonfinite.check_state(average(measured), training.state, rollouts[-1])
            raise
        sampling += time.perf_counter() - start
        training.state = algorithm.observe(config, training.state, rollout)
        state, found = algorithm.update(config, training.state, training.threads)
        nonfinite.check_measured(found, state, rollout)
        training.state = state
        rollouts.append(rollout)
        measured.append(found)
    metrics = average(measured)
    nonfinite.check_measured(metrics, training.state, rollout)
    nonfinite.check_state(metrics, training.state, rollout)
    return rollouts, {**metrics, "time/sampling": sampling}


def conclude(
    training: Training,
    plan: Plan,
    directory: RunDirectory | None,
    say: Callable[[str], None],
    interrupted: Callable[[], bool],
) -> None:
    """End a run: evaluate its best policy again, and note why it ended.

    Raises:
        Interrupted: a signal arrived.
    """
    step, reason = training.state.step, evaluation.over(training, plan)
    assert reason is not None
    early = step < plan.steps
    if early:
        say(f"Stopped early at step {step:,}, because {reason}.")
    if evaluation.evaluated(training) and not plan.schedules(step - training.config.horizon, step):
        evaluation.compare(training, plan)
    if directory is None:
        return
    if training.best is not None:
        evaluation.reevaluate(training, training.best, plan, say, interrupted)
        directory.keep_best(training)
    directory.note_end(step, early, reason, training.best)


def record(
    training: Training, row: Metrics, directory: RunDirectory | None, reporter: Reporter
) -> None:
    """Round a row to nine digits, and add it to the run, its files and the display."""
    step = training.state.step
    row = {**{name: float(f"{value:.9g}") for name, value in row.items()}, "step": step}
    measured = {name: value for name, value in row.items() if not math.isnan(value)}
    training.rows.append(measured)
    if directory is not None:
        directory.record(row)
    reporter.update(step, measured)


def average(measured: list[Measured]) -> Metrics:
    """Metrics of an iteration from those of its updates: means, but sums of times."""
    names = dict.fromkeys(name for found in measured for name in found)
    row = {}
    for name in names:
        values = [float(found[name]) for found in measured if name in found]
        row[name] = sum(values) / (1 if name.startswith("time/") else len(values))
    return row


def episode_metrics(rollouts: list[Rollout], spec: Spec) -> Metrics:
    """Returns and lengths of the episodes that ended, and the share of actions out of bounds."""
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
