"""Entropy, log-density and KL divergence of diagonal Gaussians, squashed or not."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp


def entropy(log_std: jax.Array) -> jax.Array:
    """Σ_d log σ_d + ½ log 2πe: (..., D) → (...)."""
    return jnp.sum(log_std + 0.5 * math.log(2.0 * math.pi * math.e), axis=-1)


def log_density(x: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log-density of N(mean, diag σ²) at x, (..., D) → (...).

    Σ_d −½ ((x − m)/σ)² − log σ − ½ log 2π
    """
    distance = jnp.square((x - mean) * jnp.exp(-log_std))
    return jnp.sum(-0.5 * distance - log_std - 0.5 * math.log(2.0 * math.pi), axis=-1)


def gaussian_kl(
    mean: jax.Array, log_std: jax.Array, other_mean: jax.Array, other_log_std: jax.Array
) -> jax.Array:
    """KL(p ‖ q) of diagonal Gaussians, (..., D) → (...).

    Σ_d log σ_q − log σ_p + (σ_p² + (m_p − m_q)²) / (2σ_q²) − ½
    """
    variance_ratio = jnp.exp(2.0 * (log_std - other_log_std))
    distance = jnp.square((mean - other_mean) * jnp.exp(-other_log_std))
    return jnp.sum(other_log_std - log_std + 0.5 * (variance_ratio + distance - 1.0), axis=-1)


def squashed_log_density(u: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log-density of a = tanh(u) with u ~ N(mean, diag σ²), at a given by its u, (..., D) → (...).

    log N(u; mean, σ²) − Σ_d log(1 − tanh² u_d), by
    log(1 − tanh² u) = 2 (log 2 − u − log(1 + exp(−2u))), which avoids log 0
    """
    slope = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    return log_density(u, mean, log_std) - jnp.sum(slope, axis=-1)
