"""`disc check`: try an environment before training, and say in plain words what will hurt."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from disc.envs import describe
from disc.tasks import Maker, said
from disc.types import Spec

NORMALIZED = "DISC, PPO, PPO-AMBER, TRPO and ACKTR normalise"
LARGE, SMALL = 1e3, 1e-3


class Finding(NamedTuple):
    """What was found, and what to do about it."""

    kind: Literal["good", "note", "problem"]
    text: str


@dataclass
class Trial:
    """Some random steps."""

    observations: list[Any] = field(default_factory=list)
    rewards: list[Any] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # of the episodes that ended
    seconds: float = 0.0
    fault: str = ""  # what stopped it early


def check(maker: Maker, steps: int, seed: int) -> list[Finding]:
    """Make the environment twice, take random steps, and look at what comes back.

    Raises:
        DiscError: it can't be made, or has spaces that no algorithm here can use.
    """
    with closing(maker.make()) as env:
        spec = describe(env, maker.name)
        first = _try(env, spec, steps, seed)
        found = [*_faults(env, first), *_actions(spec)]
        if first.fault:
            return found
        found += _limit(env, first)
    with closing(maker.make()) as env:
        second = _try(env, spec, steps, seed)
    with closing(maker.make()) as env:
        other = _try(env, spec, 1, seed + 1)
    found += [*_observations(first), *_rewards(first), *_repeats(first, second, other)]
    found += [Finding("good", f"{steps / first.seconds:,.0f} random steps a second.")]
    return found


def _try(env: gym.Env[Any, Any], spec: Spec, steps: int, seed: int) -> Trial:
    """Random steps within the bounds, or standard normal where there are none."""
    rng, trial = np.random.default_rng(seed), Trial()
    low = np.maximum(spec.action_low, -1e30)
    bounded = np.isfinite(spec.action_low) & np.isfinite(spec.action_high)
    clock, length = time.perf_counter(), 0
    try:
        observation, _ = env.reset(seed=seed)
        trial.observations.append(np.array(observation))
        for _ in range(steps):
            width = np.where(bounded, spec.action_high - low, 0.0)
            uniform, normal = rng.random(spec.action_size), rng.standard_normal(spec.action_size)
            action = np.where(bounded, low + width * uniform, normal).astype(np.float32)
            result = env.step(action.reshape(spec.action_shape))
            observation, reward, terminated, truncated, _ = result
            trial.observations.append(np.array(observation))
            trial.rewards.append(reward)
            length += 1
            if terminated or truncated:
                trial.lengths.append(length)
                length = 0
                observation, _ = env.reset()
                trial.observations.append(np.array(observation))
    except Exception as error:
        where = f"at step {len(trial.rewards) + 1}" if trial.observations else "when reset"
        trial.fault = f"The environment raised {where} ({said(error)}); mend that first."
    trial.seconds = time.perf_counter() - clock
    return trial


def _faults(env: gym.Env[Any, Any], trial: Trial) -> Iterator[Finding]:
    """What no algorithm can learn from."""
    space = env.observation_space
    for i, x in enumerate(trial.observations):
        if x.shape != space.shape:
            trial.fault = trial.fault or "shape"
            yield Finding(
                "problem",
                f"Observation {i} has shape {x.shape}, and the space says {space.shape}; return "
                "what the space says.",
            )
            return
        if not np.all(np.isfinite(np.asarray(x, np.float32))):
            trial.fault = trial.fault or "not finite"
            yield Finding(
                "problem",
                f"Observation {i} is not finite in single precision; look for a division by zero, "
                "or an overflow.",
            )
            return
    for i, reward in enumerate(trial.rewards, 1):
        if np.size(reward) != 1 or not np.isfinite(float(np.asarray(reward).reshape(-1)[0])):
            trial.fault = trial.fault or "reward"
            yield Finding("problem", f"The reward at step {i} is {reward!r}; return one number.")
            return
    if trial.fault:
        yield Finding("problem", trial.fault)
        return
    outside = [i for i, x in enumerate(trial.observations) if not space.contains(x)]
    if outside:
        yield Finding(
            "note",
            f"Observation {outside[0]} and {len(outside) - 1} others lie outside the space, or are "
            f"of another type than its {space.dtype}. Training does not mind; other tools may.",
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
            f"Actions range from {low.min():g} to {high.max():g}. DISC, PPO, PPO-AMBER, TRPO, "
            "ACKTR and Trust-PCL start with noise of standard deviation 1, which is far from that; "
            "wrap the environment in gymnasium.wrappers.RescaleAction(env, -1, 1).",
        )
    else:
        yield Finding("good", f"Actions range from {low.min():g} to {high.max():g}.")


def _limit(env: gym.Env[Any, Any], trial: Trial) -> Iterator[Finding]:
    limit = env.spec.max_episode_steps if env.spec is not None else None
    if trial.lengths and max(trial.lengths) == 1:
        yield Finding(
            "note",
            "Every episode ended at its first step: a bandit. That works, but look whether it is "
            "meant.",
        )
    elif trial.lengths:
        yield Finding("good", f"Episodes end, after {np.mean(trial.lengths):,.0f} random steps.")
    elif limit is None:
        yield Finding(
            "problem",
            f"No episode ended in {len(trial.rewards):,} steps and there is no time limit: "
            "an evaluation may not end. Give max_episode_steps when it is registered, or wrap it "
            "in gymnasium.wrappers.TimeLimit.",
        )
    else:
        yield Finding("good", f"Episodes end after {limit:,} steps at the latest.")


def _observations(trial: Trial) -> Iterator[Finding]:
    x = np.stack([np.asarray(x, np.float64).reshape(-1) for x in trial.observations])
    size = np.abs(x).max(axis=0)
    if np.any(size > LARGE):
        worst = int(np.argmax(size))
        yield Finding(
            "note",
            f"Observation number {worst} reaches {size[worst]:.3g}. {NORMALIZED} and clip "
            "observations; for TD3, SAC and SQL scale them to about 1 (gymnasium.wrappers."
            "TransformObservation).",
        )
    still = int(np.sum(x.std(axis=0) == 0.0))
    if still == x.shape[1]:
        yield Finding("problem", "The observation never changes: nothing can be learned from it.")
    elif still:
        yield Finding("note", f"{still} of {x.shape[1]} observation numbers never changed.")
    if not np.any(size > LARGE) and still < x.shape[1]:
        yield Finding("good", f"Observations lie within ±{size.max():.3g}.")


def _rewards(trial: Trial) -> Iterator[Finding]:
    rewards = np.asarray(trial.rewards, np.float64).reshape(-1)
    largest = float(np.abs(rewards).max())
    if largest > LARGE or 0.0 < largest < SMALL:
        yield Finding(
            "note",
            f"Rewards reach {largest:.3g}. {NORMALIZED} them; for SAC and SQL choose reward_scale, "
            "for DDPG and TD3 scale them to about 1 (gymnasium.wrappers.TransformReward).",
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
    pairs = zip(first.observations, second.observations, strict=False)
    differs = next((i for i, (a, b) in enumerate(pairs) if not np.array_equal(a, b)), None)
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
    elif np.array_equal(first.observations[0], other.observations[0]):
        yield Finding(
            "note", "Another seed starts at the same observation; fine if starts don't vary."
        )
    else:
        yield Finding("good", "The same seed and actions lead to the same steps.")
