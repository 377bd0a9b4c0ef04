"""The ring buffer of rollouts, in memory and in files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disc.learning import replay as replays
from disc.learning.types import BatchReplay
from disc.run import checkpoint
from disc.types import Rollout
from tests.support.rollouts import rollout_of, spec, walk

N, S, D, LENGTH = 5, 3, 2, 4
SPEC = spec(S, D)
SHAPES = {
    "observation": (N, S),
    "next_observation": (N, S),
    "action": (N, D),
    "mean": (N, D),
    "log_std": (D,),
    "reward": (N,),
    "terminated": (N,),
    "truncated": (N,),
    "border": (N,),
}
FLAGS = ("terminated", "truncated", "border")


def marked(name: str, iteration: int) -> Any:
    """A field's array that encodes its field and iteration."""
    number = list(SHAPES).index(name)
    if name in FLAGS:
        return (iteration >> np.arange(N) + number) % 2 == 1
    shape = SHAPES[name]
    return (100 * iteration + 10 * number + np.arange(np.prod(shape)) / 100).reshape(shape)


def marked_rollout(iteration: int) -> Rollout:
    arrays = {name: marked(name, iteration) for name in SHAPES}
    arrays = {n: x if n in FLAGS else x.astype(np.float32) for n, x in arrays.items()}
    return rollout_of(arrays)


@pytest.mark.parametrize("length", [1, LENGTH])
def test_ring_keeps_the_newest_rollouts(length: int) -> None:
    replay = replays.init(length, N, SPEC)
    for iteration in range(2 * LENGTH + 3):
        replay = replays.push(replay, marked_rollout(iteration), iteration)
        ages = np.asarray(replay.age)
        kept = min(iteration + 1, length)
        assert sorted(ages) == [-1] * (length - kept) + list(range(kept))
        for slot in np.flatnonzero(ages >= 0):
            for name in SHAPES:
                stored = getattr(replay, name)[slot]
                wanted = marked(name, iteration - int(ages[slot]))
                np.testing.assert_array_equal(stored, wanted.astype(stored.dtype))


def wandering(rng: np.random.Generator, iterations: int, reset: float) -> BatchReplay:
    """Batches of one environment, each continuing the last."""
    replay, here = replays.init(LENGTH, N, SPEC), np.float32(rng.standard_normal(S))
    for iteration in range(iterations):
        columns, here = walk(rng, here, N, D, reset)
        columns["mean"] = np.float32(rng.standard_normal((N, D)))
        columns["log_std"] = np.float32(rng.standard_normal(D))
        replay = replays.push(replay, rollout_of(columns), iteration)
    return replay


@pytest.mark.parametrize("reset", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("iterations", [0, 1, LENGTH - 1, LENGTH, LENGTH + 1, 2 * LENGTH + 2])
def test_unpack_undoes_pack(rng: np.random.Generator, iterations: int, reset: float) -> None:
    replay = wandering(rng, iterations, reset)
    restored = checkpoint.unpack(checkpoint.pack(replay), replays.init(LENGTH, N, SPEC))
    for name, before, after in zip(replay._fields, replay, restored, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after, err_msg=name)


def test_unpacked_replay_continues_identically(rng: np.random.Generator) -> None:
    replay = wandering(rng, LENGTH + 1, 0.2)
    restored = checkpoint.unpack(checkpoint.pack(replay), replays.init(LENGTH, N, SPEC))
    both = [replays.push(x, marked_rollout(LENGTH + 1), LENGTH + 1) for x in (replay, restored)]
    for before, after in zip(*both, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("iterations", [2, LENGTH, LENGTH + 2])
def test_pack_is_smaller_than_storing_next_observations(
    rng: np.random.Generator, iterations: int
) -> None:
    packed = checkpoint.pack(wandering(rng, iterations, 0.1))
    plain = 2 * packed["observation"].nbytes
    jumps = packed["jump_row"].nbytes + packed["jump_observation"].nbytes
    assert packed["observation"].nbytes + jumps < plain
    assert len(packed["age"]) == min(iterations, LENGTH)
