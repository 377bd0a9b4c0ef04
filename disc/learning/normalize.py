"""Running statistics of observations and returns. The replay stores raw values."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from disc.learning.types import Moments, Normalizer, Scale
from disc.types import Rollout

CLIP = 10.0
EPSILON = 1e-8


def init(observation_size: int, num_envs: int) -> Normalizer:
    """Empty statistics: mean 0 and variance 1, which normalise to the identity."""

    def nothing(*shape: int) -> Moments:
        return Moments(0.0, np.zeros(shape), np.ones(shape))

    return Normalizer(nothing(observation_size), nothing(), np.zeros(num_envs))


def combine(moments: Moments, values: NDArray[np.float32] | NDArray[np.float64]) -> Moments:
    """Update moments with `values`, (n, ...) (Chan et al., 1979)."""
    count, total = float(len(values)), moments.samples + len(values)
    mean = np.mean(values, axis=0, dtype=np.float64)
    variance = np.var(values, axis=0, dtype=np.float64)
    delta = mean - moments.mean
    squares = moments.variance * moments.samples + variance * count
    squares = squares + np.square(delta) * moments.samples * count / total
    return Moments(
        total, np.asarray(moments.mean + delta * count / total), np.asarray(squares / total)
    )


def update(normalizer: Normalizer, rollout: Rollout, gamma: float) -> Normalizer:
    """Update the statistics with a rollout.

    The discounted return R_t = γ R_{t−1} + r_t continues across batches and restarts with each
    episode; rewards are divided by the square root of its variance.
    """
    num_envs = len(normalizer.running)
    rewards = rollout.reward.reshape(num_envs, -1)
    ends = (rollout.terminated | rollout.truncated).reshape(num_envs, -1)
    discounted, running = np.empty(rewards.shape), normalizer.running.copy()
    for e in range(num_envs):
        value, row = float(running[e]), discounted[e]
        for t, (reward, end) in enumerate(zip(rewards[e].tolist(), ends[e].tolist(), strict=True)):
            value = gamma * value + reward
            row[t] = value
            value = 0.0 if end else value
        running[e] = value
    return Normalizer(
        combine(normalizer.observation, rollout.observation),
        combine(normalizer.discounted, discounted.ravel()),
        running,
    )


def cut(normalizer: Normalizer) -> Normalizer:
    """Restart the discounted returns after the environments were reset."""
    return normalizer._replace(running=np.zeros_like(normalizer.running))


def scale(normalizer: Normalizer) -> Scale:
    """The snapshot to normalise with."""
    observation, discounted = normalizer.observation, normalizer.discounted
    if not observation.samples and not discounted.samples:
        return identity(len(observation.mean))
    return Scale(
        observation.mean.astype(np.float32),
        (1.0 / np.sqrt(observation.variance + EPSILON)).astype(np.float32),
        np.float32(1.0 / np.sqrt(discounted.variance + EPSILON)),  # type: ignore[arg-type]
    )


@lru_cache
def identity(observation_size: int) -> Scale:
    """The snapshot of empty statistics, which is the identity."""
    zeros, ones = np.zeros(observation_size, np.float32), np.ones(observation_size, np.float32)
    return Scale(zeros, ones, np.float32(1.0))  # type: ignore[arg-type]


def observations(scale: Scale, observation: jax.Array, clip: float = CLIP) -> jax.Array:
    """clip((s − mean) / √(variance + 1e-8), ±`clip`): (..., S) → (..., S)."""
    return jnp.clip((observation - scale.mean[None]) * scale.inverse_std[None], -clip, clip)


def rewards(scale: Scale, reward: jax.Array) -> jax.Array:
    """clip(r / √(variance of R + 1e-8), ±10), never centred; any shape."""
    return jnp.clip(reward * scale.reward, -CLIP, CLIP)
