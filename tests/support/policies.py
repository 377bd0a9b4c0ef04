"""Policies of every kind with random networks, and inputs for them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from disc.envs.spaces import describe
from disc.learning.distribution import CategoricalPolicy
from disc.learning.networks import Linear, NormalizedLinear
from disc.policy.policies import Categorical, Deterministic, Policy, Sampler, Squashed
from tests.support.environments import Choosing

SHAPE, S, D, H = (2, 3), 6, 4, 7
LOW, HIGH = np.float32([-1.0, -0.4, 2.0, 0.0]), np.float32([3.0, 0.4, 10.0, 0.01])
KINDS = ["squashed", "deterministic", "normalized", "sampler"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind: str, seed: int = 0, reach: float = 1.0, **changes: Any) -> tuple[Any, Any]:
    """A policy, and the same network's layers for JAX; `reach` multiplies the head's weights."""
    rng = np.random.default_rng(seed)
    sizes = {"squashed": (S, H, H, 2 * D), "sampler": (S + D, H, H, D)}.get(kind, (S, H, H, D))
    layers: list[Any] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        weight, rest = rng.standard_normal((a, b)) / math.sqrt(a), rng.standard_normal((3, b))
        weight = weight * (reach if i == 2 else 1.0)
        arrays = [np.float32(weight), *np.float32(rest)]
        layers.append(
            NormalizedLinear(*arrays) if kind == "normalized" and i < 2 else Linear(*arrays[:2])
        )
    fields: dict[str, Any] = {
        "weights": tuple(layer.weight for layer in layers),
        "biases": tuple(layer.bias for layer in layers),
        "observation_mean": np.float32(rng.standard_normal(S)),
        "observation_inverse_std": np.float32(rng.uniform(0.5, 2.0, S)),
        "observation_shape": SHAPE,
        "action_low": LOW,
        "action_high": HIGH,
        "action_shape": (2, 2),
    }
    if kind in ("deterministic", "normalized"):
        fields["exploration"] = 0.3
    if kind == "normalized":
        fields["scales"] = tuple(layer.scale for layer in layers[:-1])
        fields["shifts"] = tuple(layer.shift for layer in layers[:-1])
    kinds: dict[str, type[Policy]] = {
        "squashed": Squashed,
        "sampler": Sampler,
        "deterministic": Deterministic,
        "normalized": Deterministic,
    }
    return kinds[kind](**{**fields, **changes}), tuple(layers)


def make_categorical(
    space: str, seed: int = 0, reach: float = 2.0
) -> tuple[Categorical, CategoricalPolicy]:
    """A policy for discrete actions, in numpy and for JAX."""
    rng, spec = np.random.default_rng(seed), describe(Choosing(space), "choosing")
    assert spec.choices is not None
    layers = tuple(
        Linear(jnp.float32(rng.standard_normal(shape) * reach / math.sqrt(shape[0])),
               jnp.float32(rng.standard_normal(shape[1])))
        for shape in ((S, H), (H, spec.outputs))
    )  # fmt: skip
    policy = CategoricalPolicy(layers, spec.choices.counts)
    fields = {
        "observation_mean": np.zeros(S, np.float32),
        "observation_inverse_std": np.ones(S, np.float32),
        "observation_shape": SHAPE,
        "action_low": spec.action_low,
        "action_high": spec.action_high,
        "action_shape": spec.action_shape,
    }
    return policy.acting(spec, fields), policy


def observations(count: int = 9, seed: int = 1, reach: float = 2.0) -> Any:
    return np.float32(reach * np.random.default_rng(seed).standard_normal((count, *SHAPE)))


def noise_of(count: int = 9, seed: int = 2) -> Any:
    return np.random.default_rng(seed).standard_normal((count, D)).astype(np.float32)


def contents(acting: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A policy file's tensors and header under their documented names."""
    tensors = {**acting.tensors()}
    groups = {"weight": acting.weights, "bias": acting.biases}
    if isinstance(acting, Deterministic):
        groups |= {"scale": acting.scales, "shift": acting.shifts}
    for name, arrays in groups.items():
        tensors |= {f"policy/{name}_{i}": array for i, array in enumerate(arrays)}
    return tensors, acting.header()
