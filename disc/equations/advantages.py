"""Advantage estimators: one backward recursion, with and without V-trace's truncated weights.

Time runs along the first axis; any further axes are independent trajectories. Episode ends and
batch borders enter only through `discount` and `decay`, so the same functions work for single
episodes, whole batches and the whole replay.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def gae(
    reward: jax.Array,
    discount: jax.Array,
    decay: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Generalised advantage estimation (Schulman et al., 2016).

    δ_t = r_t + γ V(s_{t+1}) − V(s_t)
    Â_t = δ_t + γλ Â_{t+1},  target V(s_t) + Â_t

    Args:
        reward: r, (T, ...).
        discount: γ, and 0 where the episode terminated, (T, ...).
        decay: γλ, and 0 where the episode or the batch ends, (T, ...).
        value: V(s_t), (T, ...).
        next_value: V(s_{t+1}), (T, ...). At an episode's end, of the true final observation.

    Returns:
        (advantage, target), both (T, ...).
    """
    return gae_v(reward, discount, decay, value, next_value, jnp.ones_like(reward))


@jax.jit
def gae_v(
    reward: jax.Array,
    discount: jax.Array,
    decay: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    rho: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """GAE with V-trace (paper, eqs. 6 and 7), for off-policy trajectories.

    δ_t = r_t + γ V(s_{t+1}) − V(s_t)
    Â_t = δ_t + γλ min(1, ρ_{t+1}) Â_{t+1},  target V(s_t) + min(1, ρ_t) Â_t

    With ρ = 1 this is GAE. The target is V-trace's (Espeholt et al., 2018). The paper's eq. 6, read
    literally, has an extra λ, which would not reduce to GAE's target for ρ = 1.

    Args:
        reward: r, (T, ...).
        discount: γ, and 0 where the episode terminated, (T, ...).
        decay: γλ, and 0 where the episode or the batch ends, (T, ...).
        value: V(s_t), (T, ...).
        next_value: V(s_{t+1}), (T, ...). At an episode's end, of the true final observation.
        rho: joint importance weight ρ_t, (T, ...).

    Returns:
        (advantage, target), both (T, ...).
    """
    delta = reward + discount * next_value - value
    weight = jnp.minimum(1.0, rho)

    def backward(
        trace: jax.Array, step: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        delta_t, decay_t, weight_t = step
        advantage = delta_t + decay_t * trace
        return weight_t * advantage, advantage

    start = jnp.zeros_like(delta[0])
    _, advantage = jax.lax.scan(backward, start, (delta, decay, weight), reverse=True)
    return advantage, value + weight * advantage


def standardize(advantage: jax.Array, weight: jax.Array, mask: jax.Array) -> jax.Array:
    """Standardise a minibatch's weighted advantages to mean 0 and scale 1 (authors' code).

    Â ← (Â − mean(wÂ)/mean(w)) / (std(wÂ) + 1e-8)

    With w = 1 this is PPO's plain standardisation.

    Args:
        advantage: Â, (M,).
        weight: w = min(1, ρ) at the start of the iteration, (M,).
        mask: 1 for real rows, 0 for padding, (M,).

    Returns:
        (M,); padding is zero.
    """
    count = jnp.sum(mask)
    weighted = mask * weight * advantage
    center = jnp.sum(weighted) / jnp.maximum(jnp.sum(mask * weight), 1e-30)
    mean = jnp.sum(weighted) / count
    std = jnp.sqrt(jnp.sum(mask * jnp.square(weighted - mean)) / count)
    return mask * (advantage - center) / (std + 1e-8)
