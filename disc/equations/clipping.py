"""Clipped objectives, and penalties with their adaptive factor.

`joint_clip` is PPO's clipping, `dimension_clip` is DISC's.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from disc.equations import importance


def _clip_against(log_ratio: jax.Array, advantage: jax.Array, epsilon: float) -> jax.Array:
    """Log of κ·min(κρ, κ·clip_ε(ρ)), κ = sgn Â: clipped only on the side Â pushes towards."""
    above = jnp.minimum(log_ratio, jnp.log1p(epsilon))
    below = jnp.maximum(log_ratio, jnp.log1p(-epsilon))
    return jnp.where(advantage > 0.0, above, below)


def joint_clip(log_ratio: jax.Array, advantage: jax.Array, epsilon: float) -> jax.Array:
    """PPO's clipped weight w (eq. 1): w·Â = min(ρÂ, clip_ε(ρ)Â).

    w = min(ρ, 1+ε) where Â > 0 and max(ρ, 1−ε) where Â < 0, with ρ = ∏_d ρ_d. Where ρ is beyond
    its bound, w is constant and the sample's whole gradient vanishes.

    Args:
        log_ratio: log ρ_d, (M, D).
        advantage: Â, (M,).
        epsilon: ε in [0, 1).

    Returns:
        w, (M,).
    """
    return importance.ratio(_clip_against(importance.joint(log_ratio), advantage, epsilon))


def dimension_clip(log_ratio: jax.Array, advantage: jax.Array, epsilon: float) -> jax.Array:
    """DISC's clipped weight w (eq. 2): each dimension is clipped separately.

    w = ∏_d min(ρ_d, 1+ε) where Â > 0 and ∏_d max(ρ_d, 1−ε) where Â < 0. The gradient of w
    vanishes only where every dimension is beyond its bound (or w beyond e^60, see
    `importance.ratio`). With D = 1 this is `joint_clip`.

    Args:
        log_ratio: log ρ_d, (M, D).
        advantage: Â, (M,).
        epsilon: ε in [0, 1).

    Returns:
        w, (M,).
    """
    clipped = _clip_against(log_ratio, advantage[:, None], epsilon)
    return importance.ratio(importance.joint(clipped))


def clipped(log_ratio: jax.Array, advantage: jax.Array, epsilon: float) -> jax.Array:
    """Where ρ is clipped, for log ρ and Â of equal or broadcastable shapes."""
    above = (advantage > 0.0) & (log_ratio > jnp.log1p(epsilon))
    below = (advantage < 0.0) & (log_ratio < jnp.log1p(-epsilon))
    return above | below


def is_penalty(log_ratio: jax.Array, mask: jax.Array) -> jax.Array:
    """J_IS = ½ mean (Σ_d log ρ_d)² over the rows where `mask` is 1 (paper, section 4.1).

    Args:
        log_ratio: log ρ_d, (M, D).
        mask: (M,), 1 for samples of the newest batch.

    Returns:
        A scalar; 0 if `mask` is all 0.
    """
    squared = jnp.square(importance.joint(log_ratio))
    return 0.5 * jnp.sum(mask * squared) / jnp.maximum(jnp.sum(mask), 1.0)


def kl_penalty(kl: jax.Array, mask: jax.Array) -> jax.Array:
    """J_KL = mean KL(π_old ‖ π) over the rows where `mask` is 1 (paper, section 5.3).

    Args:
        kl: KL divergence of the current policy from the behaviour policy in each state, (M,).
        mask: (M,), 1 for samples of the newest batch.

    Returns:
        A scalar; 0 if `mask` is all 0.
    """
    return jnp.sum(mask * kl) / jnp.maximum(jnp.sum(mask), 1.0)


def clipped_value_loss(
    value: jax.Array, target: jax.Array, old_value: jax.Array, epsilon: float | None
) -> jax.Array:
    """½ max((V − T)², (V_old + clip(V − V_old, ±ε) − T)²), (M,); plain ½(V − T)² if ε is None."""
    loss = jnp.square(value - target)
    if epsilon is not None:
        held = old_value + jnp.clip(value - old_value, -epsilon, epsilon)
        loss = jnp.maximum(loss, jnp.square(held - target))
    return 0.5 * loss


LEAST_ALPHA = 2.0**-10
"""Lower bound of α (authors' code)."""


def adapt(alpha: float, penalty: float, target: float) -> float:
    """α doubles if the penalty exceeds 1.5 J_targ, halves if below J_targ/1.5 (eq. 3).

    α is kept within [2⁻¹⁰, 64], as in the authors' code.
    """
    if penalty > 1.5 * target:
        alpha = 2.0 * alpha
    elif penalty < target / 1.5:
        alpha = 0.5 * alpha
    return min(max(alpha, LEAST_ALPHA), 64.0)


EXPONENT = 0.2
"""Of `adapt_smoothly`."""


def adapt_smoothly(alpha: float, penalty: float, target: float) -> float:
    """α ← α (J/J_targ)^0.2, by a factor of at most 2 and within [2⁻¹⁰, 2¹⁰] (ours).

    For a small change Δ of the parameters the loss is −gᵀΔ + ½ α ΔᵀFΔ with the Fisher matrix F.
    Its minimum Δ = F⁻¹g/α has J = gᵀF⁻¹g / 2α². So the exponent ½ would give J_targ at once, and
    doubling α divides J by 4. That is more than the width of the interval of eq. (3), so there α
    does not settle. The exponent is smaller than ½ because J follows α with a delay of some
    iterations, the memory of Adam's second moments.
    """
    factor = (penalty / target) ** EXPONENT if target > 0.0 else 2.0
    return min(max(alpha * min(max(factor, 0.5), 2.0), LEAST_ALPHA), 1.0 / LEAST_ALPHA)


def damped_rate(alpha: float) -> float:
    """min(1, 1/√α): the learning rate of the policy as a fraction of the usual one (ours).

    Adam divides a gradient by its size, so where the penalty dominates, a larger α does not make
    J smaller: the noise of fixed-size steps keeps it high. A smaller learning rate does.
    """
    return 1.0 / math.sqrt(max(1.0, alpha))
