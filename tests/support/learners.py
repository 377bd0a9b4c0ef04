"""Checks of learners: Adam's first step, target updates and loaded networks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from disc.learning import optim
from tests.support.compare import assert_close, assert_close_trees, assert_equal_trees
from tests.support.plain import doubles


def assert_gradient(after: optim.Learner, wanted: Any) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    assert after.moments.count == 1
    slopes = np.concatenate([np.ravel(x) for x in jax.tree.leaves(wanted)])
    assert np.mean(np.abs(slopes) > 1e-4) > 0.6, "too many units are dead for a test"
    assert_close_trees(jax.tree.map(lambda x: x / 0.1, after.moments.mu), wanted, atol=3e-6)


def assert_first_step(before: optim.Learner, after: optim.Learner, rate: float) -> None:
    """Adam's first step is the learning rate times minus the gradient's sign."""
    assert before.moments.count == 0
    for old, new, mean in zip(
        *map(jax.tree.leaves, (before.parameters, after.parameters, after.moments.mu)), strict=True
    ):
        steep = np.abs(mean) > 1e-5
        assert_close((new - old)[steep], -rate * np.sign(mean)[steep], rtol=2e-3, atol=0.0)
        np.testing.assert_array_equal(new[mean == 0.0], old[mean == 0.0])


def assert_follows(before: Any, after: Any, network: Any, tau: float) -> None:
    """The target moved by τ of the way to the network."""
    wanted = jax.tree.map(
        lambda old, new: old + tau * (new - old), *map(doubles, (before, network))
    )
    assert_close_trees(after, wanted, rtol=1e-6, atol=1e-7)
    assert np.any(jax.tree.leaves(after)[0] != jax.tree.leaves(before)[0])


def assert_moved(before: optim.Learner, after: optim.Learner) -> None:
    """Every array has changed somewhere."""
    for old, new in zip(*map(jax.tree.leaves, (before, after)), strict=True):
        assert np.any(new != old)


def assert_starts_from(state: Any, learned: Any, *more: str) -> Any:
    """The policy, critics and those named in `more` are loaded; returns the new state."""
    names = ("policy", "value", *more)
    parameters = {name: getattr(learned, name).parameters for name in names}
    state = state.start_from(parameters, state.normalizer)
    assert_equal_trees(state.parameters(), parameters)
    return state
