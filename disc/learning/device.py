"""Arrays on the device, made without compiling.

`jnp.asarray` and `jnp.zeros` compile one small program for each new shape: tens of milliseconds
each, and an initial state has about twenty shapes.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def put(values: Any, dtype: Any = None) -> jax.Array:
    """The values on the device. They may share memory with `values`, which must not change."""
    return jax.device_put(np.asarray(values, dtype))


def zeros(*shape: int, dtype: Any = np.float32) -> jax.Array:
    """Zeros of a shape."""
    return put(np.zeros(shape, dtype))


def zeros_like(tree: Any) -> Any:
    """Zeros in the structure and shapes of a tree of arrays."""
    return jax.tree.map(lambda x: zeros(*x.shape, dtype=x.dtype), tree)
