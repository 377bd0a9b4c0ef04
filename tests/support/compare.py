"""Comparisons of arrays and of trees of arrays."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def assert_close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def assert_close_trees(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert_close(x, y, rtol, atol)


def assert_equal_trees(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(x, y)


def bits(tree: Any) -> list[Any]:
    """All bits, so that −0 differs from 0 and one NaN from another."""
    arrays = map(np.asarray, jax.tree.leaves(tree))
    return [(x.dtype, x.shape, x.tobytes()) for x in arrays]
