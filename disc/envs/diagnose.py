"""`disc check`: try an environment before training, and report problems."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from disc.envs import contract
from disc.envs.contract import BadReset, Misbehaved, summary
from disc.envs.evaluate import MAX_EPISODE_STEPS
from disc.envs.factory import Maker
from disc.envs.spaces import describe, observation_layout
from disc.policy.layout import Layout
from disc.types import DiscError, Spec, joined

LARGE, SMALL = 1e3, 1e-3
SLOW = 200  # steps per second
PATIENCE = 20.0  # seconds of random steps
GLANCE = 0.25  # the same before training
GLANCE_STEPS = 1_000


class Traits(Protocol):
    """The class variables of an algorithm's `Config` that decide which remedies name it."""

    discrete_actions: ClassVar[bool]
    needs_bounds: ClassVar[bool]
    normalizes_observations: ClassVar[bool]
    normalizes_rewards: ClassVar[bool]


Algorithms = Mapping[str, type[Traits]]


class Finding(NamedTuple):
    """A finding, and what to do about it."""

    kind: Literal["good", "note", "problem"]
    text: str


@dataclass
class RandomSteps:
    """The results of some random steps."""

    observations: list[Any] = field(default_factory=list)  # as returned, or (S,) if nested
    misfit: str = ""  # the first observation whose entries or shapes are not those of the space
    outside: int = 0  # observations that the space does not contain
    rewards: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # of the episodes that ended
    seconds: float = 0.0  # in the environment
    fault: str = ""  # what stopped it early


def glance(maker: Maker, algorithms: Algorithms) -> list[Finding]:
    """The findings of `check` within about a second; none if the environment can't be tried.

    It restores the global random generators, so results do not depend on it.
    """
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        return check(maker, GLANCE_STEPS, 0, algorithms, brief=True)
    except DiscError:
        return []
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def check(
    maker: Maker, steps: int, seed: int, algorithms: Algorithms, brief: bool = False
) -> list[Finding]:
    """Make the environment twice, take random steps, and inspect the results.

    Args:
        maker: makes the environment.
        steps: random steps.
        seed: of the environment and the actions.
        algorithms: those that the remedies name, with the class of their options.
        brief: take about a second. What takes longer is left out: a second environment if making
            it is slow, and the ends of episodes if the steps are.

    Raises:
        DiscError: it can't be made, or has spaces that no algorithm here can use.
    """
    patience, clock = GLANCE if brief else PATIENCE, time.perf_counter()
    with maker.borrowed() as env:
        slow = brief and time.perf_counter() - clock > patience
        spec, layout = describe(env, maker.name), observation_layout(env, maker.name)
        first = _try(env, spec, steps, seed, patience)
        found = [*_faults(env, first), *_actions(spec, algorithms)]
        if first.fault:
            return found
        if first.lengths or not brief or len(first.rewards) == steps:
            found += _limit(env, first)
    found += _observations(env, layout, first, algorithms)
    found += _rewards(first, algorithms)
    rate = _speed(len(first.rewards) / first.seconds)
    if slow:
        return [*found, rate]
    try:
        with maker.borrowed() as env:
            second = _try(env, spec, len(first.rewards), seed, math.inf)
        with maker.borrowed() as env:
            other = _try(env, spec, 1, seed + 1, patience)
        if not (second.fault or other.fault):
            with maker.borrowed() as env:
                found += _beyond(env, spec, seed, algorithms)
    except DiscError as error:
        what = "Only one environment can be created, but evaluations and checkpoints need more"
        found += [Finding("problem", f"{what} ({summary(error.__cause__ or error)}); fix that.")]
    else:
        found += _repeats(first, second, other)
    return [*found, rate]


def _speed(rate: float) -> Finding:
    if rate >= SLOW:
        return Finding("good", f"{rate:,.0f} random steps per second.")
    hours = f"{1e6 / rate / 3600:,.0f} hours"
    return Finding(
        "note",
        f"{rate:,.3g} random steps per second: a million take {hours}, without learning. Make the "
        "environment faster, or choose one of the off-policy algorithms, which need fewer steps.",
    )


class _Witness(gym.Wrapper[Any, Any, Any, Any]):
    """Compares every observation with the space, before it is flattened."""

    def __init__(self, env: gym.Env[Any, Any], trial: RandomSteps) -> None:
        super().__init__(env)
        self.trial, self.layout = trial, observation_layout(env, "")

    def reset(self, **options: Any) -> Any:
        """Pass on the call, and compare the observation."""
        return self._look(self.env.reset(**options))

    def step(self, action: Any) -> Any:
        """Pass on the call, and compare the observation."""
        return self._look(self.env.step(action))

    def _look(self, result: Any) -> Any:
        if isinstance(result, tuple | list) and result:
            if not self.trial.misfit and (error := self.layout.misfit(result[0])):
                subject = f"{error.subject[0].upper()}{error.subject[1:]}"
                self.trial.misfit = f"{subject} {error.what}; return what the space declares."
            with suppress(Exception):  # not an observation at all
                self.trial.outside += not self.env.observation_space.contains(result[0])
        return result


def _try(env: gym.Env[Any, Any], spec: Spec, steps: int, seed: int, patience: float) -> RandomSteps:
    """Random steps; fewer where they take long."""
    rng, trial, length = np.random.default_rng(seed), RandomSteps(), 0
    seen, step = _Witness(env, trial), 0
    layout = observation_layout(env, "")
    try:
        trial.observations.append(np.array(contract.reset(seen, layout, seed)))
        for step in range(1, steps + 1):  # noqa: B007
            if trial.seconds > patience:
                break
            action = _random(spec, rng)
            clock = time.perf_counter()
            result = contract.step(seen, action, layout)
            trial.seconds += time.perf_counter() - clock
            observation, reward, terminated, truncated = result
            if found := contract.first_nonfinite(np.asarray(observation).reshape(1, -1), layout):
                raise Misbehaved(found[1])
            trial.observations.append(np.array(observation))
            trial.rewards.append(reward)
            length += 1
            if terminated or truncated:
                trial.lengths.append(length)
                length = 0
                clock = time.perf_counter()
                trial.observations.append(np.array(contract.reset(seen, layout)))
                trial.seconds += time.perf_counter() - clock
    except Misbehaved as error:
        when = "after" if isinstance(error, BadReset) else "at"
        what = error.at(f"{when} step {step}" if step else "at the start")
        trial.fault = f"{what[0].upper()}{what[1:]}; fix that first."
    return trial


def _random(spec: Spec, rng: np.random.Generator) -> Any:
    """A random action: uniform over choices or within bounds, standard normal without bounds."""
    if spec.choices is not None:
        index = np.floor(rng.random(spec.action_size) * spec.choices.counts).astype(np.float32)
        return spec.choices.action(index, spec.action_shape)
    low = np.maximum(spec.action_low, -1e30)
    bounded = np.isfinite(spec.action_low) & np.isfinite(spec.action_high)
    width = np.where(bounded, spec.action_high - low, 0.0)
    uniform, normal = rng.random(spec.action_size), rng.standard_normal(spec.action_size)
    action = np.where(bounded, low + width * uniform, normal).astype(np.float32)
    return action.reshape(spec.action_shape)


def _faults(env: gym.Env[Any, Any], trial: RandomSteps) -> Iterator[Finding]:
    """Results that no algorithm can learn from, or that do not fit the space."""
    space = env.observation_space
    if trial.fault:
        yield Finding("problem", trial.fault)
        return
    if trial.misfit:
        yield Finding("problem", trial.misfit)
    elif trial.outside:
        types = "have entries of another type"
        if isinstance(space, gym.spaces.Box):
            types = f"have a type other than its {space.dtype}"
        yield Finding(
            "note",
            f"{trial.outside:,} of {len(trial.observations):,} observations lie outside the space, "
            f"or {types}. This does not affect training, but may affect other tools.",
        )


def _actions(spec: Spec, algorithms: Algorithms) -> Iterator[Finding]:
    low, high = spec.action_low, spec.action_high
    if spec.choices is not None:
        counts = spec.choices.counts
        least, most = min(counts), max(counts)
        each = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        yield Finding(
            "good",
            f"Discrete actions: {_plural(len(counts), 'dimension')} with "
            f"{each} choice{'s' if most > 1 else ''}{' each' if len(counts) > 1 else ''}; "
            f"{_split(algorithms, lambda x: x.discrete_actions)[0]} can learn them.",
        )
        return
    refusing, gaussian = _split(algorithms, lambda x: x.needs_bounds)
    if not np.all(np.isfinite(low) & np.isfinite(high)):
        yield Finding(
            "note",
            f"Some actions have no bounds: {refusing} refuse them. The others start with a "
            "standard deviation of 1.",
        )
        return
    reach = (high - low) / 2.0
    if np.any(reach > 10.0) or np.any(reach < 0.1):
        yield Finding(
            "problem",
            f"Actions range from {low.min():g} to {high.max():g}, but {gaussian} start with noise "
            "of standard deviation 1; wrap the environment in "
            "gymnasium.wrappers.RescaleAction(env, -1, 1).",
        )
    else:
        yield Finding("good", f"Actions range from {low.min():g} to {high.max():g}.")


def _split(algorithms: Algorithms, has: Callable[[type[Traits]], bool]) -> tuple[str, str]:
    """The names of the algorithms with and without a trait, for a sentence."""
    able = [name for name, traits in algorithms.items() if has(traits)]
    return joined(able), joined(name for name in algorithms if name not in able)


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _beyond(
    env: gym.Env[Any, Any], spec: Spec, seed: int, algorithms: Algorithms
) -> Iterator[Finding]:
    """Whether an action beyond the bounds works: a Gaussian has no bounds."""
    if spec.choices is not None:
        return
    layout = observation_layout(env, "")
    low, high = (np.where(np.isfinite(x), x, 0.0) for x in (spec.action_low, spec.action_high))
    action = (high + (high - low)).astype(np.float32).reshape(spec.action_shape)
    try:
        contract.reset(env, layout, seed)
        contract.step(env, action, layout)
    except Misbehaved as error:
        _, gaussian = _split(algorithms, lambda x: x.needs_bounds)
        yield Finding(
            "problem",
            f"An action beyond the bounds fails ({error.at('then')}), but {gaussian} sample such "
            "actions; use --clip-actions with them, or clip in the environment.",
        )


def _limit(env: gym.Env[Any, Any], trial: RandomSteps) -> Iterator[Finding]:
    limit = _time_limit(env)
    if trial.lengths and max(trial.lengths) == 1:
        yield Finding(
            "note",
            "Every episode ended at its first step: a bandit. That works, but check that it is "
            "intended.",
        )
    elif trial.lengths:
        yield Finding(
            "good", f"Episodes end after {np.mean(trial.lengths):,.0f} random steps on average."
        )
    elif limit is None:
        yield Finding(
            "problem",
            f"No episode ended in {len(trial.rewards):,} steps and there is no time limit: an "
            f"evaluation cuts an episode off only after {MAX_EPISODE_STEPS:,} steps. Set "
            "max_episode_steps when you register it, or wrap it in gymnasium.wrappers.TimeLimit.",
        )
    else:
        yield Finding("good", f"Episodes end after at most {limit:,} steps.")


def _time_limit(env: gym.Env[Any, Any]) -> int | None:
    """The steps after which an episode is cut off, by its registration or a wrapper."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return int(env.spec.max_episode_steps)
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None


def _observations(
    env: gym.Env[Any, Any], layout: Layout, trial: RandomSteps, algorithms: Algorithms
) -> Iterator[Finding]:
    x = np.stack([np.asarray(x, np.float64).reshape(-1) for x in trial.observations])
    size = np.abs(x).max(axis=0)
    normalizing, others = _split(algorithms, lambda x: x.normalizes_observations)
    scale = f"for {others} scale them to about 1 (gymnasium.wrappers.TransformObservation)"
    if np.any(size > LARGE):
        worst = int(np.argmax(size))
        yield Finding(
            "note",
            f"{_entry(layout, worst)} reaches {size[worst]:.3g}; {normalizing} normalise "
            f"observations and clip them, {scale}.",
        )
    tiny = np.flatnonzero((size > 0.0) & (size < SMALL))
    if len(tiny):
        yield Finding(
            "note",
            f"{_entry(layout, tiny[0])} stays within ±{size[tiny[0]]:.3g}; "
            f"{normalizing} normalise observations, {scale}.",
        )
    still = np.flatnonzero(x.std(axis=0) == 0.0)
    if len(still) == x.shape[1]:
        yield Finding("problem", "The observation never changes: nothing can be learned from it.")
    elif len(still):
        which = "" if layout.plain else f" ({_few(layout, still)})"
        yield Finding(
            "note", f"{len(still)} of {x.shape[1]} entries of the observation never changed{which}."
        )
    if not np.any(size > LARGE) and len(still) < x.shape[1]:
        though = "" if _bounded(env.observation_space) else ", though their space has no bounds"
        yield Finding("good", f"Observations lie within ±{size.max():.3g}{though}.")


def _entry(layout: Layout, number: int) -> str:
    """The name of a number of the observation, at the start of a sentence."""
    return f"Entry {number if layout.plain else layout.names()[number]} of the observation"


def _few(layout: Layout, numbers: Any) -> str:
    """The names of some numbers of the observation."""
    names = layout.names()
    return ", ".join(names[i] for i in numbers[:3]) + (" …" if len(numbers) > 3 else "")


def _bounded(space: Any) -> bool:
    """Whether all arrays in a space have bounds."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, gym.spaces.Dict) else space.spaces
        return all(map(_bounded, inner))
    if isinstance(space, gym.spaces.Box):
        return bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
    return True


def _rewards(trial: RandomSteps, algorithms: Algorithms) -> Iterator[Finding]:
    rewards = np.asarray(trial.rewards, np.float64).reshape(-1)
    largest = float(np.abs(rewards).max())
    if largest > LARGE or 0.0 < largest < SMALL:
        normalizing, others = _split(algorithms, lambda x: x.normalizes_rewards)
        yield Finding(
            "note",
            f"Rewards reach {largest:.3g}; {normalizing} normalise them, for {others} scale them "
            "to about 1 (the option reward_scale if the algorithm has it, or "
            "gymnasium.wrappers.TransformReward).",
        )
    elif largest == 0.0:
        yield Finding(
            "note",
            "All rewards were 0 under random actions. If rewards are this rare, learning may never "
            "start; also reward progress.",
        )
    else:
        yield Finding("good", f"Rewards lie within ±{largest:.3g}.")


def _repeats(first: RandomSteps, second: RandomSteps, other: RandomSteps) -> Iterator[Finding]:
    if fault := second.fault or other.fault:
        yield Finding("problem", f"A second environment fails where the first did not: {fault}")
        return
    pairs = zip(first.observations, second.observations, strict=False)
    differs = next((i for i, (a, b) in enumerate(pairs) if not np.array_equal(a, b)), None)
    paid = zip(first.rewards, second.rewards, strict=False)  # a slow second trial is shorter
    unlike = next((i for i, (a, b) in enumerate(paid, 1) if a != b), None)
    if differs == 0:
        yield Finding(
            "problem",
            "Two resets with the same seed give different observations: runs can't be repeated or "
            "resumed exactly. Draw all randomness from self.np_random, after "
            "super().reset(seed=seed).",
        )
    elif differs is not None:
        yield Finding(
            "problem",
            f"With the same seed and actions, observations differ from number {differs} on: runs "
            "can't be repeated or resumed exactly. Draw all randomness from self.np_random, and "
            "keep no state outside the environment.",
        )
    elif unlike is not None:
        yield Finding(
            "problem",
            f"With the same seed and actions, rewards differ from step {unlike} on: runs can't be "
            "repeated or resumed exactly. Draw all randomness from self.np_random.",
        )
    elif np.array_equal(first.observations[0], other.observations[0]):
        yield Finding(
            "note",
            "Another seed gives the same first observation; fine if all episodes start alike.",
        )
    else:
        yield Finding("good", "The same seed and actions give the same observations and rewards.")
