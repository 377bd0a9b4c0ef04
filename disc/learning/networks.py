"""Multilayer perceptrons as plain tuples of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from disc.learning import device, memory
from disc.policy.policies import LAYER_NORM_EPSILON


class Linear(NamedTuple):
    """One dense layer: y = x @ weight + bias."""

    weight: jax.Array  # (in, out)
    bias: jax.Array  # (out,)


class NormalizedLinear(NamedTuple):
    """A dense layer with layer normalisation (Ba et al., 2016)."""

    weight: jax.Array  # (in, out)
    bias: jax.Array  # (out,)
    scale: jax.Array  # (out,)
    shift: jax.Array  # (out,)


MLP = tuple[Linear, ...]
Layers = Sequence[Linear | NormalizedLinear]
Activation = Callable[[jax.Array], jax.Array]


def init_mlp(rng: np.random.Generator, sizes: Sequence[int], head_gain: float) -> MLP:
    """Orthogonal weights of gain √2 (the head: `head_gain`), zero biases.

    Args:
        rng: the source of randomness.
        sizes: widths, input and output included.
        head_gain: gain of the last layer: 0.01 for a policy's mean, 1 for a value.
    """
    memory.check_layers(sizes)
    gains = [np.sqrt(2.0)] * (len(sizes) - 2) + [head_gain]
    return tuple(
        Linear(device.put(orthogonal(rng, rows, columns, gain)), device.zeros(columns))
        for rows, columns, gain in zip(sizes[:-1], sizes[1:], gains, strict=True)
    )


def init_uniform(
    rng: np.random.Generator, sizes: Sequence[int], head_bound: float | None = None
) -> MLP:
    """Weights uniform within ±√(6 / (in + out)) (Glorot and Bengio, 2010), zero biases.

    Args:
        rng: the source of randomness.
        sizes: widths, input and output included.
        head_bound: bound of the last layer's weights and biases, if given.
    """
    memory.check_layers(sizes)
    layers = []
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        head = head_bound if i == len(sizes) - 2 else None
        bound = np.sqrt(6.0 / (rows + columns)) if head is None else head
        weight = rng.uniform(-bound, bound, (rows, columns))
        bias = rng.uniform(-(head or 0.0), head or 0.0, columns)
        layers.append(Linear(device.put(weight, np.float32), device.put(bias, np.float32)))
    return tuple(layers)


def orthogonal(
    rng: np.random.Generator, rows: int, columns: int, gain: float
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """A random (rows, columns) matrix whose shorter side is orthonormal, times `gain`."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # makes the distribution uniform over orthogonal matrices
    return np.ascontiguousarray(gain * (q if rows >= columns else q.T), np.float32)


def forward(mlp: Layers, x: jax.Array, activation: Activation = jnp.tanh) -> jax.Array:
    """Hidden layers with `activation` and a linear head: (..., in) → (..., out)."""
    for layer in mlp[:-1]:
        x = activation(_finish(layer, x @ layer.weight))
    return _finish(mlp[-1], x @ mlp[-1].weight)


def forward_pairs(mlp: Layers, first: jax.Array, second: jax.Array) -> jax.Array:
    """A ReLU network of two inputs.

    The second input is concatenated to the first, or to the output of the first hidden layer,
    depending on the shapes of the weights.

    Args:
        mlp: (A + B) → … → out, or A → H, (H + B) → … → out.
        first: (M, A).
        second: (M, B), or (M, K, B) for K second inputs per first input.

    Returns:
        (M, out) or (M, K, out).
    """
    x, entry = first, int(mlp[0].weight.shape[0] == first.shape[-1])
    if second.ndim == first.ndim and not entry:
        return forward(mlp, jnp.concatenate([first, second], axis=-1), jax.nn.relu)
    for i, layer in enumerate(mlp):
        if i == entry:  # [x, second] W without repeating x K times
            product = x @ layer.weight[: x.shape[-1]]
            pairs = second.reshape(-1, second.shape[-1]) @ layer.weight[x.shape[-1] :]
            if second.ndim > first.ndim:
                shape = (*second.shape[:-1], product.shape[-1])
                product = jnp.broadcast_to(product[:, None], shape).reshape(pairs.shape)
            product = product + pairs
        else:
            product = x @ layer.weight
        x = _finish(layer, product)
        x = jax.nn.relu(x) if i < len(mlp) - 1 else x
    return x.reshape(*second.shape[:-1], -1)


def q_value(mlp: Layers, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Q(s, a): (M, S), (M, D) → (M,), or (M, K, D) → (M, K) with K actions per state."""
    return forward_pairs(mlp, observation, action)[..., 0]


def _finish(layer: Linear | NormalizedLinear, product: jax.Array) -> jax.Array:
    """A layer's output, given `product`, its inputs times its weights, (..., out)."""

    def row(x: jax.Array) -> jax.Array:
        return x.reshape((1,) * (product.ndim - 1) + (-1,))

    y = product + row(layer.bias)
    if isinstance(layer, Linear):
        return y
    centered = y - jnp.mean(y, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
    y = centered * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return y * row(layer.scale) + row(layer.shift)


def forward_with_offsets(
    mlp: MLP, x: jax.Array, offsets: Sequence[jax.Array], activation: Activation
) -> tuple[jax.Array, list[jax.Array]]:
    """`forward` with an offset added to each layer's output, for differentiation.

    Args:
        mlp: the network.
        x: (M, in).
        offsets: (M, out) for each layer.
        activation: the hidden layers' activation function.

    Returns:
        The network's outputs (M, out), and the inputs of each layer.
    """
    inputs = []
    for i, (layer, offset) in enumerate(zip(mlp, offsets, strict=True)):
        x = activation(x) if i else x
        inputs.append(x)
        x = x @ layer.weight + layer.bias[None] + offset
    return x, inputs
