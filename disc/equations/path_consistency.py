"""Path consistency (Nachum et al., 2018): the residual that Trust-PCL minimises, and its λ.

Arrays are (B, T): B chunks of T consecutive steps. A path ends after d steps, at the end of its
episode, or at the end of its chunk, whichever comes first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from disc.types import Floats


def path_sum(x: jax.Array, end: jax.Array, gamma: float, d: int) -> jax.Array:
    """Σ_{i<k} γ^i x_{t+i} of the path that starts at each step t and has length k.

    Args:
        x: (B, T).
        end: (B, T) whether paths end at this step; True in the last column.
        gamma: γ.
        d: maximum path length.

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
    """The first steps of the paths to use in each chunk, (B, P) int32; padded with T.

    Args:
        end: (B, T) as in `path_sum`.
        d: maximum path length.
        stride: a path starts at each multiple of it, P = ⌈T / stride⌉. If None, each path starts
            where the last one ended and P = ⌈T / d⌉ + 1, which leaves room for one episode end
            within the chunk; with more, the rest of the chunk is not used.
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
    """C_t = −V(s_t) + Σ_{i<k} γ^i r_{t+i} + γ^k V'(s_{t+k}) for a path of length k.

    Args:
        reward: the regularised reward r − (τ + λ) log π + λ log π', (B, T).
        value: V(s_t) at the start of each path, (B, P).
        last_value: V'(s_{t+k}) of the target network at the end of each path, (B, P). At an
            episode's end it is evaluated at the true final observation; 0 after a terminal state.
        start: t, the steps where paths start, (B, P).
        end: (B, T) as in `path_sum`.
        gamma: γ.
        d: maximum path length.

    Returns:
        (B, P).
    """

    def take(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, start, axis=1)

    length = take(path_end(end, d)) - start + 1
    paid = take(path_sum(reward, end, gamma, d))
    return -value + paid + gamma ** length.astype(value.dtype) * last_value


def _ahead(x: jax.Array, i: int) -> jax.Array:
    """x_{t+i} at t; entries that wrap around are never read, as paths end with the chunk."""
    return jnp.roll(x, -i, axis=1)


def implied_divergence(returns: Floats, lam: float) -> float:
    """KL(q ‖ p) of q ∝ exp(R/λ) over K episodes from the uniform p over them.

    This estimates, from K episodes, how far the optimal policy under the penalty λ would be from
    the behaviour policy. It decreases in λ, from log K if one episode is best.
    """
    scaled = (returns.astype(np.float64) - np.max(returns)) / lam
    weight = np.exp(scaled)
    weight /= np.sum(weight)
    return float(np.log(len(returns)) + np.sum(weight * np.log(np.maximum(weight, 1e-300))))


def solve_lambda(returns: Floats, divergence: float, highest: float = 1000.0) -> float:
    """The λ at which the implied divergence is `divergence`, by bisection on [0, highest].

    Args:
        returns: (K,) returns of the last episodes.
        divergence: ε · mean length of those episodes.
        highest: upper end of the bracket (published code), and the maximum λ.

    Returns:
        λ; near 0 if no λ reaches that divergence.
    """
    low, high = 0.0, highest
    for _ in range(50):
        middle = 0.5 * (low + high)
        if implied_divergence(returns, middle) > divergence:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
