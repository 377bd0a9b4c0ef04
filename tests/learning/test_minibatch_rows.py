"""The rows of minibatches."""

from __future__ import annotations

import numpy as np
import pytest

from disc.learning import minibatch
from tests.support.minibatch import AGES, NEWEST, ROWS, STEPS, L, N, draw, include


def test_every_epoch_uses_each_row_of_the_newest_batch_once() -> None:
    drawn = draw(3, epochs=5)
    epochs = drawn.rows[:, :ROWS].reshape(5, N)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(NEWEST * N + np.arange(N), (5, 1)))
    assert len({tuple(epoch) for epoch in epochs}) == 5


@pytest.mark.parametrize("n", range(1, L + 1))
def test_old_rows_come_from_included_batches(n: int) -> None:
    drawn = draw(n, epochs=50)
    assert drawn.batches == n
    old = drawn.rows[:, ROWS : n * ROWS]
    assert set(np.unique(old // N)) == set(np.flatnonzero(include(n))) - {NEWEST}


def test_old_rows_are_drawn_uniformly() -> None:
    """χ² with 95 degrees of freedom is 95 ± 14."""
    old = draw(4, epochs=100).rows[:, ROWS : 4 * ROWS]
    counts = np.bincount(old.ravel(), minlength=L * N).reshape(L, N)
    counts = counts[include(4) & (AGES > 0)]
    expected = old.size / counts.size
    assert 50 < np.sum((counts - expected) ** 2) / expected < 150


def test_shape_does_not_depend_on_the_included_batches() -> None:
    assert len({draw(n).rows.shape for n in range(1, L + 1)}) == 1


@pytest.mark.parametrize("n", range(1, L + 1))
def test_old_rows_are_limited_but_come_from_all_included_batches(n: int) -> None:
    drawn = draw(n, epochs=50, most=2)
    assert drawn.batches == min(n, 3)
    old = drawn.rows[:, ROWS : drawn.batches * ROWS]
    assert set(np.unique(old // N)) == set(np.flatnonzero(include(n))) - {NEWEST}
    assert drawn.rows.shape[1] == 3 * ROWS


def test_no_old_rows_are_drawn_if_none_are_allowed() -> None:
    drawn = draw(L, most=0)
    assert drawn.batches == 1
    assert drawn.rows.shape == (STEPS, ROWS)


def test_empty_slots_are_never_drawn() -> None:
    ages, included = np.int32([1, 0, -1, -1]), np.ones(4, bool)
    drawn = minibatch.draw(np.random.default_rng(0), ages, included, N, 20, STEPS)
    assert drawn.batches == 2
    assert np.all(drawn.rows < 2 * N)


def test_replay_of_one_batch_has_no_padding() -> None:
    drawn = minibatch.draw(np.random.default_rng(0), np.int32([0]), np.ones(1, bool), N, 1, STEPS)
    assert drawn.batches == 1
    assert drawn.rows.shape == (STEPS, ROWS)
