"""Optimisers and schedules: Adam, its learning rate, and conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from disc.learning import device


class Moments(NamedTuple):
    """Adam's state; `mu` and `nu` have the parameters' structure."""

    count: jax.Array  # type: ignore[assignment]  # steps so far; the name in checkpoints
    mu: Any  # running mean of the gradients
    nu: Any  # running mean of their squares


class Learner(NamedTuple):
    """Parameters and the state of their optimiser."""

    parameters: Any
    moments: Any  # of Adam, or of another optimiser


def init(parameters: Any) -> Learner:
    """An initial learner, for Adam."""
    mu, nu = device.zeros_like(parameters), device.zeros_like(parameters)
    return Learner(parameters, Moments(device.zeros(dtype=np.int32), mu, nu))


def step(learner: Learner, gradient: Any, learning_rate: Any, epsilon: float = 1e-5) -> Learner:
    """One step of gradient descent with Adam (Kingma and Ba, 2015): θ ← θ − β m̂ / (√v̂ + ε).

    With g the gradient, m = 0.9 m + 0.1 g and m̂ = m / (1 − 0.9ᵗ) after t steps; v and v̂ are the
    same for g² and 0.999.

    Args:
        learner: parameters and moments.
        gradient: with the parameters' structure.
        learning_rate: a number, or a tree of numbers for parts of the parameters.
        epsilon: Adam's (1e-5 as in the authors' code of DISC).
    """
    before: Moments = learner.moments
    count = before.count + 1
    mu = jax.tree.map(lambda g, m: (1 - 0.9) * g + 0.9 * m, gradient, before.mu)
    nu = jax.tree.map(lambda g, v: (1 - 0.999) * g**2 + 0.999 * v, gradient, before.nu)
    mu_scale, nu_scale = 1 - 0.9**count, 1 - 0.999**count
    direction = jax.tree.map(
        lambda m, v: (m / mu_scale) / (jnp.sqrt(v / nu_scale) + epsilon), mu, nu
    )

    def move(rate: jax.Array | float, part: Any, toward: Any) -> Any:
        return jax.tree.map(lambda p, d: p - rate * d, part, toward)

    parameters = jax.tree.map(move, learning_rate, learner.parameters, direction)
    return Learner(parameters, Moments(count, mu, nu))


def norm(tree: Any) -> jax.Array:
    """The Euclidean norm of all leaves together."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def anneal(learning_rate: float, floor: float, step: int, horizon: int) -> float:
    """max(floor, β · (1 − step/horizon)): linear, and never below the floor."""
    return max(floor, learning_rate * (1.0 - step / horizon))


def conjugate_gradient(
    product: Callable[[jax.Array], jax.Array], b: jax.Array, iterations: int
) -> jax.Array:
    """Solve F x = b for a positive definite F (Hestenes and Stiefel, 1952), from x = 0.

    Args:
        product: v ↦ F v, (P,) → (P,).
        b: (P,).
        iterations: maximum; stops early once the squared residual is below 1e-10.

    Returns:
        x, (P,).
    """

    def unfinished(carry: tuple[Any, ...]) -> jax.Array:
        i, _, _, _, square = carry
        return (i < iterations) & (square > 1e-10)

    def improve(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, x, residual, direction, square = carry
        image = product(direction)
        length = square / jnp.vdot(direction, image)
        x, residual = x + length * direction, residual - length * image
        new_square = jnp.vdot(residual, residual)
        return i + 1, x, residual, residual + (new_square / square) * direction, new_square

    start = (0, jnp.zeros_like(b), b, b, jnp.vdot(b, b))
    return jax.lax.while_loop(unfinished, improve, start)[1]
