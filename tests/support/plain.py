"""Reference networks and derivatives in NumPy and double precision."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def doubles(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, bool if x.dtype == bool else np.float64), tree)


def run(network: Any, x: Any, beside: Any = None, entry: int = 0) -> Any:
    """ReLU layers, (..., in) → (..., out); `beside` is appended to the input of layer `entry`."""
    for i, layer in enumerate(network):
        if beside is not None and i == entry:
            x = np.concatenate([x, beside], axis=-1)
        x = x @ layer.weight + layer.bias
        if len(layer) == 4:
            mean, variance = np.mean(x, axis=1), np.var(x, axis=1)
            x = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-6) * layer.scale + layer.shift
        if i < len(network) - 1:
            x = np.maximum(x, 0.0)
    return x


def q(critic: Any, x: Any, action: Any, entry: int = 0) -> Any:
    return run(critic, x, action, entry)[..., 0]


def least(critics: Any, x: Any, action: Any) -> Any:
    """The minimum of two critics, each of which is smaller somewhere."""
    first, second = (q(critic, x, action) for critic in critics)
    assert 0 < np.sum(first < second) < len(first), "one critic alone decides"
    return np.where(first < second, first, second)


def targets(batch: Any, following: Any, gamma: float, scale: float = 1.0) -> Any:
    """c·r + γ V(s'), row by row."""
    return np.array(
        [
            scale * reward + (0.0 if final else gamma * value)
            for reward, final, value in zip(batch.reward, batch.final, following, strict=True)
        ]
    )


def squares(critics: Any, batch: Any, y: Any, entry: int = 0) -> Any:
    """Σ_i mean (Q_i(s, a) − y)²."""
    found = (q(critic, batch.observation, batch.action, entry) for critic in critics)
    return sum(np.mean((x - y) ** 2) for x in found)


def differences(function: Any, tree: Any, step: float = 1e-6) -> Any:
    """Central differences by every entry of a tree of arrays."""
    tree = jax.tree.map(np.array, tree)
    leaves, structure = jax.tree.flatten(tree)
    slopes = [np.zeros(leaf.shape) for leaf in leaves]
    for leaf, slope in zip(leaves, slopes, strict=True):
        for index in np.ndindex(leaf.shape):
            before, ends = leaf[index], []
            for moved in (before + step, before - step):
                leaf[index] = moved
                ends.append(function(tree))
            leaf[index] = before
            slope[index] = (ends[0] - ends[1]) / (2.0 * step)
    return jax.tree.unflatten(structure, slopes)


# Activations and their derivatives


def elu(x: Any) -> Any:
    return np.where(x > 0.0, x, np.exp(np.minimum(x, 0.0)) - 1.0)


def elu_slope(x: Any) -> Any:
    return np.where(x > 0.0, 1.0, np.exp(np.minimum(x, 0.0)))


def tanh_slope(x: Any) -> Any:
    return 1.0 - np.tanh(x) ** 2
