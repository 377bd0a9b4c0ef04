"""Multilayer perceptrons as plain tuples of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Linear(NamedTuple):
    """One dense layer: y = x @ weight + bias."""

    weight: jax.Array  # (in, out)
    bias: jax.Array  # (out,)


MLP = tuple[Linear, ...]
Activation = Callable[[jax.Array], jax.Array]


class GaussianPolicy(NamedTuple):
    """π(a|s) = N(u(s), diag σ²): a mean network and a free log-std."""

    mean: MLP  # S → D
    log_std: jax.Array  # (D,)


def init_mlp(rng: np.random.Generator, sizes: Sequence[int], head_gain: float) -> MLP:
    """Orthogonal weights of gain √2 (the head: `head_gain`), zero biases.

    Args:
        rng: the source of randomness.
        sizes: widths, input and output included.
        head_gain: gain of the last layer: 0.01 for a policy's mean, 1 for a value.
    """
    gains = [np.sqrt(2.0)] * (len(sizes) - 2) + [head_gain]
    return tuple(
        Linear(jnp.asarray(orthogonal(rng, rows, columns, gain)), jnp.zeros(columns, jnp.float32))
        for rows, columns, gain in zip(sizes[:-1], sizes[1:], gains, strict=True)
    )


def orthogonal(
    rng: np.random.Generator, rows: int, columns: int, gain: float
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """A random (rows, columns) matrix whose shorter side is orthonormal, times `gain`."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # makes the distribution uniform over orthogonal matrices
    return np.ascontiguousarray(gain * (q if rows >= columns else q.T), np.float32)


def forward(mlp: MLP, x: jax.Array, activation: Activation = jnp.tanh) -> jax.Array:
    """Hidden layers, tanh unless told otherwise, and a linear head: (..., in) → (..., out)."""
    for layer in mlp[:-1]:
        x = activation(x @ layer.weight + layer.bias[None])
    return x @ mlp[-1].weight + mlp[-1].bias[None]


def forward_with_offsets(
    mlp: MLP, x: jax.Array, offsets: Sequence[jax.Array], activation: Activation
) -> tuple[jax.Array, list[jax.Array]]:
    """`forward` with something added to each layer's output, to differentiate by.

    Args:
        mlp: the network.
        x: (M, in).
        offsets: (M, out) for each layer.
        activation: of the hidden layers.

    Returns:
        The network's outputs (M, out), and the inputs of each layer.
    """
    inputs = []
    for i, (layer, offset) in enumerate(zip(mlp, offsets, strict=True)):
        x = activation(x) if i else x
        inputs.append(x)
        x = x @ layer.weight + layer.bias[None] + offset
    return x, inputs
