"""Random networks in which no bias is 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from disc.learning import device, networks
from disc.learning.networks import Linear, NormalizedLinear


def perceptron(
    rng: np.random.Generator, *sizes: int, gain: float = 0.7, spread: float = 0.3
) -> networks.MLP:
    """An initial network with random biases; `gain` is the head's."""
    mlp = networks.init_mlp(rng, sizes, head_gain=gain)
    return tuple(
        Linear(w, device.put(spread * rng.standard_normal(len(b)), np.float32)) for w, b in mlp
    )


def layers(seed: int, *shapes: tuple[int, int], normalized: bool = False) -> Any:
    """A network without zeros or ones; if `normalized`, all layers but the last are."""
    rng = np.random.default_rng(seed)
    result: list[Any] = []
    for i, (rows, columns) in enumerate(shapes):
        weight = rng.standard_normal((rows, columns)) * 1.3 / np.sqrt(rows)
        bias, scale, shift = 0.3 * rng.standard_normal((3, columns))
        arrays = [np.float32(x) for x in (weight, bias, 1.0 + scale, shift)]
        hidden = normalized and i < len(shapes) - 1
        result.append(NormalizedLinear(*arrays) if hidden else Linear(*arrays[:2]))
    return tuple(result)
