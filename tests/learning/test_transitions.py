"""The ring buffer of single steps, in memory and in files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disc.learning import replay as replays
from disc.learning.types import TransitionReplay
from disc.run import checkpoint
from disc.types import Rollout
from tests.support.compare import bits
from tests.support.rollouts import rollout_of, spec, walk

S, D, SIZE = 3, 2, 5
SPEC = spec(S, D)
SHAPES = {
    "observation": (S,),
    "next_observation": (S,),
    "action": (D,),
    "reward": (),
    "terminated": (),
    "truncated": (),
}
FLAGS = ("terminated", "truncated")


def empty(size: int = SIZE) -> TransitionReplay:
    return replays.init_transitions(size, SPEC)


def marked(name: str, step: int) -> Any:
    """A field's value that encodes its field and step; flags are two bits of the step."""
    if name in FLAGS:
        return np.bool_((step >> FLAGS.index(name)) % 2)
    place = np.arange(int(np.prod(SHAPES[name])), dtype=np.float32).reshape(SHAPES[name])
    return np.float32(100 * step + 10 * list(SHAPES).index(name)) + place


def marked_rollout(first: int, count: int) -> Rollout:
    steps = range(first, first + count)
    return rollout_of({name: np.stack([marked(name, t) for t in steps]) for name in SHAPES})


def assert_holds(replay: TransitionReplay, slot: int, step: int) -> None:
    for name in SHAPES:
        np.testing.assert_array_equal(np.asarray(getattr(replay, name))[slot], marked(name, step))


def assert_holds_the_newest(replay: TransitionReplay, pushed: int, size: int) -> None:
    """Step t is in slot t modulo the size; all other slots are in their initial state."""
    assert int(replay.stored) == pushed
    assert replay.filled == min(pushed, size)
    for step in range(max(0, pushed - size), pushed):
        assert_holds(replay, step % size, step)
    for name in SHAPES:
        np.testing.assert_array_equal(np.asarray(getattr(replay, name))[replay.filled :], 0)


# The ring


def test_empty_replay_holds_nothing() -> None:
    replay = empty()
    assert replay.filled == 0
    assert int(replay.stored) == 0
    for name, shape in SHAPES.items():
        array = getattr(replay, name)
        assert array.shape == (SIZE, *shape)
        assert array.dtype == (np.bool_ if name in FLAGS else np.float32)


@pytest.mark.parametrize(
    ("size", "lots"),
    [
        (SIZE, [1] * 12),
        (SIZE, [3] * 7),
        (SIZE, [SIZE] * 3),
        (SIZE, [1, 3, SIZE + 2, SIZE, 1, 1, 3, 2 * SIZE + 1, 3, 3, SIZE, SIZE + 2]),
        (SIZE, [4 * SIZE + 3, 1, 4 * SIZE + 3]),
        (7, [3, 7, 10, 3, 3, 10, 7]),
        (1, [1, 3, 1, 1, 3]),
    ],
)
def test_ring_keeps_the_newest_steps(size: int, lots: list[int]) -> None:
    replay, pushed = empty(size), 0
    for count in lots:
        replay = replays.push_transitions(replay, marked_rollout(pushed, count))
        pushed += count
        assert_holds_the_newest(replay, pushed, size)
    assert pushed > 2 * size


def test_terminated_and_truncated_are_stored_separately() -> None:
    """All four combinations are kept, each flag in its own field."""
    columns = {n: np.zeros((4, *shape), np.float32) for n, shape in SHAPES.items()}
    columns["terminated"] = np.array([False, True, False, True])
    columns["truncated"] = np.array([False, False, True, True])
    replay = replays.push_transitions(empty(), rollout_of(columns))
    assert replay.terminated.tolist() == [False, True, False, True, False]
    assert replay.truncated.tolist() == [False, False, True, True, False]


def test_last_observation_of_an_episode_is_kept() -> None:
    """Two episodes 1 → 2 → 3 and 10 → 20: what follows 2 is 3 and not the reset's 10."""
    here, there = [1.0, 2.0, 10.0, 20.0], [2.0, 3.0, 20.0, 30.0]
    columns = {n: np.zeros((4, *shape), np.float32) for n, shape in SHAPES.items()}
    columns["observation"] = np.repeat(np.float32(here)[:, None], S, axis=1)
    columns["next_observation"] = np.repeat(np.float32(there)[:, None], S, axis=1)
    columns["terminated"] = np.array([False, True, False, False])
    columns["truncated"] = np.array([False, False, False, True])
    replay = replays.push_transitions(empty(), rollout_of(columns))
    for found in (replay, checkpoint.unpack(checkpoint.pack(replay), empty())):
        np.testing.assert_array_equal(found.next_observation[:4, 1], there)
        np.testing.assert_array_equal(found.observation[:4, 1], here)


# The file


def wandering(rng: np.random.Generator, lots: list[int], reset: float) -> TransitionReplay:
    """Rollouts of one environment, each continuing the last."""
    replay, here = empty(), np.float32(rng.standard_normal(S))
    for count in lots:
        columns, here = walk(rng, here, count, D, reset)
        replay = replays.push_transitions(replay, rollout_of(columns))
    return replay


HISTORIES = pytest.mark.parametrize(
    "lots", [[], [1], [3], [2, 2], [SIZE], [4, 4], [SIZE + 2], [1, 7, 3], [SIZE, SIZE]]
)


@pytest.mark.parametrize("reset", [0.0, 0.3, 1.0])
@HISTORIES
def test_unpack_undoes_pack(rng: np.random.Generator, lots: list[int], reset: float) -> None:
    replay = wandering(rng, lots, reset)
    packed = checkpoint.pack(replay)
    assert len(packed["reward"]) == min(sum(lots), SIZE)
    assert bits(checkpoint.unpack(packed, empty())) == bits(replay)


@pytest.mark.parametrize("lots", [[], [1], [3], [SIZE], [SIZE + 2], [4, 4, 3]])
def test_every_float_survives_the_file_bit_for_bit(
    rng: np.random.Generator, lots: list[int]
) -> None:
    """Zeros of both signs that equal each other, infinities, subnormals, NaNs with a payload."""
    odd = np.uint32([0, 0x80000000, 0x7FC00000, 0x7FC00001, 0xFFC12345, 0x7F800000, 1])
    replay = empty()
    for count in lots:
        columns: dict[str, Any] = {
            name: rng.choice(odd, (count, *shape)).view(np.float32)
            for name, shape in SHAPES.items()
        }
        columns |= {name: rng.random(count) < 0.5 for name in FLAGS}
        replay = replays.push_transitions(replay, rollout_of(columns))
    assert bits(checkpoint.unpack(checkpoint.pack(replay), empty())) == bits(replay)


def test_next_observation_with_other_bits_than_the_next_row_is_kept() -> None:
    """−0 before 0, and one NaN before another: they compare equal or not, but differ in bits."""
    columns = {n: np.zeros((SIZE, *shape), np.float32) for n, shape in SHAPES.items()}
    columns |= {name: columns[name].astype(bool) for name in FLAGS}
    columns["next_observation"][::2, 1] = -0.0
    columns["observation"][2:, 0] = np.uint32([0x7FC00001]).view(np.float32)
    columns["next_observation"][1:, 0] = np.uint32([0x7FC00002]).view(np.float32)
    replay = replays.push_transitions(empty(), rollout_of(columns))
    wanted = columns["next_observation"].view(np.uint32)
    for found in (replay, checkpoint.unpack(checkpoint.pack(replay), empty())):
        there = np.asarray(found.next_observation)
        np.testing.assert_array_equal(there.view(np.uint32), wanted)


@HISTORIES
def test_unpacked_replay_continues_identically(rng: np.random.Generator, lots: list[int]) -> None:
    replay = wandering(rng, lots, 0.2)
    restored = checkpoint.unpack(checkpoint.pack(replay), empty())
    for first, count in ((0, 2), (2, 1), (3, SIZE + 1)):
        replay, restored = (
            replays.push_transitions(x, marked_rollout(first, count)) for x in (replay, restored)
        )
        assert bits(restored) == bits(replay)


def test_push_does_not_change_packed_arrays(rng: np.random.Generator) -> None:
    """A push writes in place; arrays being saved must not share that memory."""
    replay = wandering(rng, [SIZE], 0.2)
    packed = checkpoint.pack(replay)
    before = {name: array.tobytes() for name, array in packed.items()}
    replays.push_transitions(replay, marked_rollout(0, 2)).reward.block_until_ready()
    assert {name: array.tobytes() for name, array in packed.items()} == before


@pytest.mark.parametrize(("lots", "jumps"), [([SIZE], 1), ([SIZE, 2], 2), ([2], 1), ([], 0)])
def test_pack_leaves_out_next_observations_found_in_the_next_row(
    rng: np.random.Generator, lots: list[int], jumps: int
) -> None:
    """Only the newest row's is stored and, after wrapping around, the last row's."""
    packed = checkpoint.pack(wandering(rng, lots, 0.0))
    assert "next_observation" not in packed
    assert len(packed["jump_row"]) == len(packed["jump_observation"]) == jumps


def test_large_replays_are_packed_correctly_across_part_borders() -> None:
    """Rows carry their number and are consecutive, except for jumps near each part's border."""
    rows, jumps = 25_000, [0, 9_998, 9_999, 10_000, 19_999, 20_000, 24_998]
    columns: dict[str, Any] = {
        n: np.zeros((rows, *shape), np.float32) for n, shape in SHAPES.items()
    }
    columns |= {name: columns[name].astype(bool) for name in FLAGS}
    columns["observation"][:] = np.arange(rows)[:, None]
    columns["next_observation"][:] = np.arange(1, rows + 1)[:, None]
    columns["next_observation"][jumps, 2] = -1.0
    replay = replays.push_transitions(empty(rows), rollout_of(columns))
    packed = checkpoint.pack(replay)
    assert packed["jump_row"].tolist() == [*jumps, rows - 1]
    assert bits(checkpoint.unpack(packed, empty(rows))) == bits(replay)
