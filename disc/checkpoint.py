"""Checkpoints: all that changes, in one file that is whole or not there.

At a scheduled checkpoint the environments are reset, interrupted or not, so nothing of theirs
needs to be saved. A checkpoint at any other moment (the end of a run, Ctrl-C) also holds the
actions since the last reset; taking them again brings the environments back.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from disc import files, packing, untrusted
from disc.types import DiscError, Floats, Metrics

FORMAT = "disc-checkpoint"
FORMAT_VERSION = 1

State = TypeVar("State")


class Checkpoint(NamedTuple):
    """What a checkpoint file holds."""

    state: Any
    taken: Floats  # (E, T, D) actions since the last reset
    where: Floats  # (E, S) observations the environments stood at
    info: dict[str, Any]

    @property
    def unscored(self) -> Metrics | None:
        """The row of the last iteration, if it still has to be evaluated and recorded."""
        row = self.info.get("unscored")
        if not row:
            return None
        return {name: math.nan if x is None else float(x) for name, x in row.items()}


def row_to_json(row: Metrics) -> dict[str, float | None]:
    """A row of which JSON can hold all; `Checkpoint.unscored` is the way back."""
    return {name: None if math.isnan(x) else x for name, x in row.items()}


def save(directory: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint and remove all but it and the one before it."""
    state = checkpoint.state
    arrays = {f"state/{name}": leaf for name, leaf in _leaves(state).items()}
    arrays |= {f"replay/{name}": array for name, array in packing.pack(state.replay).items()}
    arrays |= {"environments/taken": checkpoint.taken, "environments/where": checkpoint.where}
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, **checkpoint.info}
    directory.mkdir(exist_ok=True)
    path = place(directory, state.step)
    files.write_tensors(path, arrays, header)
    prune(path)
    return path


def place(directory: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return directory / f"step_{step:012d}.safetensors"


def prune(path: Path, later: bool = True) -> None:
    """Remove all checkpoints but one and the newest before it.

    Later ones go too: they were damaged, and the run went on from before them.
    """
    there = _files(path.parent)
    gone = sorted(old for old in there if old.name < path.name)[:-1]
    gone += [new for new in there if new.name > path.name and later]
    for old in gone:
        old.unlink()


def load(path: Path, fresh: State) -> Checkpoint:
    """Read a checkpoint; `fresh` is an initial state of the same run and gives the structure.

    A replay may fill most of the memory, so there is never a second one: it is read from the disk
    into that of `fresh`, which must not be used again.

    Raises:
        DamagedError: the file is not as it was written.
        DiscError: it is missing, or of another run's shape.
    """
    arrays, info = files.read_tensors(path, FORMAT, FORMAT_VERSION, mapped=True)
    try:
        taken, where = (np.array(arrays[f"environments/{name}"]) for name in ("taken", "where"))
        state = _restore(fresh, arrays)
        found = Checkpoint(state, taken, where, info)
        _check(found, fresh)
    except untrusted.MALFORMED as error:
        raise DiscError(f"{path}: does not fit this run's options ({error}).") from error
    return found


def _check(found: Checkpoint, fresh: Any) -> None:
    """Raise if it is another run's, or no run's at all."""
    state, envs = found.state, len(fresh.normalizer.running)
    sizes = [fresh.replay._asdict()[name].shape[-1] for name in ("action", "observation")]
    steps = found.taken.shape[1]
    for array, shape in ((found.taken, (envs, steps, sizes[0])), (found.where, (envs, sizes[1]))):
        if array.shape != shape or array.dtype != np.float32:
            raise ValueError(f"environments/ is {array.dtype} of shape {array.shape}")
    if state.seed != fresh.seed:
        raise ValueError(f"its seed is {state.seed}, not {fresh.seed}")
    if state.step < envs * steps or state.iteration < 0:
        raise ValueError(f"step {state.step} of iteration {state.iteration}")
    if not 0.0 <= float(found.info["elapsed"]) < math.inf:
        raise ValueError(f"{found.info['elapsed']} seconds")
    if (row := found.unscored) is not None and (
        row["step"] != state.step or not all(re.fullmatch(r"[\w/.-]+", x, re.A) for x in row)
    ):
        raise ValueError(f"an unscored row of {', '.join(row)} at step {state.step}")


def newest(directory: Path, fresh: State) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, or none at all, and what was wrong with newer ones.

    Raises:
        DiscError: there are some but none is whole, or the newest whole one is not of this run or
            this version.
    """
    complaints: list[str] = []
    for path in sorted(_files(directory), reverse=True):
        try:
            return load(path, fresh), complaints
        except files.DamagedError as error:
            complaints.append(str(error))
    if complaints:
        raise DiscError(
            f"{directory}: none of its {len(complaints)} checkpoints is whole ({complaints[0]}) "
            "Bring one back from a copy, or remove them all to start the run again."
        )
    return None, complaints


def _files(directory: Path) -> list[Path]:
    return list(directory.glob("step_*.safetensors"))


def _tree(state: Any) -> dict[str, Any]:
    """The state's fields by name, less the replay, which packs itself."""
    names = [field.name for field in dataclasses.fields(state) if field.name != "replay"]
    return {name: getattr(state, name) for name in names}


def _leaves(state: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(_tree(state))
    return {jax.tree_util.keystr(path): _array(leaf) for path, leaf in leaves}


def _array(leaf: Any) -> np.ndarray[Any, Any]:
    """A number or an array as an array; of a seed of more than 64 bits, its digits."""
    array = np.asarray(leaf)
    return np.frombuffer(str(leaf).encode(), np.uint8) if array.dtype == np.object_ else array


def _restore(fresh: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    def place(path: Any, blank: Any) -> Any:
        array = arrays[f"state/{jax.tree_util.keystr(path)}"]
        if isinstance(blank, int) and blank >= 2**64:
            return int(array.tobytes())
        if array.shape != np.shape(blank):
            raise ValueError(f"{jax.tree_util.keystr(path)} has shape {array.shape}")
        wanted = np.asarray(blank).dtype
        exact = isinstance(blank, jax.Array)
        if array.dtype != wanted if exact else array.dtype.kind != wanted.kind:
            raise ValueError(f"{jax.tree_util.keystr(path)} is {array.dtype}")
        if isinstance(blank, int | float):
            return type(blank)(array.item())
        return jnp.array(array) if isinstance(blank, jax.Array) else np.array(array)

    tree = jax.tree_util.tree_map_with_path(place, _tree(fresh))
    prefix = "replay/"
    packed = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    return dataclasses.replace(fresh, **tree, replay=packing.unpack(packed, fresh.replay))
