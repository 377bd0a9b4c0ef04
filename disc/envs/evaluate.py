"""Evaluation: the policy without its noise, on environments and seeds of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from disc import seeding
from disc.envs import contract
from disc.envs.contract import NUMBERS, RAISED, Misbehaved, number
from disc.policy.policies import Policy
from disc.types import DiscError, Floats

MAX_EPISODE_STEPS = 100_000
"""Where evaluation stops waiting for an episode of an environment without a time limit."""
LOOK_EVERY = 1_000  # steps, at the observations of which one look is cheap


class Interrupted(Exception):
    """An evaluation was not finished, as it was asked not to be."""


class Unfit(Misbehaved):
    """It was the policy."""


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths of some episodes."""

    returns: NDArray[np.float64]  # (episodes,)
    lengths: NDArray[np.int64]  # (episodes,)


def evaluate(
    env: gym.Env[Any, Any],
    policy: Policy,
    episodes: int,
    seed: int,
    step: int = 0,
    deterministic: bool = True,
    *,
    name: str = "the environment",
    say: Callable[[str], Any] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Run whole episodes, with raw rewards.

    Episode i starts from `env.reset` with a seed that derives from the run's seed, the step and
    i, so no evaluation depends on another, and none on training.

    Args:
        env: an environment that nothing else uses.
        policy: acts.
        episodes: how many.
        seed: the run's.
        step: where in the run.
        deterministic: the action without noise; else a sample, as always with SQL.
        name: the environment's, in messages.
        say: is told of an episode that does not end.
        stop: is asked at every step whether to leave it.

    Raises:
        DiscError: the environment raised, or it or the policy gave something that is not finite.
        Interrupted: `stop` said so.
    """
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    sampled = policy.sampled_only or not deterministic
    for i in range(episodes):
        rng = seeding.generator(seed, seeding.EVALUATION, step, i)
        title = f"episode {i + 1} of the evaluation" + (f" at step {step}" if step else "")
        try:
            returns[i], lengths[i], ended = _play(env, policy, rng, sampled, title, stop)
        except Unfit as error:
            raise DiscError(f"{name}: {error}; {contract.TOO_LARGE}.") from error
        except Misbehaved as error:
            raise contract.error(name, f"{error}", running=step > 0) from error
        if stop():
            raise Interrupted
        if not ended and say is not None:
            say(
                f"{name}: an episode of an evaluation did not end within {MAX_EPISODE_STEPS:,} "
                "steps and was cut; give the environment a time limit "
                "(gymnasium.wrappers.TimeLimit), or turn evaluations off (--eval-every 0)."
            )
    return Evaluation(returns, lengths)


def _play(
    env: gym.Env[Any, Any],
    policy: Policy,
    rng: np.random.Generator,
    sampled: bool,
    title: str,
    stop: Callable[[], bool],
) -> tuple[float, int, bool]:
    """An episode's return and length, and whether it ended.

    Raises:
        Misbehaved: says what the environment did wrong.
    """
    shape, size = policy.observation_shape, len(policy.observation_mean)
    seen, rewards = np.empty((LOOK_EVERY, size), np.float32), list[float]()
    total, length, first, ended, result = 0.0, 0, 0, False, contract.NOTHING
    try:
        observation = contract.begin(env, shape, int(rng.integers(2**31)))
    except Misbehaved as error:
        raise Misbehaved(f"the reset of {title} {error}") from error
    try:
        while length < MAX_EPISODE_STEPS and not ended and not stop():
            if length - first == LOOK_EVERY:
                _look(seen, rewards[first:], first, title)
                first = length
            row = length - first
            seen[row] = np.asarray(observation).reshape(size)
            if sampled:
                noise = rng.standard_normal(policy.action_low.shape, np.float32)
                action = policy.sample(seen[row], noise)
            else:
                action = policy.mean(seen[row])
            if not np.isfinite(action).all():
                _look(seen[: row + 1], rewards[first:], first, title)
                raise Unfit(f"the action at step {length + 1} of {title} is not finite")
            result = env.step(policy.bound(action))
            length += 1
            observation, reward, terminated, truncated, _ = result
            if not isinstance(reward, NUMBERS):
                reward = number(reward)
            rewards.append(float(reward))
            total += rewards[-1]
            ended = bool(terminated or truncated)
    except RAISED as error:
        if isinstance(error, Misbehaved):
            raise
        _look(seen[: length - first], rewards[first:], first, title)
        newest, now = f"{length} of {title}", f"{length + 1} of {title}"
        raise Misbehaved(contract.blame(error, result, shape, newest, now)) from error
    _look(seen[: length - first], rewards[first:], first, title)
    return total, length, ended


def _look(seen: Floats, rewards: list[float], first: int, title: str) -> None:
    """Name the first of the last steps that gave a NaN or an infinity.

    Args:
        seen: the last observations; step `first` gave the first of them.
        rewards: of the steps after that.
        first: steps before the last look.
        title: the episode's.
    """
    seeing, paying = np.isfinite(seen).all(axis=1), np.isfinite(rewards)
    if seeing.all() and paying.all():
        return
    row, paid = (int(np.argmin(x)) if not x.all() else len(seen) for x in (seeing, paying))
    if row <= paid:
        what, step, value = "observation", first + row, seen[row]
    else:
        what, step, value = "reward", first + 1 + paid, rewards[paid]
    raise Misbehaved(f"the {what} at step {step} of {title} {contract.not_finite(value)}")
