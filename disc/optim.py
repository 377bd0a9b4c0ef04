"""Optimisers and schedules."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import optax


class Learner(NamedTuple):
    """Parameters and the optimiser that moves them."""

    parameters: Any
    moments: optax.OptState


def init(parameters: Any) -> Learner:
    """A learner at rest."""
    return Learner(parameters, optax.scale_by_adam().init(parameters))


def step(
    learner: Learner, gradient: Any, learning_rate: jax.Array | float, epsilon: float = 1e-5
) -> Learner:
    """One step of Adam against the gradient (ε = 1e-5 as in the authors' code of DISC)."""
    direction, moments = optax.scale_by_adam(eps=epsilon).update(gradient, learner.moments)
    parameters = jax.tree.map(lambda p, d: p - learning_rate * d, learner.parameters, direction)
    return Learner(parameters, moments)


def anneal(learning_rate: float, floor: float, step: int, horizon: int) -> float:
    """max(floor, β · (1 − step/horizon)): linear, and never below the floor."""
    return max(floor, learning_rate * (1.0 - step / horizon))
