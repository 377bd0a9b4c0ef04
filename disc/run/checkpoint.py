"""Checkpoints: everything that changes, in one file that is complete or absent.

At a scheduled checkpoint the environments are reset in every run, so their state need not be saved.
A checkpoint at any other time (the end of a run, Ctrl-C) also holds the actions since the last
reset; repeating them restores the environments.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from disc import storage
from disc.learning import device
from disc.learning.types import BatchReplay, ChunkReplay, TransitionReplay
from disc.run.training import Best, check_evaluation
from disc.types import DiscError, Floats, Metrics

FORMAT = "disc-checkpoint"
FORMAT_VERSION = 1

State = TypeVar("State")


class Checkpoint(NamedTuple):
    """The contents of a checkpoint file."""

    state: Any
    actions_since_reset: Floats  # (E, T, D)
    observations: Floats  # (E, S) of the environments
    info: dict[str, Any]
    best: Best | None = None  # of the scheduled evaluations so far

    @property
    def reset_step(self) -> int:
        """The step of the last reset of the environments."""
        envs, steps, _ = self.actions_since_reset.shape
        found = self.info.get("reset_step", self.state.step - envs * steps)
        if type(found) is not int:
            raise TypeError(f"reset_step is {found!r}")
        return found

    @property
    def pending(self) -> Metrics | None:
        """The row of the last iteration, if it still has to be evaluated and recorded."""
        row = self.info.get("unscored")
        if not row:
            return None
        return {name: math.nan if x is None else float(x) for name, x in row.items()}


def row_to_json(row: Metrics) -> dict[str, float | None]:
    """A row for JSON, which has no NaN; `Checkpoint.pending` is the inverse."""
    return {name: None if math.isnan(x) else x for name, x in row.items()}


def save(directory: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; keep only it and the one before it."""
    state = checkpoint.state
    leaves, _ = jax.tree_util.tree_flatten_with_path(without_replay(state))
    arrays = {f"state/{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in leaves}
    arrays |= {f"replay/{name}": array for name, array in pack(state.replay).items()}
    arrays |= {"environments/taken": checkpoint.actions_since_reset}
    arrays |= {"environments/where": checkpoint.observations}
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, **checkpoint.info}
    if checkpoint.best is not None:
        arrays |= {f"best/{name}": array for name, array in checkpoint.best.tensors.items()}
        header["best"] = checkpoint.best.info
    directory.mkdir(exist_ok=True)
    path = place(directory, state.step)
    storage.write_tensors(path, arrays, header)
    prune(path)
    return path


def place(directory: Path, step: int) -> Path:
    """The path of the checkpoint of a step."""
    return directory / f"step_{step:012d}.safetensors"


def prune(path: Path, later: bool = True) -> None:
    """Remove all checkpoints but one and the newest before it.

    Later ones are removed too: they were damaged, and the run resumed from before them.
    """
    there = _files(path.parent)
    gone = sorted(old for old in there if old.name < path.name)[:-1]
    gone += [new for new in there if new.name > path.name and later]
    for old in gone:
        old.unlink()


def load(path: Path, fresh: State) -> Checkpoint:
    """Read a checkpoint; `fresh` is an initial state of the same run and gives the structure.

    A replay may fill most of the memory, so it is read from disk into the memory of `fresh`, which
    must not be used again.

    Raises:
        DamagedError: the file is damaged.
        DiscError: it is missing, or does not fit the run.
    """
    arrays, info = storage.read_tensors(path, FORMAT, FORMAT_VERSION, mapped=True)
    try:
        names = ("environments/taken", "environments/where")
        actions_since_reset, observations = (np.array(arrays[name]) for name in names)
        state = _restore(fresh, arrays)
        found = Checkpoint(state, actions_since_reset, observations, info, _best(arrays, info))
        _check(found, fresh)
    except storage.MALFORMED as error:
        raise DiscError(f"{path}: does not fit this run's options ({error}).") from error
    return found


def _check(found: Checkpoint, fresh: Any) -> None:
    """Raise if it belongs to another run, or is inconsistent."""
    state, envs = found.state, len(fresh.normalizer.running)
    sizes = [fresh.replay._asdict()[name].shape[-1] for name in ("action", "observation")]
    steps = found.actions_since_reset.shape[1]
    for array, shape in (
        (found.actions_since_reset, (envs, steps, sizes[0])),
        (found.observations, (envs, sizes[1])),
    ):
        if array.shape != shape or array.dtype != np.float32:
            raise ValueError(f"environments/ is {array.dtype} of shape {array.shape}")
    if state.seed != fresh.seed:
        raise ValueError(f"its seed is {state.seed}, not {fresh.seed}")
    if not 0 <= found.reset_step <= state.step or state.iteration < 0:
        raise ValueError(f"step {state.step} of iteration {state.iteration}")
    if not 0.0 <= float(found.info["elapsed"]) < math.inf:
        raise ValueError(f"{found.info['elapsed']} seconds")
    if found.best is not None:
        _check_best(found.best, state.step)
    if (row := found.pending) is not None and (
        row["step"] != state.step or not all(re.fullmatch(r"[\w/.-]+", x, re.A) for x in row)
    ):
        raise ValueError(f"an unscored row of {', '.join(row)} at step {state.step}")


def _best(arrays: dict[str, np.ndarray[Any, Any]], info: dict[str, Any]) -> Best | None:
    """The best policy, which checkpoints of older versions and runs without evaluations lack."""
    if "best" not in info:
        return None
    prefix = "best/"
    named = {n.removeprefix(prefix): np.array(a) for n, a in arrays.items() if n.startswith(prefix)}
    return Best(named, info["best"])


def _check_best(best: Best, step: int) -> None:
    """Raise if it is not a policy, or its evaluation is not one of this run."""
    check_evaluation(best.evaluation)
    at = best.evaluation["step"]
    if not best.policy.weights or best.info["step"] != at or at > step:
        raise ValueError(f"a best evaluation at step {at}")


def newest(directory: Path, fresh: State) -> tuple[Checkpoint | None, list[str]]:
    """The newest undamaged checkpoint, if there is one, and what is wrong with newer ones.

    Raises:
        DiscError: all are damaged, or the newest undamaged one belongs to another run or a
            newer version.
    """
    complaints: list[str] = []
    for path in sorted(_files(directory), reverse=True):
        try:
            return load(path, fresh), complaints
        except storage.DamagedError as error:
            complaints.append(str(error))
    if complaints:
        raise DiscError(
            f"{directory}: all of its {len(complaints)} checkpoints are damaged ({complaints[0]}) "
            "Restore one from a backup, or remove them all to start the run again."
        )
    return None, complaints


def _files(directory: Path) -> list[Path]:
    return list(directory.glob("step_*.safetensors"))


def without_replay(state: Any) -> dict[str, Any]:
    """The state's fields by name, without the replay."""
    names = [field.name for field in dataclasses.fields(state) if field.name != "replay"]
    return {name: getattr(state, name) for name in names}


def _fits(stored: np.dtype[Any], blank: Any) -> bool:
    """Whether an array can take the place of an initial value.

    Older versions stored a float option as an integer if it was given as one.
    """
    if isinstance(blank, jax.Array):
        return stored == blank.dtype
    wanted = np.asarray(blank).dtype.kind
    return stored.kind == wanted or (isinstance(blank, float) and stored.kind in "iu")


def _restore(fresh: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    def place(path: Any, blank: Any) -> Any:
        array = arrays[f"state/{jax.tree_util.keystr(path)}"]
        if array.shape != np.shape(blank):
            raise ValueError(f"{jax.tree_util.keystr(path)} has shape {array.shape}")
        if not _fits(array.dtype, blank):
            raise ValueError(f"{jax.tree_util.keystr(path)} is {array.dtype}")
        if isinstance(blank, int | float):
            return type(blank)(array.item())
        own = np.array(array)  # not a view of the file
        return device.put(own) if isinstance(blank, jax.Array) else own

    tree = jax.tree_util.tree_map_with_path(place, without_replay(fresh))
    prefix = "replay/"
    packed = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    return dataclasses.replace(fresh, **tree, replay=unpack(packed, fresh.replay))


PART = 10_000
"""Rows that are compared or copied at a time: a replay may fill most of the memory."""

AnyReplay = BatchReplay | ChunkReplay | TransitionReplay
Replay = TypeVar("Replay", BatchReplay, ChunkReplay, TransitionReplay)


def pack(replay: AnyReplay) -> dict[str, np.ndarray[Any, Any]]:
    """The replay as arrays for a file.

    Empty slots are left out, and next observations that equal the observation of the following row,
    which halves the file (but not if single steps of several environments alternate).
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
    elsewhere = following if jumps.all() else following[jumps]  # avoids a copy of all
    return {**arrays, "jump_row": np.flatnonzero(jumps), "jump_observation": elsewhere}


def _bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floats as their bits, so that −0 differs from 0."""
    return np.ascontiguousarray(values).view(np.uint32)


def unpack(arrays: Mapping[str, np.ndarray[Any, Any]], empty: Replay) -> Replay:
    """The replay from the arrays of `pack`, in the memory of `empty`, which must not be used again.

    Raises:
        KeyError, TypeError, ValueError: the arrays do not fit; `empty` is unchanged.
    """
    _check_replay(arrays, empty)
    replay, size = empty, empty.observation.shape[-1]
    columns = [n for n, x in empty._asdict().items() if x.ndim and n != "next_observation"]
    filled, steps = len(arrays["observation"]), math.prod(empty.observation.shape[1:-1])
    rows, jumps = arrays["observation"].reshape(-1, size), arrays["jump_row"]
    slots = max(1, PART // steps)
    buffer = np.empty((min(slots, filled) * steps, size), np.float32)  # reused: JAX frees late
    for start in range(0, filled, slots):
        part = {name: arrays[name][start : start + slots] for name in columns}
        low, high = start * steps, min(start + slots, filled) * steps
        following = buffer[: high - low]
        following[: len(rows) - 1 - low] = rows[low + 1 : high + 1]
        first, last = np.searchsorted(jumps, (low, high))
        following[jumps[first:last] - low] = arrays["jump_observation"][first:last]
        part["next_observation"] = following.reshape(part["observation"].shape)
        replay = jax.block_until_ready(_place(replay, part, start))
    scalars = {n: device.put(np.array(arrays[n])) for n, x in empty._asdict().items() if not x.ndim}
    return replay._replace(**scalars)


@partial(jax.jit, donate_argnums=0)
def _place(replay: Replay, part: dict[str, jax.Array], start: int) -> Replay:
    def place(name: str, rows: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(getattr(replay, name), rows, start, axis=0)

    return replay._replace(**{name: place(name, rows) for name, rows in part.items()})


def _check_replay(arrays: Mapping[str, np.ndarray[Any, Any]], empty: AnyReplay) -> None:
    """Raise if the arrays do not fit, before anything is overwritten."""
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
    last = [rows - 1] if rows else []  # nothing follows it, so it is always stored
    if jumps[-1:].tolist() != last or np.any(np.diff(jumps, prepend=-1) <= 0):
        raise ValueError("replay/jump_row does not number rows")
