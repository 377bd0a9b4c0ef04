"""Path consistency against hand calculations and double loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.equations import path_consistency

GAMMA, ROWS, T = 0.9, 40, 6
LENGTHS = pytest.mark.parametrize("d", [*range(1, T + 1), T + 3])


# Compiled as a whole, which is quicker than one operation at a time.
path_sum = jax.jit(path_consistency.path_sum, static_argnames=("gamma", "d"))


@partial(jax.jit, static_argnames=("gamma", "d"))
def residual(
    reward: Any, value: Any, next_value: Any, terminated: Any, end: Any, gamma: float, d: int
) -> Any:
    """Takes the values of all next states and reads the one at the end of each path."""
    following = jnp.where(terminated, 0.0, next_value)
    last = jnp.take_along_axis(following, path_consistency.path_end(end, d), axis=1)
    start = path_consistency.path_start(end, d, stride=1)
    return path_consistency.residual(reward, value, last, start, end, gamma, d)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-5)


# By hand, with γ = ½

REWARD = np.float32([1, 2, 4, 8])
VALUE = np.float32([1, -1, 2, 3])
NEXT_VALUE = np.float32([-2, 6, 10, 16])


def worked(d: int, terminated: int | None = None, end: int | None = None, **columns: Any) -> Any:
    """C of the chunk above, (4,); `terminated` and `end` are steps that end an episode."""
    arrays = {"reward": REWARD, "value": VALUE, "next_value": NEXT_VALUE, **columns}
    time = np.arange(4)
    flags = time == terminated, (time == terminated) | (time == end) | (time == 3)
    batch = [jnp.asarray(x)[None] for x in (*arrays.values(), *flags)]
    return np.asarray(residual(*batch, gamma=0.5, d=d))[0]


@pytest.mark.parametrize(
    ("d", "wanted"),
    [
        # −1 + 1 − ½·2,  1 + 2 + ½·6,  −2 + 4 + ½·10,  −3 + 8 + ½·16
        (1, [-1, 6, 7, 13]),
        # −1 + 1 + ½·2 + ¼·6,  1 + 2 + ½·4 + ¼·10,  −2 + 4 + ½·8 + ¼·16; the end: as for d = 1
        (2, [2.5, 7.5, 10, 13]),
        # −1 + 1 + ½·2 + ¼·4 + ⅛·10,  1 + 2 + ½·4 + ¼·8 + ⅛·16
        (3, [3.25, 9, 10, 13]),
        # −1 + 1 + ½·2 + ¼·4 + ⅛·8 + 16/16
        (4, [4, 9, 10, 13]),
    ],
)
def test_residual_within_one_episode_matches_hand_calculation(d: int, wanted: list[float]) -> None:
    np.testing.assert_array_equal(worked(d), wanted)


@pytest.mark.parametrize(
    ("d", "wanted"),
    [
        (1, [-1, 3, 7, 13]),
        (2, [-1 + 1 + 0.5 * 2, 3, 10, 13]),
        (4, [1, 3, 10, 13]),
    ],
)
def test_terminal_state_has_no_next_value(d: int, wanted: list[float]) -> None:
    """Step 1 is the last of its episode: 1 + 2 = 3. Its next value is not read."""
    unread = np.float32([-2, np.nan, 10, 16])
    np.testing.assert_array_equal(worked(d, terminated=1, next_value=unread), wanted)


@pytest.mark.parametrize(
    ("d", "wanted"),
    [
        (1, [-1, 6, 7, 13]),
        (2, [2.5, 6, 10, 13]),
        (4, [2.5, 6, 10, 13]),
    ],
)
def test_other_ends_bootstrap_from_the_next_value(d: int, wanted: list[float]) -> None:
    """At a time limit or a border: −1 + 1 + ½·2 + ¼·6 = 2½ and 1 + 2 + ½·6 = 6."""
    np.testing.assert_array_equal(worked(d, end=1), wanted)


def test_chunk_may_contain_several_episodes() -> None:
    """Steps 0 and 2 end theirs: −1 + 1,  1 + 2 + ½·4 + ¼·10,  −2 + 4 + ½·10,  −3 + 8 + ½·16."""
    np.testing.assert_array_equal(worked(4, terminated=0, end=2), [0, 7.5, 7, 13])


def test_last_state_of_a_chunk_may_be_terminal() -> None:
    """−1 + 1 + 1 + 1 + 1,  1 + 2 + 2 + 2,  −2 + 4 + 4,  −3 + 8."""
    np.testing.assert_array_equal(worked(4, terminated=3), [3, 7, 6, 5])


def test_path_sum_matches_hand_calculation() -> None:
    """γ = ½, an episode of two steps and one of three: 1 + ½·2, 2 and 4 + ½·8 + ¼·16, 8 + …, 16."""
    x, end = jnp.float32([[1, 2, 4, 8, 16]]), jnp.array([[False, True, False, False, True]])
    for d, wanted in ((1, [1, 2, 4, 8, 16]), (2, [2, 2, 8, 16, 16]), (5, [2, 2, 12, 16, 16])):
        np.testing.assert_array_equal(path_sum(x, end, 0.5, d)[0], wanted)


# By double loops


class Chunks:
    """Random chunks with ends of every kind, and their sums by definition."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.reward, self.value, self.next_value = rng.standard_normal((3, ROWS, T))
        self.terminated, stopped = rng.random((2, ROWS, T)) < 0.15
        self.end = self.terminated | stopped
        self.end[:, -1] = True

    def arguments(self, **columns: Any) -> tuple[Any, ...]:
        names = ("reward", "value", "next_value", "terminated", "end")
        arrays = {name: columns.get(name, getattr(self, name)) for name in names}
        return tuple(
            jnp.asarray(x, None if x.dtype == bool else jnp.float32) for x in arrays.values()
        )

    def path(self, row: int, t: int, d: int) -> range:
        """Steps of the path from t."""
        last = t
        while last < t + d - 1 and not self.end[row, last]:
            last += 1
        return range(t, last + 1)

    def sums(self, x: Any, d: int) -> Any:
        result = np.zeros((ROWS, T))
        for row, t in np.ndindex(ROWS, T):
            for i, step in enumerate(self.path(row, t, d)):
                result[row, t] += GAMMA**i * x[row, step]
        return result

    def residuals(self, d: int) -> tuple[Any, Any]:
        """C, and which next values are read for it."""
        result, read = self.sums(self.reward, d) - self.value, np.zeros((ROWS, T), bool)
        for row, t in np.ndindex(ROWS, T):
            path = self.path(row, t, d)
            last = path[-1]
            if not self.terminated[row, last]:
                result[row, t] += GAMMA ** len(path) * self.next_value[row, last]
                read[row, last] = True
        return result, read


def test_sample_chunks_contain_every_kind_of_path() -> None:
    chunks = Chunks(0)
    lengths = {len(chunks.path(row, t, T)) for row, t in np.ndindex(ROWS, T)}
    assert lengths == set(range(1, T + 1))
    inside = np.s_[:, :-1]
    assert np.any(chunks.terminated[inside])
    assert np.any((chunks.end & ~chunks.terminated)[inside])
    assert np.any(chunks.terminated[:, -1])


@LENGTHS
def test_path_sum_matches_a_double_loop(d: int) -> None:
    chunks = Chunks(d)
    x, end = (chunks.arguments()[i] for i in (0, 4))
    assert_close(path_sum(x, end, GAMMA, d), chunks.sums(chunks.reward, d))


@LENGTHS
def test_residual_matches_a_double_loop(d: int) -> None:
    chunks = Chunks(d)
    found = residual(*chunks.arguments(), GAMMA, d)
    assert_close(found, chunks.residuals(d)[0])


@LENGTHS
def test_only_the_value_at_the_end_of_a_path_is_read(d: int) -> None:
    chunks = Chunks(d)
    wanted, read = chunks.residuals(d)
    assert not np.all(read)
    arguments = chunks.arguments(next_value=np.where(read, chunks.next_value, np.nan))
    assert_close(residual(*arguments, GAMMA, d), wanted)


@LENGTHS
def test_nothing_after_the_episode_is_read(d: int) -> None:
    chunks = Chunks(d)
    wanted, _ = chunks.residuals(d)
    after = np.cumsum(chunks.end, axis=1) - chunks.end > 0  # excludes the first end
    columns = {n: np.where(after, np.nan, getattr(chunks, n)) for n in ("reward", "next_value")}
    found = np.asarray(residual(*chunks.arguments(**columns), GAMMA, d))
    assert_close(found[~after], wanted[~after])


@LENGTHS
def test_nothing_beyond_a_chunk_or_before_a_path_is_read(d: int) -> None:
    """If indices wrapped around, the first step would follow the last."""
    chunks = Chunks(d)
    wanted, _ = chunks.residuals(d)
    first = np.arange(T)[None] == 0
    names = ("reward", "value", "next_value")
    columns = {n: np.where(first, np.nan, getattr(chunks, n)) for n in names}
    found = residual(*chunks.arguments(**columns), GAMMA, d)
    assert_close(found[:, 1:], wanted[:, 1:])


def test_residual_of_one_step_chunks_matches_hand_calculation() -> None:
    """−V + r + γ V' and −V + r."""
    columns = jnp.float32([[[1.0], [1.0]], [[5.0], [5.0]], [[10.0], [10.0]]])
    flags = jnp.array([[False], [True]]), jnp.ones((2, 1), bool)
    assert_close(residual(*columns, *flags, GAMMA, 1), [[-5.0 + 1.0 + 9.0], [-4.0]])
