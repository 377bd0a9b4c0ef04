"""Importance-sampling weights of a diagonal Gaussian policy, and the selection of old batches.

ρ_{t,d} = π_d(a_{t,d}|s_t) / μ_d(a_{t,d}|s_t) is the weight of one action dimension and
ρ_t = ∏_d ρ_{t,d} that of the whole action (paper, section 4.1). Everything is computed in
logarithms to avoid overflow.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

MAX_LOG_RATIO = 60.0
"""exp of this is 1e26: far above any useful weight, and float32 sums of it stay finite."""


def log_ratio(
    action: jax.Array,
    mean: jax.Array,
    log_std: jax.Array,
    old_mean: jax.Array,
    old_log_std: jax.Array,
) -> jax.Array:
    """Per-dimension log importance weight of diagonal Gaussians.

    log ρ_d = ½((a_d − m_d)/s_d)² + log s_d − ½((a_d − u_d)/σ_d)² − log σ_d

    Args:
        action: a, (..., D), drawn from the old (behaviour) policy.
        mean: u, (..., D), of the current policy.
        log_std: log σ, broadcastable to (..., D).
        old_mean: m, (..., D), of the behaviour policy.
        old_log_std: log s, broadcastable to (..., D).

    Returns:
        log ρ_d, (..., D).
    """
    new = jnp.square((action - mean) * jnp.exp(-log_std))
    old = jnp.square((action - old_mean) * jnp.exp(-old_log_std))
    return 0.5 * (old - new) + (old_log_std - log_std)


def joint(log_ratio: jax.Array) -> jax.Array:
    """Log ρ_t = Σ_d log ρ_{t,d}: (..., D) → (...)."""
    return jnp.sum(log_ratio, axis=-1)


def ratio(log_ratio: jax.Array) -> jax.Array:
    """Return ρ = exp(log ρ), capped at e^60 so that it stays finite; any shape."""
    return jnp.exp(jnp.minimum(log_ratio, MAX_LOG_RATIO))


def deviation(log_ratio: jax.Array) -> jax.Array:
    """Mean of |ρ − 1| over all entries, a scalar: the paper's mean ρ' minus one.

    Given log ρ_{t,d} of shape (N, D) this is the left side of eq. (5) minus one; given log ρ_t of
    shape (N,), that of eq. (4).
    """
    return jnp.mean(jnp.abs(ratio(log_ratio) - 1.0))


def include(deviation: jax.Array, age: jax.Array, epsilon_b: float) -> jax.Array:
    """Which batches of the replay to learn from (eqs. 4 and 5).

    A batch is included if its mean |ρ − 1| is below ε_b; the newest is always included.

    Args:
        deviation: (L,) mean |ρ − 1| of each batch.
        age: (L,) iterations since the batch was collected: 0 is the newest, negative is empty.
        epsilon_b: ε_b; 0 reuses nothing.

    Returns:
        (L,) booleans.
    """
    return (age == 0) | ((age > 0) & (deviation < epsilon_b))


def effective_samples(log_rho: jax.Array, mask: jax.Array) -> jax.Array:
    """Effective sample size (Σρ)² / Σρ² as a fraction of the rows where `mask` is true; a scalar.

    At least one entry of `mask` must be true.

    Args:
        log_rho: log ρ_t, any shape.
        mask: booleans of the same shape.
    """
    masked = jnp.where(mask, log_rho, -jnp.inf)
    log_ess = 2.0 * jax.nn.logsumexp(masked) - jax.nn.logsumexp(2.0 * masked)
    return jnp.exp(log_ess) / jnp.sum(mask)
