"""Reading the replay: evaluates the current networks on stored batches.

A loop with a dynamic trip count processes one batch at a time. It skips batches that are not
needed, and compiles once for any number of batches.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from disc.equations import importance
from disc.learning import networks, normalize
from disc.learning.distribution import Policy
from disc.learning.networks import MLP, Activation
from disc.learning.types import BatchReplay, Estimate, Ratios, Reference, Scale, Steps

AGES = 4
"""Number of batches whose ρ' is logged by age, as in the paper's Fig. 7b."""


def ratios(policy: Policy, scale: Scale, replay: BatchReplay) -> Ratios:
    """Importance weights of all filled slots."""

    def read(slot: jax.Array, result: Ratios) -> Ratios:
        output = policy.output(normalize.observations(scale, replay.observation[slot]))
        log_ratio = policy.log_ratio(
            replay.action[slot], output, replay.mean[slot], replay.log_std[slot][None]
        )
        log_rho = importance.joint(log_ratio)
        return Ratios(
            result.log_rho.at[slot].set(log_rho),
            result.joint_deviation.at[slot].set(importance.deviation(log_rho)),
            result.dimension_deviation.at[slot].set(importance.deviation(log_ratio)),
            result.output.at[slot].set(output),
        )

    nothing = jnp.zeros(replay.length)
    empty = Ratios(
        jnp.zeros((replay.length, replay.horizon)), nothing, nothing, jnp.zeros_like(replay.mean)
    )
    return jax.lax.fori_loop(0, jnp.sum(replay.age >= 0), read, empty)


def steps(
    config: Any,
    value: MLP,
    scale: Scale,
    replay: BatchReplay,
    included: jax.Array,
    activation: Activation = jnp.tanh,
) -> Steps:
    """Rewards, discounts and the current values of all included batches."""
    order = jnp.argsort(~included, stable=True)

    def evaluate(observation: jax.Array) -> jax.Array:
        x = normalize.observations(scale, observation)
        return networks.forward(value, x, activation)[:, 0]

    def read(i: jax.Array, result: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        slot = order[i]
        now, following = result
        return (
            now.at[slot].set(evaluate(replay.observation[slot])),
            following.at[slot].set(evaluate(replay.next_observation[slot])),
        )

    nothing = jnp.zeros((replay.length, replay.horizon))
    now, following = jax.lax.fori_loop(0, jnp.sum(included), read, (nothing, nothing))
    discount, decay = discounts(replay, config.gamma, config.lam, config.bootstrap_time_limits)
    reward = normalize.rewards(scale, replay.reward)
    return Steps(reward.T, discount.T, decay.T, now.T, following.T)


def discounts(
    replay: BatchReplay, gamma: float, lam: float, bootstrap_time_limits: bool
) -> tuple[jax.Array, jax.Array]:
    """`discount` and `decay` of every stored step, (L, N)."""
    ended = replay.terminated | replay.truncated
    final = replay.terminated if bootstrap_time_limits else ended
    discount = jnp.where(final, 0.0, gamma)
    decay = jnp.where(ended | replay.border, 0.0, gamma * lam)
    return discount, decay


def behaviour(replay: BatchReplay) -> Reference:
    """The policies that collected the batches."""
    return Reference(replay.mean, replay.log_std)


def current(policy: Policy, ratios: Ratios) -> Reference:
    """The policy at the start of the update."""
    shape = (len(ratios.output), len(policy.log_std))
    return Reference(ratios.output, jnp.broadcast_to(policy.log_std, shape))


def estimate(
    replay: BatchReplay,
    ratios: Ratios,
    included: jax.Array,
    steps: Steps,
    advantage: jax.Array,
    weight: jax.Array,
    target: jax.Array,
    reference: Reference,
) -> Estimate:
    """Combine the parts, with batches along the first axis, and compute metrics.

    Args:
        replay: the replay.
        ratios: its importance weights.
        included: (L,).
        steps: the inputs of the advantages.
        advantage: (N, L).
        weight: (L, N).
        target: (N, L).
        reference: the policies that the ratios of the update are relative to.
    """
    measured = measure(replay, ratios, included, steps.value.T, target.T)
    return Estimate(included, advantage.T, weight, target.T, steps.value.T, reference, measured)


def measure(
    replay: BatchReplay, ratios: Ratios, included: jax.Array, value: jax.Array, target: jax.Array
) -> dict[str, jax.Array]:
    """Metrics of the replay before the update; scalars."""
    count = jnp.sum(included)
    mask = jnp.broadcast_to(included[:, None], value.shape)

    def mean(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(mask, x, 0.0)) / jnp.sum(mask)

    variance = mean(jnp.square(target - mean(target)))
    residual = mean(jnp.square(target - value - mean(target - value)))
    by_age = {
        f"is/rho_d_age_{age}": 1.0
        + jnp.sum(jnp.where(replay.age == age, ratios.dimension_deviation, 0.0))
        / jnp.any(replay.age == age)
        for age in range(min(AGES, replay.length))
    }
    return {
        "is/rho_start": 1.0 + jnp.sum(jnp.where(included, ratios.joint_deviation, 0.0)) / count,
        "is/rho_d_start": 1.0
        + jnp.sum(jnp.where(included, ratios.dimension_deviation, 0.0)) / count,
        "is/effective_samples": importance.effective_samples(ratios.log_rho, mask),
        "is/batches": count,
        "is/oldest_age": jnp.max(jnp.where(included, replay.age, 0)),
        "train/explained_variance": 1.0 - residual / jnp.maximum(variance, 1e-8),
        **by_age,
    }
