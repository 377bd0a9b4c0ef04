"""Evaluation: the policy without its noise, on environments and seeds of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from disc import seeding
from disc.policies import Policy
from disc.tasks import said
from disc.types import DiscError

MAX_EPISODE_STEPS = 100_000
"""Where evaluation stops waiting for an episode of an environment without a time limit."""


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
    """
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    for i in range(episodes):
        rng = seeding.generator(seed, seeding.EVALUATION, step, i)
        try:
            observation, _ = env.reset(seed=int(rng.integers(2**31)))
            while lengths[i] < MAX_EPISODE_STEPS:
                x = np.asarray(observation, np.float32).reshape(-1)
                if deterministic and not policy.sampled_only:
                    action = policy.mean(x)
                else:
                    noise = rng.standard_normal(policy.action_low.shape, np.float32)
                    action = policy.sample(x, noise)
                step_result = env.step(policy.bound(action))
                observation, reward, terminated, truncated, _ = step_result
                returns[i] += float(reward)
                lengths[i] += 1
                if terminated or truncated:
                    break
        except Exception as error:
            raise DiscError(
                f"the environment raised at step {lengths[i]} of an evaluation ({said(error)})."
            ) from error
    if not np.isfinite(returns).all():
        raise DiscError("an evaluation met a reward that is not finite; mend the environment.")
    return Evaluation(returns, lengths)
