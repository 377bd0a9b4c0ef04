"""K-FAC: the Fisher matrix of each layer as a Kronecker product, and the natural gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from disc.learning import device, memory, networks
from disc.learning.networks import MLP, Activation, Linear
from disc.learning.optim import Learner

# Martens and Grosse (2015), for layers y = [a, 1] W with W: (in + 1, out).
#
#   symbol  shape                 meaning
#   a       (M, in + 1)           inputs of the layer, and a 1 for the bias
#   g       (M, out)              gradient of each sample's log-likelihood at y
#   A       (in + 1, in + 1)      E[a aᵀ]
#   G       (out, out)            E[g gᵀ]
#   Q, e                          eigenvectors (in columns) and eigenvalues of A or G
#   ∇, U    (in + 1, out)         gradient of the loss, and natural gradient


class Factors(NamedTuple):
    """A layer's part of the Fisher matrix, A ⊗ G."""

    inputs: jax.Array  # A
    outputs: jax.Array  # G


class Basis(NamedTuple):
    """The eigendecompositions of a layer's factors."""

    inputs: jax.Array  # Q_A
    input_values: jax.Array  # e_A
    outputs: jax.Array  # Q_G
    output_values: jax.Array  # e_G


class Curvature(NamedTuple):
    """The state of K-FAC."""

    factors: tuple[Factors, ...]  # running averages
    bases: tuple[Basis, ...]  # their decompositions
    velocity: Any  # same structure as the parameters
    taken: jax.Array  # () int32, steps


def init(parameters: Any, mlp: MLP) -> Learner:
    """An initial learner, for K-FAC on `mlp`, which is all or part of `parameters`.

    Raises:
        DiscError: the factors do not fit into memory.
    """
    memory.check_factors((mlp[0].weight.shape[0], *(len(layer.bias) for layer in mlp)))
    sizes = [(layer.weight.shape[0] + 1, layer.weight.shape[1]) for layer in mlp]
    factors = tuple(Factors(device.zeros(i, i), device.zeros(o, o)) for i, o in sizes)
    bases = tuple(Basis(*_identity(i), *_identity(o)) for i, o in sizes)
    velocity = device.zeros_like(parameters)
    return Learner(parameters, Curvature(factors, bases, velocity, device.zeros(dtype=np.int32)))


def _identity(size: int) -> tuple[jax.Array, jax.Array]:
    """Eigenvectors and eigenvalues of the identity."""
    return device.put(np.eye(size, dtype=np.float32)), device.put(np.ones(size, np.float32))


def measure_factors(
    mlp: MLP, x: jax.Array, log_likelihood: Callable[[jax.Array], jax.Array], activation: Activation
) -> tuple[Factors, ...]:
    """A = E[a aᵀ] and G = E[g gᵀ] of every layer over one batch.

    Args:
        mlp: the network.
        x: its inputs, (M, in).
        log_likelihood: of each sample, given the network's outputs: (M, out) → (M,). The samples
            must be drawn from the model, or this is not the Fisher matrix.
        activation: the hidden layers' activation function.
    """
    count = len(x)
    offsets = tuple(jnp.zeros((count, layer.bias.shape[0])) for layer in mlp)

    def total(offsets: tuple[jax.Array, ...]) -> tuple[jax.Array, list[jax.Array]]:
        y, inputs = networks.forward_with_offsets(mlp, x, offsets, activation)
        return jnp.sum(log_likelihood(y)), inputs

    gradients, inputs = jax.grad(total, has_aux=True)(offsets)
    one = jnp.ones((count, 1))
    homogeneous = [jnp.concatenate([a, one], axis=1) for a in inputs]
    return tuple(
        Factors(a.T @ a / count, g.T @ g / count)
        for a, g in zip(homogeneous, gradients, strict=True)
    )


def follow(
    curvature: Curvature, measured: tuple[Factors, ...], decay: float, decompose_every: int
) -> Curvature:
    """Update the curvature with one more batch.

    This is done before the step, so that if a decomposition is due it covers the directions of
    the newest batch; along unknown directions only the damping limits a step. The first averages
    are plain means, so the initial zeros have no weight.

    Args:
        curvature: the old curvature.
        measured: the factors of this batch.
        decay: decay of the running averages.
        decompose_every: steps between eigendecompositions, starting with the first step.
    """
    seen = curvature.taken.astype(jnp.float32)
    keep = jnp.minimum(decay, seen / (seen + 1.0))
    factors = jax.tree.map(
        lambda old, new: keep * old + (1 - keep) * new, curvature.factors, measured
    )
    bases = jax.lax.cond(
        curvature.taken % decompose_every == 0,
        lambda: decompose(factors),
        lambda: curvature.bases,
    )
    return curvature._replace(factors=factors, bases=bases)


def decompose(factors: tuple[Factors, ...]) -> tuple[Basis, ...]:
    """Eigenvectors and eigenvalues of every factor; negative eigenvalues (rounding) become 0."""

    def eigen(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, vectors = jnp.linalg.eigh(matrix)
        return vectors, jnp.maximum(values, 0.0)

    return tuple(Basis(*eigen(f.inputs), *eigen(f.outputs)) for f in factors)


def precondition(bases: tuple[Basis, ...], gradient: MLP, damping: float) -> MLP:
    """U = Q_A [(Q_Aᵀ ∇ Q_G) / (e_A e_Gᵀ + damping)] Q_Gᵀ of every layer."""

    def layer(basis: Basis, gradient: Linear) -> Linear:
        nabla = jnp.concatenate([gradient.weight, gradient.bias[None]])
        rotated = basis.inputs.T @ nabla @ basis.outputs
        scaled = rotated / (jnp.outer(basis.input_values, basis.output_values) + damping)
        natural = basis.inputs @ scaled @ basis.outputs.T
        return Linear(natural[:-1], natural[-1])

    return tuple(layer(b, g) for b, g in zip(bases, gradient, strict=True))


def trust_factor(natural: Any, gradient: Any, rate: jax.Array | float, kl_clip: float) -> jax.Array:
    """ν = min(1, √(kl_clip / Σ rate² U·∇)), the sum over all parameters."""
    products = jax.tree.map(jnp.vdot, natural, gradient)
    size = jnp.square(rate) * sum(jax.tree.leaves(products))
    return jnp.minimum(1.0, jnp.sqrt(kl_clip / jnp.maximum(size, 1e-30)))


def step(learner: Learner, natural: Any, rate: jax.Array | float, momentum: float) -> Learner:
    """Move against U with momentum: v ← m v + (1 − m) U,  θ ← θ − rate · v.

    Args:
        learner: from `init`.
        natural: U times ν, with the parameters' structure.
        rate: step size.
        momentum: m.
    """
    curvature: Curvature = learner.moments
    velocity = jax.tree.map(
        lambda v, u: momentum * v + (1 - momentum) * u, curvature.velocity, natural
    )
    parameters = jax.tree.map(lambda p, v: p - rate * v, learner.parameters, velocity)
    return Learner(parameters, curvature._replace(velocity=velocity, taken=curvature.taken + 1))
