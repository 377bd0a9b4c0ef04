"""TRPO's line search: accepted and rejected step lengths."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from disc.algos import trpo
from tests.support.compare import bits


def search(judge: Any, full: float = 1.0, limit: float = 1.0, steps: int = 10) -> tuple[Any, Any]:
    """From θ = (0, 3) along the first axis; `judge` gets the first coordinate."""
    theta, direction = jnp.float32([0.0, 3.0]), jnp.float32([full, 0.0])
    found, fraction = trpo.line_search(lambda t: judge(t[0]), theta, direction, limit, steps)
    assert found[1] == 3.0
    assert found[0] == fraction * full
    return float(found[0]), float(fraction)


def only(*good: float) -> Any:
    """An objective that is better at these points and worse elsewhere."""

    def judge(x: Any) -> tuple[Any, Any]:
        better = jnp.any(x == jnp.float32(good))
        return jnp.where(x == 0.0, 0.0, jnp.where(better, 1.0, -1.0)), jnp.zeros(())

    return judge


@pytest.mark.parametrize("halvings", range(5))
def test_step_lengths_are_halved(halvings: int) -> None:
    assert search(only(2.0 * 0.5**halvings), full=2.0) == (2.0 * 0.5**halvings, 0.5**halvings)


def test_longest_acceptable_step_is_taken() -> None:
    assert search(only(0.5, 0.125)) == (0.5, 0.5)
    assert search(only(0.75, 0.3, 0.125)) == (0.125, 0.125)  # the others are never tried


@pytest.mark.parametrize(("steps", "wanted"), [(1, 0.0), (3, 0.0), (4, 0.125)])
def test_number_of_tried_lengths_is_limited(steps: int, wanted: float) -> None:
    assert search(only(0.125), steps=steps) == (wanted, wanted)


def test_kl_limit_is_respected() -> None:
    """KL = 4x², at most 1: x = ½ is just allowed."""
    assert search(lambda x: (x, 4.0 * x**2)) == (0.5, 0.5)
    assert search(lambda x: (x, 4.0 * x**2), limit=0.999) == (0.25, 0.25)
    assert search(lambda x: (x, 5.0 + x), limit=4.0) == (0.0, 0.0)


def test_equal_objective_is_accepted() -> None:
    assert search(lambda x: (7.0 + 0.0 * x, x)) == (1.0, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_objective_is_rejected(bad: float) -> None:
    assert search(lambda x: (jnp.where(x > 0.3, bad, x), x)) == (0.25, 0.25)
    assert search(lambda x: (jnp.where(x > 0.0, bad, x), x)) == (0.0, 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_kl_is_rejected(bad: float) -> None:
    assert search(lambda x: (x, jnp.where(x > 0.3, bad, x))) == (0.25, 0.25)


@pytest.mark.parametrize("full", [1.0, np.nan, np.inf])
def test_failed_search_returns_the_start(full: float) -> None:
    theta = jnp.float32([-0.0, 1.0 / 3.0, -1e30, 0.1])
    found, fraction = trpo.line_search(
        lambda t: (-jnp.sum(jnp.abs(t - theta)), jnp.zeros(())), theta, full * theta, 1.0, 4
    )
    assert bits(found) == bits(theta)
    assert fraction == 0.0
