"""Evaluation: the policy without noise, on separate environments and seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from disc import seeding
from disc.envs import contract
from disc.envs.contract import Misbehaved
from disc.policy.layout import Layout
from disc.policy.policies import Policy
from disc.types import DiscError, Floats, NonFiniteAction

MAX_EPISODE_STEPS = 100_000
"""Steps after which an episode of an environment without a time limit is cut off."""
LOOK_EVERY = 1_000  # steps between checks for non-finite observations


class Interrupted(Exception):
    """A signal ended the evaluation."""


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
    stream: int = seeding.EVALUATION,
) -> Evaluation:
    """Run whole episodes, with raw rewards.

    Episode i starts from `env.reset` with a seed that derives from the run's seed, the step and
    i, so evaluations depend neither on each other nor on training.

    Args:
        env: an environment that nothing else uses.
        policy: the policy to evaluate.
        episodes: the number of episodes.
        seed: the run's seed.
        step: environment steps of the run so far.
        deterministic: act without noise instead of sampling; SQL always samples.
        name: the environment's name, for messages.
        say: receives a warning about an episode that does not end.
        stop: asked at every step whether to stop.
        stream: the purpose of the seeds; another one gives other episodes.

    Raises:
        DiscError: the environment raised, or it or the policy gave something that is not finite.
        Interrupted: `stop` returned True.
    """
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    sampled = policy.sampled_only or not deterministic
    for i in range(episodes):
        rng = seeding.generator(seed, stream, step, i)
        title = f"episode {i + 1} of the evaluation" + (f" at step {step}" if step else "")
        try:
            returns[i], lengths[i], ended = _play(env, policy, rng, sampled, title, stop)
        except NonFiniteAction as error:
            raise DiscError(f"{name}: {error}; {contract.TOO_LARGE}.") from error
        except Misbehaved as error:
            raise contract.error(name, error.at(f"of {title}"), running=step > 0) from error
        if stop():
            raise Interrupted
        if not ended and say is not None:
            say(
                f"{name}: an episode of an evaluation did not end within {MAX_EPISODE_STEPS:,} "
                "steps and was cut off; give the environment a time limit "
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
    layout, size = (
        policy.layout or Layout.box(policy.observation_shape),
        len(policy.observation_mean),
    )
    seen, first = np.empty((LOOK_EVERY, size), np.float32), 0
    total, length, ended = 0.0, 0, False
    observation = contract.reset(env, layout, int(rng.integers(2**31)))
    try:
        while length < MAX_EPISODE_STEPS and not ended and not stop():
            if length - first == LOOK_EVERY:
                _check_finite(seen, layout, first, title)
                first = length
            row = length - first
            seen[row] = np.asarray(observation).reshape(size)
            if sampled:
                action = policy.sample(seen[row], policy.noise(rng, 1)[0])
            else:
                action = policy.mean(seen[row])
            if not np.isfinite(action).all():
                _check_finite(seen[: row + 1], layout, first, title)
                raise NonFiniteAction(f"the action at step {length + 1} of {title} is not finite")
            result = contract.step(env, policy.bound(action), layout)
            observation, reward, terminated, truncated = result
            length += 1
            total += reward
            ended = terminated or truncated
    except Misbehaved as error:
        _check_finite(seen[: length - first], layout, first, title)
        raise Misbehaved(error.at(f"at step {length + 1} of {title}")) from error
    _check_finite(seen[: length - first], layout, first, title)
    return total, length, ended


def _check_finite(seen: Floats, layout: Layout, first: int, title: str) -> None:
    """Raise `Misbehaved` at the first non-finite observation; step `first` gave the first row."""
    if found := contract.first_nonfinite(seen, layout):
        row, what = found
        raise Misbehaved(what.replace("{at}", f"at step {first + row} of {title}"))
