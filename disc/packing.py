"""A replay as arrays for a file, and back, without a second replay in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from disc.replay import BatchReplay, ChunkReplay, TransitionReplay

PART = 10_000
"""Rows that are compared or copied at once, as a replay may fill most of the memory."""

Replay = TypeVar("Replay", BatchReplay, ChunkReplay, TransitionReplay)


def pack(replay: BatchReplay | ChunkReplay | TransitionReplay) -> dict[str, np.ndarray[Any, Any]]:
    """The replay as arrays for a file.

    Empty slots are left out, and of the next observations all that stand in the following row
    anyway, which halves the file (but not where single steps of several environments alternate).
    """
    filled = replay.filled
    arrays = {
        name: np.asarray(value)[:filled] if value.ndim else np.asarray(value)
        for name, value in replay._asdict().items()
    }
    following = arrays.pop("next_observation").reshape(-1, replay.observation.shape[-1])
    observation = arrays["observation"].reshape(following.shape)
    jumps = np.ones(len(following), np.bool_)
    for start in range(0, len(following) - 1, PART):
        stop = min(start + PART, len(following) - 1)
        here, there = following[start:stop], observation[start + 1 : stop + 1]
        jumps[start:stop] = np.any(_bits(here) != _bits(there), axis=1)
    elsewhere = following if jumps.all() else following[jumps]  # all of it needs no copy
    return {**arrays, "jump_row": np.flatnonzero(jumps), "jump_observation": elsewhere}


def _bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floats as their bits, so that −0 differs from 0."""
    return np.ascontiguousarray(values).view(np.uint32)


def unpack(arrays: Mapping[str, np.ndarray[Any, Any]], empty: Replay) -> Replay:
    """The replay that `pack` took apart, in the memory of `empty`, which must not be used again.

    Raises:
        KeyError, TypeError, ValueError: the arrays are of no such replay; `empty` is untouched.
    """
    _check(arrays, empty)
    replay, size = empty, empty.observation.shape[-1]
    columns = [n for n, x in empty._asdict().items() if x.ndim and n != "next_observation"]
    filled, steps = len(arrays["observation"]), math.prod(empty.observation.shape[1:-1])
    rows, jumps = arrays["observation"].reshape(-1, size), arrays["jump_row"]
    slots = max(1, PART // steps)
    for start in range(0, filled, slots):
        part = {name: arrays[name][start : start + slots] for name in columns}
        low, high = start * steps, min(start + slots, filled) * steps
        following = np.empty((high - low, size), np.float32)
        following[: len(rows) - 1 - low] = rows[low + 1 : high + 1]
        first, last = np.searchsorted(jumps, (low, high))
        following[jumps[first:last] - low] = arrays["jump_observation"][first:last]
        part["next_observation"] = following.reshape(part["observation"].shape)
        replay = jax.block_until_ready(_place(replay, part, start))
    scalars = {n: jnp.array(arrays[n]) for n, x in empty._asdict().items() if not x.ndim}
    return replay._replace(**scalars)


@partial(jax.jit, donate_argnums=0)
def _place(replay: Replay, part: dict[str, jax.Array], start: int) -> Replay:
    def place(name: str, rows: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(getattr(replay, name), rows, start, axis=0)

    return replay._replace(**{name: place(name, rows) for name, rows in part.items()})


def _check(
    arrays: Mapping[str, np.ndarray[Any, Any]],
    empty: BatchReplay | ChunkReplay | TransitionReplay,
) -> None:
    """Refuse arrays that do not fit, before anything is overwritten."""
    filled, jumps = len(arrays["observation"]), arrays["jump_row"]
    wanted: dict[str, tuple[Any, ...]] = {
        name: ((filled, *blank.shape[1:]) if blank.ndim else (), blank.dtype)
        for name, blank in empty._asdict().items()
        if name != "next_observation"
    }
    wanted["jump_row"] = ((len(jumps),), np.int64)
    wanted["jump_observation"] = ((len(jumps), empty.observation.shape[-1]), np.float32)
    for name, expected in wanted.items():
        found = arrays[name]
        if (found.shape, found.dtype) != expected:
            raise ValueError(f"replay/{name} is {found.dtype} of shape {found.shape}")
    if filled > len(empty.reward):
        raise ValueError(f"the replay has {filled:,} slots, not {len(empty.reward):,} at most")
    rows = filled * math.prod(empty.observation.shape[1:-1])
    last = [rows - 1] if rows else []  # nothing follows it, so it always goes elsewhere
    if jumps[-1:].tolist() != last or np.any(np.diff(jumps, prepend=-1) <= 0):
        raise ValueError("replay/jump_row does not number rows")
