"""The ring buffer of chunks: storage, files and draws weighted by recency."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disc.learning import replay as replays
from disc.learning.types import ChunkReplay
from disc.run import checkpoint
from disc.types import Rollout
from tests.support.compare import bits
from tests.support.rollouts import rollout_of, spec, walk

T, S, D, LENGTH = 3, 2, 1, 5
SPEC = spec(S, D)
SHAPES = {
    "observation": (T, S),
    "next_observation": (T, S),
    "action": (T, D),
    "reward": (T,),
    "terminated": (T,),
    "truncated": (T,),
    "border": (T,),
}
FLAGS = ("terminated", "truncated", "border")


def empty() -> ChunkReplay:
    return replays.init_chunks(LENGTH, T, SPEC)


def marked(name: str, chunk: int) -> Any:
    """A field's array that encodes its field, chunk and steps."""
    number = list(SHAPES).index(name)
    if name in FLAGS:
        return (chunk >> np.arange(T) + number - 4) % 2 == 1
    shape = SHAPES[name]
    return np.float32(100 * chunk + 10 * number + np.arange(np.prod(shape))).reshape(shape)


def marked_rollout(first: int, count: int) -> Rollout:
    chunks = range(first, first + count)
    return rollout_of({n: np.concatenate([marked(n, c) for c in chunks]) for n in SHAPES})


def assert_holds(replay: ChunkReplay, slot: int, chunk: int) -> None:
    for name in SHAPES:
        np.testing.assert_array_equal(getattr(replay, name)[slot], marked(name, chunk))


# The ring


def test_empty_replay_holds_nothing() -> None:
    replay = empty()
    assert replay.filled == 0
    np.testing.assert_array_equal(replay.number, [-1] * LENGTH)
    assert {n: getattr(replay, n).shape for n in SHAPES} == {
        n: (LENGTH, *shape) for n, shape in SHAPES.items()
    }


@pytest.mark.parametrize("count", [1, 2, LENGTH])
def test_ring_keeps_the_newest_chunks(count: int) -> None:
    replay = empty()
    for first in range(0, 3 * LENGTH + 2, count):
        replay = replays.push_chunks(replay, marked_rollout(first, count))
        pushed = first + count
        numbers = np.asarray(replay.number)
        assert replay.filled == min(pushed, LENGTH)
        stored = list(range(max(0, pushed - LENGTH), pushed))
        assert sorted(numbers[numbers >= 0]) == stored
        assert np.all(numbers[: replay.filled] >= 0)
        for chunk in stored:
            slot = int(np.flatnonzero(numbers == chunk)[0])
            assert slot == chunk % LENGTH
            assert_holds(replay, slot, chunk)


@pytest.mark.parametrize("before", [0, 2, LENGTH, LENGTH + 2])
def test_too_long_rollout_keeps_its_newest_chunks(before: int) -> None:
    replay = empty()
    for chunk in range(before):
        replay = replays.push_chunks(replay, marked_rollout(chunk, 1))
    last = before + LENGTH + 2
    replay = replays.push_chunks(replay, marked_rollout(before, LENGTH + 2))
    for chunk in (last, last + 1):
        order = np.argsort(replay.number)
        np.testing.assert_array_equal(np.diff(np.asarray(replay.number)[order]), [1] * 4)
        for place, slot in enumerate(order):
            assert_holds(replay, int(slot), chunk - LENGTH + place)
        replay = replays.push_chunks(replay, marked_rollout(chunk, 1))


def test_replay_with_one_slot_keeps_the_newest_chunk() -> None:
    replay = replays.init_chunks(1, T, SPEC)
    for first in (0, 3, 6):
        replay = replays.push_chunks(replay, marked_rollout(first, 3))
        assert_holds(replay, 0, first + 2)
    assert replay.filled == 1


# The file


def wandering(rng: np.random.Generator, counts: list[int], reset: float) -> ChunkReplay:
    """Rollouts of one environment with these numbers of chunks, each continuing the last."""
    replay, here = empty(), np.float32(rng.standard_normal(S))
    for count in counts:
        columns, here = walk(rng, here, count * T, D, reset)
        replay = replays.push_chunks(replay, rollout_of(columns))
    return replay


HISTORIES = pytest.mark.parametrize(
    "counts", [[], [1], [3], [2, 2], [LENGTH], [4, 4], [2, 2, 2, 2, 2, 2], [LENGTH + 2], [1, 7]]
)


@pytest.mark.parametrize("reset", [0.0, 0.2, 1.0])
@HISTORIES
def test_unpack_undoes_pack(rng: np.random.Generator, counts: list[int], reset: float) -> None:
    replay = wandering(rng, counts, reset)
    packed = checkpoint.pack(replay)
    assert len(packed["number"]) == min(sum(counts), LENGTH)
    assert bits(checkpoint.unpack(packed, empty())) == bits(replay)


def test_sign_of_zero_survives_the_file() -> None:
    """The next row's observation equals this next observation, but has other bits."""
    columns = {n: np.zeros((LENGTH * T, *SHAPES[n][1:]), np.float32) for n in SHAPES}
    columns |= {name: columns[name].astype(bool) for name in FLAGS}
    columns["next_observation"][::2] = -0.0
    replay = replays.push_chunks(empty(), rollout_of(columns))
    assert bits(checkpoint.unpack(checkpoint.pack(replay), empty())) == bits(replay)


@HISTORIES
def test_unpacked_replay_continues_identically(rng: np.random.Generator, counts: list[int]) -> None:
    replay = wandering(rng, counts, 0.2)
    packed = checkpoint.pack(replay)
    restored = checkpoint.unpack(packed, empty())
    for first, count in ((0, 2), (2, 1), (3, 2)):
        replay, restored = (
            replays.push_chunks(x, marked_rollout(first, count)) for x in (replay, restored)
        )
        assert bits(restored) == bits(replay)


def test_push_does_not_change_packed_arrays(rng: np.random.Generator) -> None:
    """A push writes in place; arrays being saved must not share that memory."""
    replay = wandering(rng, [LENGTH], 0.2)
    packed = checkpoint.pack(replay)
    before = {name: array.tobytes() for name, array in packed.items()}
    replays.push_chunks(replay, marked_rollout(0, 2)).reward.block_until_ready()
    assert {name: array.tobytes() for name, array in packed.items()} == before


def test_pack_is_smaller_than_storing_next_observations(rng: np.random.Generator) -> None:
    """Only the newest row's next observation is stored, and one more after wrapping around."""
    for counts, jumps in (([LENGTH], 1), ([LENGTH, 2], 2), ([2], 1)):
        packed = checkpoint.pack(wandering(rng, counts, 0.0))
        assert "next_observation" not in packed
        assert len(packed["jump_row"]) == jumps


# The draw


def drawn_counts(number: Any, alpha: float, draws: int = 100_000) -> Any:
    drawn = replays.draw_recent(
        np.random.default_rng(1), np.asarray(number, np.int32), alpha, (draws // 10, 10)
    )
    assert drawn.shape == (draws // 10, 10)
    assert drawn.dtype == np.int32
    assert np.min(drawn) >= 0
    counts = np.bincount(drawn.ravel(), minlength=len(number))
    assert len(counts) == len(number)
    return counts


def chi_square(counts: Any, probability: Any) -> float:
    expected = np.sum(counts) * np.asarray(probability) / np.sum(probability)
    stored = expected > 0
    assert not np.any(counts[~stored])
    return float(np.sum((counts - expected)[stored] ** 2 / expected[stored]))


WRAPPED = [*range(40, 55), *range(15, 40)]


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("number", [list(range(40)), WRAPPED], ids=["filled", "wrapped"])
def test_recent_chunks_are_drawn_more_often(number: list[int], alpha: float) -> None:
    """χ² with 39 degrees of freedom is 39 ± 9; at α = 0 it is that of the uniform distribution."""
    counts = drawn_counts(number, alpha)
    assert 15 < chi_square(counts, [np.exp(alpha * n) for n in number]) < 75
    assert alpha == 0.0 or chi_square(counts, np.ones(40)) > 1e4


def test_published_recency_weights_are_reproduced() -> None:
    """5000 chunks at α = 0.001: exp(−5) between the oldest and the newest, also after a wrap."""
    number = np.roll(np.arange(20_000, 25_000), 1234)
    share = drawn_counts(number, 1e-3)[np.argsort(number)].reshape(10, 500).sum(axis=1) / 100_000
    edges = np.exp(np.linspace(-5.0, 0.0, 11))
    np.testing.assert_allclose(share, np.diff(edges) / (edges[-1] - edges[0]), atol=0.004)


@pytest.mark.parametrize("filled", [1, 2, 25, 39])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_empty_slots_are_never_drawn(filled: int, alpha: float) -> None:
    """χ² with n degrees of freedom is n ± √2n; `chi_square` checks the empty slots."""
    number = [*range(filled), *[-1] * (40 - filled)]
    probability = [np.exp(alpha * n) if n >= 0 else 0.0 for n in number]
    counts = drawn_counts(number, alpha)
    assert np.sum(counts[:filled]) == 100_000
    assert chi_square(counts, probability) < filled + 5 * np.sqrt(2 * filled)


def test_draw_probabilities_match_hand_calculation() -> None:
    """Weights ½, 1, ¼ at α = log 2: the newest takes 4 of 7."""
    counts = drawn_counts([8, 9, 7], np.log(2.0))
    np.testing.assert_allclose(counts / 100_000, [2 / 7, 4 / 7, 1 / 7], atol=0.005)


@pytest.mark.parametrize("newest", [100, 2**31 - 1])
def test_draws_depend_only_on_differences_of_chunk_numbers(newest: int) -> None:
    """Late in a run exp(α · number) would overflow."""
    late = drawn_counts(np.arange(newest - 39, newest + 1), 0.05, 1000)
    np.testing.assert_array_equal(late, drawn_counts(np.arange(40), 0.05, 1000))


def test_large_alpha_draws_only_the_newest_chunk() -> None:
    assert drawn_counts([5, 3, 4], 1000.0, 100)[0] == 100


def test_extreme_random_numbers_draw_filled_slots() -> None:
    """0 draws the first filled slot, the last float below 1 the last."""

    class Edges:
        def random(self, shape: Any) -> Any:
            return np.array([0.0, np.nextafter(1.0, 0.0)])

    for number, wanted in (([0, 1, 2, -1], [0, 2]), ([-1, 0, 1, -1], [1, 2]), ([3, 1, 2], [0, 2])):
        drawn = replays.draw_recent(Edges(), np.int32(number), 0.3, (2,))  # type: ignore[arg-type]
        assert drawn.tolist() == wanted
