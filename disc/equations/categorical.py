"""Products of categorical distributions: importance weights, KL divergence and entropy.

An action has D dimensions, and dimension d one of K_d values, chosen independently of the others
given the state: π(i|s) = ∏_d softmax(z_d(s))_{i_d}. The logits z_1 … z_D are concatenated in
an array (..., P) with P = Σ_d K_d. The K_d, `counts`, are known when a program is compiled.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

ABSENT = -1e9
"""Logit of a value k ≥ K_d: its probability is 0, and sums of products with it stay finite."""


def log_probabilities(logits: jax.Array, counts: tuple[int, ...]) -> jax.Array:
    """Log π_d(k|s) of every value: (..., P) → (..., D, max K_d), about `ABSENT` where k ≥ K_d.

    log π_d(k) = z_{d,k} − log Σ_j exp z_{d,j}
    """
    longest = max(counts)
    if min(counts) == longest:
        table = logits.reshape(*logits.shape[:-1], len(counts), longest)
    else:
        first = np.cumsum([0, *counts[:-1]])[:, None]
        k, past = np.arange(longest), sum(counts)
        place = np.where(k < np.asarray(counts)[:, None], first + k, past)
        table = logits.at[..., place].get(mode="fill", fill_value=ABSENT)
    return jax.nn.log_softmax(table, axis=-1)


def log_ratio(
    action: jax.Array, logits: jax.Array, old_logits: jax.Array, counts: tuple[int, ...]
) -> jax.Array:
    """Log importance weight of each dimension, log ρ_d = log π_d(i_d|s) − log μ_d(i_d|s).

    Args:
        action: the chosen indices i, (..., D), drawn from the behaviour policy μ.
        logits: of the current policy π, (..., P).
        old_logits: of the behaviour policy, (..., P).
        counts: K_d.

    Returns:
        log ρ_d, (..., D).
    """
    change = log_probabilities(logits, counts) - log_probabilities(old_logits, counts)
    # A sum over all values instead of an indexed read, whose gradient would be a slow scatter.
    value = jax.lax.broadcasted_iota(action.dtype, change.shape, change.ndim - 1)
    return jnp.sum(jnp.where(action[..., None] == value, change, 0.0), axis=-1)


def kl(logits: jax.Array, other: jax.Array, counts: tuple[int, ...]) -> jax.Array:
    """KL(p ‖ q) of products of categorical distributions: (..., P) → (...).

    Σ_d Σ_k p_{d,k} (log p_{d,k} − log q_{d,k})

    Args:
        logits: of p, (..., P).
        other: logits of q, (..., P).
        counts: K_d.
    """
    p, q = log_probabilities(logits, counts), log_probabilities(other, counts)
    return jnp.sum(jnp.exp(p) * (p - q), axis=(-2, -1))


def entropy(logits: jax.Array, counts: tuple[int, ...]) -> jax.Array:
    """−Σ_d Σ_k p_{d,k} log p_{d,k}: (..., P) → (...)."""
    p = log_probabilities(logits, counts)
    return -jnp.sum(jnp.exp(p) * p, axis=(-2, -1))
