"""Path consistency (Nachum et al., 2018): what Trust-PCL drives to zero, and its λ.

Arrays are (B, T): B chunks of T consecutive steps. The path from a step ends after d steps, at the
end of its episode, or at the end of its chunk, whichever comes first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from disc.types import Floats


def path_sum(x: jax.Array, end: jax.Array, gamma: float, d: int) -> jax.Array:
    """Σ_{i<k} γ^i x_{t+i} of the path that starts at each step t, k its length.

    Args:
        x: (B, T).
        end: (B, T) whether a path that reaches this step ends with it; True in the last column.
        gamma: γ.
        d: steps in a path at most.

    Returns:
        (B, T).
    """
    total, alive = jnp.zeros_like(x), jnp.ones_like(end)
    for i in range(min(d, x.shape[1])):
        total = total + gamma**i * jnp.where(alive, _ahead(x, i), 0.0)
        alive = alive & ~_ahead(end, i)
    return total


def path_end(end: jax.Array, d: int) -> jax.Array:
    """The last step of the path that starts at each step, (B, T) → (B, T) int32."""
    last = jnp.broadcast_to(jnp.arange(end.shape[1]), end.shape)
    alive = jnp.ones_like(end)
    for i in range(min(d, end.shape[1]) - 1):
        alive = alive & ~_ahead(end, i)
        last = last + alive
    return last


def path_start(end: jax.Array, d: int, stride: int | None) -> jax.Array:
    """The first steps of the paths to follow in each chunk, (B, P) int32; T where there is none.

    Args:
        end: (B, T) as in `path_sum`.
        d: steps in a path at most.
        stride: a path starts at each multiple of it, P = ⌈T / stride⌉. If None they are laid end to
            end: where one ends, the next starts. P = ⌈T / d⌉ + 1 then, which leaves room for an
            episode that ends within the chunk; after more than that its rest is not followed.
    """
    chunks, steps = end.shape
    if stride is not None:
        return jnp.broadcast_to(jnp.arange(0, steps, stride), (chunks, -(-steps // stride)))
    following = jnp.concatenate(
        [path_end(end, d) + 1, jnp.full((chunks, 1), steps, jnp.int32)], axis=1
    )
    starts = [jnp.zeros((chunks, 1), jnp.int32)]
    for _ in range(min(-(-steps // d) + 1, steps) - 1):
        starts.append(jnp.take_along_axis(following, starts[-1], axis=1))
    return jnp.concatenate(starts, axis=1)


def residual(
    reward: jax.Array,
    value: jax.Array,
    last_value: jax.Array,
    start: jax.Array,
    end: jax.Array,
    gamma: float,
    d: int,
) -> jax.Array:
    """C_t = −V(s_t) + Σ_{i<k} γ^i r_{t+i} + γ^k V'(s_{t+k}), k the path's length.

    Args:
        reward: r − (τ + λ) log π + λ log π', regularised, (B, T).
        value: V(s_t) where a path starts, (B, P).
        last_value: V'(s_{t+k}) of the target network where it leads, at an episode's end of its
            true final observation; 0 after a terminal state, (B, P).
        start: t, the steps where paths start, (B, P).
        end: (B, T) as in `path_sum`.
        gamma: γ.
        d: steps in a path at most.

    Returns:
        (B, P).
    """

    def take(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, start, axis=1)

    length = take(path_end(end, d)) - start + 1
    paid = take(path_sum(reward, end, gamma, d))
    return -value + paid + gamma ** length.astype(value.dtype) * last_value


def _ahead(x: jax.Array, i: int) -> jax.Array:
    """x_{t+i} at t; what lies beyond the chunk is never read, as paths end with it."""
    return jnp.roll(x, -i, axis=1)


def implied_divergence(returns: Floats, lam: float) -> float:
    """KL(q ‖ p) of q ∝ exp(R/λ) over K episodes from the uniform p over them.

    This is how far the best policy under the penalty λ would be from the one that acted, judged
    by its episodes. It falls as λ grows, from log K where one episode is best.
    """
    scaled = (returns.astype(np.float64) - np.max(returns)) / lam
    weight = np.exp(scaled)
    weight /= np.sum(weight)
    return float(np.log(len(returns)) + np.sum(weight * np.log(np.maximum(weight, 1e-300))))


def solve_lambda(returns: Floats, divergence: float, highest: float = 1000.0) -> float:
    """The λ at which the implied divergence is `divergence`, by bisection on [0, highest].

    Args:
        returns: (K,) of the last episodes.
        divergence: ε · mean length of those episodes.
        highest: the bracket's upper end (published code), also the answer if λ would be above.

    Returns:
        λ; near 0 if no λ gives that much divergence.
    """
    low, high = 0.0, highest
    for _ in range(50):
        middle = 0.5 * (low + high)
        if implied_divergence(returns, middle) > divergence:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
