"""Soft values and particle-based Stein variational gradients, for SQL."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

LEAST_BANDWIDTH = 1e-3  # published code


def soft_value(q: jax.Array, dimensions: int) -> jax.Array:
    """V = log ∫ exp Q(s, a) da over [−1, 1]^D, from K uniform actions: (M, K) → (M,).

    log Σ_k exp Q(s, a_k) − log K + D·log 2
    """
    return jax.nn.logsumexp(q, axis=1) - math.log(q.shape[1]) + dimensions * math.log(2.0)


def stein_direction(fixed: jax.Array, moved: jax.Array, score: jax.Array) -> jax.Array:
    """The direction that moves particles towards samples of p (Liu and Wang, 2016).

    φ(a_j) = 1/F Σ_i κ(a_i, a_j) ∇ log p(a_i) + ∇_{a_i} κ(a_i, a_j)

    Args:
        fixed: a_i, (M, F, D).
        moved: a_j, (M, U, D).
        score: ∇ log p at the fixed particles, (M, F, D).

    Returns:
        φ, (M, U, D).
    """
    apart = fixed[:, :, None] - moved[:, None]  # (M, F, U, D)
    square = jnp.sum(jnp.square(apart), axis=3)
    width = bandwidth(square)[:, None, None]
    kernel = jnp.exp(-square / width)
    repulsion = -2.0 * apart / width[..., None] * kernel[..., None]
    attraction = kernel[..., None] * score[:, :, None]
    return jnp.mean(attraction + repulsion, axis=1)


def bandwidth(square: jax.Array) -> jax.Array:
    """The median of squared distances, (M, F, U), over log F: (M,).

    For an even count, the lower of the two middle values. Counting is faster than sorting.
    """
    flat = square.reshape(len(square), -1)
    below = jnp.sum(flat[:, None] <= flat[:, :, None], axis=2)  # how many are at most this one
    median = jnp.min(jnp.where(below >= (flat.shape[1] + 1) // 2, flat, jnp.inf), axis=1)
    return jnp.maximum(median / math.log(square.shape[1]), LEAST_BANDWIDTH)
