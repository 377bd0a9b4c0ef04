"""`disc check`: try an environment before training, and report problems."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from disc.envs import contract
from disc.envs.contract import BadReset, Misbehaved, summary
from disc.envs.evaluate import MAX_EPISODE_STEPS
from disc.envs.factory import Maker
from disc.envs.pool import borrowed, describe
from disc.types import DiscError, Spec

REWARDS = "DISC, PPO, PPO-AMBER, TRPO and ACKTR normalise them"
OBSERVATIONS = "DISC, PPO, PPO-AMBER, TRPO, ACKTR and DDPG normalise observations"
SCALE = "for Trust-PCL, TD3, SAC and SQL scale them (gymnasium.wrappers.TransformObservation)"
GAUSSIAN = "DISC, PPO, PPO-AMBER, TRPO, ACKTR and Trust-PCL"
LARGE, SMALL = 1e3, 1e-3
SLOW = 200  # steps per second
PATIENCE = 20.0  # seconds of random steps


class Finding(NamedTuple):
    """A finding, and what to do about it."""

    kind: Literal["good", "note", "problem"]
    text: str


@dataclass
class Trial:
    """Some random steps."""

    observations: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # of the episodes that ended
    seconds: float = 0.0  # in the environment
    fault: str = ""  # what stopped it early


def check(maker: Maker, steps: int, seed: int) -> list[Finding]:
    """Make the environment twice, take random steps, and look at what comes back.

    Raises:
        DiscError: it can't be made, or has spaces that no algorithm here can use.
    """
    with borrowed(maker) as env:
        spec = describe(env, maker.name)
        first = _try(env, spec, steps, seed)
        found = [*_faults(env, first), *_actions(spec)]
        if first.fault:
            return found
        found += _limit(env, first)
    found += [*_observations(env, first), *_rewards(first)]
    try:
        with borrowed(maker) as env:
            second = _try(env, spec, len(first.rewards), seed)
        with borrowed(maker) as env:
            other = _try(env, spec, 1, seed + 1)
        if not (second.fault or other.fault):
            with borrowed(maker) as env:
                found += _beyond(env, spec, seed)
    except DiscError as error:
        what = "Only one can be made, and evaluations and checkpoints need more"
        found += [Finding("problem", f"{what} ({summary(error.__cause__ or error)}); fix that.")]
    else:
        found += _repeats(first, second, other)
    return [*found, _speed(len(first.rewards) / first.seconds)]


def _speed(rate: float) -> Finding:
    if rate >= SLOW:
        return Finding("good", f"{rate:,.0f} random steps per second.")
    hours = f"{1e6 / rate / 3600:,.0f} hours"
    return Finding(
        "note",
        f"{rate:,.3g} random steps per second: a million take {hours}, without learning. Make the "
        "environment faster, or choose one of the off-policy algorithms, which need fewer steps.",
    )


def _try(env: gym.Env[Any, Any], spec: Spec, steps: int, seed: int) -> Trial:
    """Random steps within the bounds, or standard normal where there are none; fewer where they
    take long.
    """
    rng, trial, length = np.random.default_rng(seed), Trial(), 0
    low = np.maximum(spec.action_low, -1e30)
    bounded = np.isfinite(spec.action_low) & np.isfinite(spec.action_high)
    step, shape = 0, spec.observation_shape
    try:
        trial.observations.append(np.array(contract.reset(env, shape, seed)))
        for step in range(1, steps + 1):  # noqa: B007
            if trial.seconds > PATIENCE:
                break
            width = np.where(bounded, spec.action_high - low, 0.0)
            uniform, normal = rng.random(spec.action_size), rng.standard_normal(spec.action_size)
            action = np.where(bounded, low + width * uniform, normal).astype(np.float32)
            clock = time.perf_counter()
            result = contract.step(env, action.reshape(spec.action_shape), shape)
            trial.seconds += time.perf_counter() - clock
            observation, reward, terminated, truncated = result
            if found := contract.first_nonfinite(np.asarray(observation).reshape(1, -1)):
                raise Misbehaved(found[1])
            trial.observations.append(np.array(observation))
            trial.rewards.append(reward)
            length += 1
            if terminated or truncated:
                trial.lengths.append(length)
                length = 0
                clock = time.perf_counter()
                trial.observations.append(np.array(contract.reset(env, shape)))
                trial.seconds += time.perf_counter() - clock
    except Misbehaved as error:
        when = "after" if isinstance(error, BadReset) else "at"
        what = error.at(f"{when} step {step}" if step else "at the start")
        trial.fault = f"{what[0].upper()}{what[1:]}; fix that first."
    return trial


def _faults(env: gym.Env[Any, Any], trial: Trial) -> Iterator[Finding]:
    """What no algorithm can learn from, or what does not fit the space."""
    space = env.observation_space
    if trial.fault:
        yield Finding("problem", trial.fault)
        return
    shape = next((x.shape for x in trial.observations if x.shape != space.shape), None)
    if shape is not None:
        yield Finding(
            "problem",
            f"There are observations of shape {shape}, and the space says {space.shape}; return "
            "what the space says.",
        )
        return
    outside = [i for i, x in enumerate(trial.observations) if not space.contains(x)]
    if outside:
        yield Finding(
            "note",
            f"{len(outside):,} of {len(trial.observations):,} observations lie outside the space, "
            f"or are of another type than its {space.dtype}. This does not matter for training, "
            "but may for other tools.",
        )


def _actions(spec: Spec) -> Iterator[Finding]:
    low, high = spec.action_low, spec.action_high
    if not np.all(np.isfinite(low) & np.isfinite(high)):
        yield Finding(
            "note",
            "Some actions have no bounds: DDPG, TD3, SAC and SQL refuse that. The others start "
            "with a standard deviation of 1.",
        )
        return
    reach = (high - low) / 2.0
    if np.any(reach > 10.0) or np.any(reach < 0.1):
        yield Finding(
            "problem",
            f"Actions range from {low.min():g} to {high.max():g}. {GAUSSIAN} start with noise of "
            "standard deviation 1, which is far from that; wrap the environment in "
            "gymnasium.wrappers.RescaleAction(env, -1, 1).",
        )
    else:
        yield Finding("good", f"Actions range from {low.min():g} to {high.max():g}.")


def _beyond(env: gym.Env[Any, Any], spec: Spec, seed: int) -> Iterator[Finding]:
    """Whether an action beyond the bounds works: a Gaussian has no bounds."""
    low, high = (np.where(np.isfinite(x), x, 0.0) for x in (spec.action_low, spec.action_high))
    action = (high + (high - low)).astype(np.float32).reshape(spec.action_shape)
    try:
        contract.reset(env, spec.observation_shape, seed)
        contract.step(env, action, spec.observation_shape)
    except Misbehaved as error:
        yield Finding(
            "problem",
            f"An action beyond the bounds fails ({error.at('then')}). {GAUSSIAN} sample such "
            "actions; give them --clip-actions, or clip in the environment.",
        )


def _limit(env: gym.Env[Any, Any], trial: Trial) -> Iterator[Finding]:
    limit = _time_limit(env)
    if trial.lengths and max(trial.lengths) == 1:
        yield Finding(
            "note",
            "Every episode ended at its first step: a bandit. That works, but check that it is "
            "intended.",
        )
    elif trial.lengths:
        yield Finding("good", f"Episodes end, after {np.mean(trial.lengths):,.0f} random steps.")
    elif limit is None:
        yield Finding(
            "problem",
            f"No episode ended in {len(trial.rewards):,} steps and there is no time limit: an "
            f"evaluation cuts an episode off only after {MAX_EPISODE_STEPS:,} steps. Give "
            "max_episode_steps when it is registered, or wrap it in gymnasium.wrappers.TimeLimit.",
        )
    else:
        yield Finding("good", f"Episodes end after {limit:,} steps at the latest.")


def _time_limit(env: gym.Env[Any, Any]) -> int | None:
    """The steps after which an episode is cut, as it was registered or is wrapped."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return int(env.spec.max_episode_steps)
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None


def _observations(env: gym.Env[Any, Any], trial: Trial) -> Iterator[Finding]:
    x = np.stack([np.asarray(x, np.float64).reshape(-1) for x in trial.observations])
    size = np.abs(x).max(axis=0)
    if np.any(size > LARGE):
        worst = int(np.argmax(size))
        yield Finding(
            "note",
            f"Entry {worst} of the observation reaches {size[worst]:.3g}. {OBSERVATIONS} and clip "
            f"them; {SCALE} to about 1.",
        )
    tiny = np.flatnonzero((size > 0.0) & (size < SMALL))
    if len(tiny):
        yield Finding(
            "note",
            f"Entry {tiny[0]} of the observation stays within ±{size[tiny[0]]:.3g}. "
            f"{OBSERVATIONS}; {SCALE} to about 1.",
        )
    still = int(np.sum(x.std(axis=0) == 0.0))
    if still == x.shape[1]:
        yield Finding("problem", "The observation never changes: nothing can be learned from it.")
    elif still:
        yield Finding("note", f"{still} of {x.shape[1]} observation numbers never changed.")
    if not np.any(size > LARGE) and still < x.shape[1]:
        space: Any = env.observation_space
        bounded = np.isfinite(space.low).all() and np.isfinite(space.high).all()
        though = "" if bounded else ", though their space has no bounds"
        yield Finding("good", f"Observations lie within ±{size.max():.3g}{though}.")


def _rewards(trial: Trial) -> Iterator[Finding]:
    rewards = np.asarray(trial.rewards, np.float64).reshape(-1)
    largest = float(np.abs(rewards).max())
    if largest > LARGE or 0.0 < largest < SMALL:
        yield Finding(
            "note",
            f"Rewards reach {largest:.3g}. {REWARDS}; for SAC and SQL choose reward_scale, for "
            "DDPG, TD3 and Trust-PCL scale them to about 1 (gymnasium.wrappers.TransformReward).",
        )
    elif largest == 0.0:
        yield Finding(
            "note",
            "All rewards were 0 under random actions. If that is how rare they are, learning may "
            "not begin; reward progress too.",
        )
    else:
        yield Finding("good", f"Rewards lie within ±{largest:.3g}.")


def _repeats(first: Trial, second: Trial, other: Trial) -> Iterator[Finding]:
    if fault := second.fault or other.fault:
        yield Finding("problem", f"A second environment fails where the first did not: {fault}")
        return
    pairs = zip(first.observations, second.observations, strict=False)
    differs = next((i for i, (a, b) in enumerate(pairs) if not np.array_equal(a, b)), None)
    paid = zip(first.rewards, second.rewards, strict=True)
    unlike = next((i for i, (a, b) in enumerate(paid, 1) if a != b), None)
    if differs == 0:
        yield Finding(
            "problem",
            "Two resets with the same seed start differently: runs can't be repeated, nor resumed "
            "exactly. Draw all randomness from self.np_random after super().reset(seed=seed).",
        )
    elif differs is not None:
        yield Finding(
            "problem",
            f"The same seed and actions lead elsewhere from observation {differs} on: runs can't "
            "be repeated, nor resumed exactly. Draw all randomness from self.np_random, and keep "
            "no state outside the environment.",
        )
    elif unlike is not None:
        yield Finding(
            "problem",
            f"The same seed and actions are paid differently from step {unlike} on: runs can't be "
            "repeated, nor resumed exactly. Draw all randomness from self.np_random.",
        )
    elif np.array_equal(first.observations[0], other.observations[0]):
        yield Finding(
            "note", "Another seed starts at the same observation; fine if starts don't vary."
        )
    else:
        yield Finding("good", "The same seed and actions lead to the same steps.")
