"""Atomic files: tensors with a JSON header, written to a temporary file and renamed."""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from disc.types import DiscError

TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
"""The safetensors names of numpy types."""
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
LARGE = 10**8
"""Larger files are compared with the available memory before they are read."""


class DamagedError(DiscError):
    """A file is damaged."""


@contextmanager
def replace(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it replaces `path` once the file is complete and on disk."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    beside.unlink(missing_ok=True)  # it might be a link
    try:
        yield beside
        sync(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replace(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """Write arrays and a JSON header in the safetensors format, with a checksum of both.

    The arrays are written directly from memory. (The library's writer leaves a temporary file if
    it is killed.)
    """
    arrays = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    text = json.dumps(header)
    metadata = {"disc": text, "crc32": str(_checksum(arrays, text))}
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # aligns all arrays
    places: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in names:
        start, end, array = end, end + arrays[name].nbytes, arrays[name]
        places[name] = {
            "dtype": NAMES[array.dtype],
            "shape": array.shape,
            "data_offsets": (start, end),
        }
    head = json.dumps(places, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with replace(path) as beside, open(beside, "xb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in names:
            file.write(_bytes(arrays[name]))


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def read_tensors(
    path: Path, kind: str, version: int, mapped: bool = False
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """The arrays of a file and its JSON header.

    Args:
        path: the file.
        kind: the required `format` in its header.
        version: the newest `format_version` that can be read.
        mapped: map the arrays into memory instead of reading them; the file must not change
            while they are used.

    Raises:
        DamagedError: it is damaged.
        DiscError: it is missing, or has another kind or version.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DiscError(f"{path}: no such file.")
    _check_size(path, mapped)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = [] if mapped else file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
        if mapped:
            tensors = _map(path)
        header = parse(metadata["disc"])
        checksum = int(metadata["crc32"])
        found, found_version = header["format"], int(header["format_version"])
    except (SafetensorError, OSError, *MALFORMED) as error:
        raise DamagedError(f"{path}: not a {kind} file, or a damaged one ({error}).") from None
    if _checksum(tensors, metadata["disc"]) != checksum:
        raise DamagedError(f"{path}: damaged (the checksum does not match).")
    if found != kind:
        raise DiscError(f"{path}: is a {found} file, but a {kind} file is needed.")
    if found_version > version:
        raise DiscError(
            f"{path}: format version {found_version} is newer than this installation supports "
            f"({version}); upgrade disc-rl or disc-policy."
        )
    return tensors, header


def _check_size(path: Path, mapped: bool) -> None:
    """Raise a `DiscError` if a file does not fit into memory, such as a huge sparse file."""
    if (size := path.stat().st_size) < LARGE:
        return
    from disc import host

    most = host.total_memory() if mapped else host.available_memory()  # it was once created in it
    if most is not None and size > most:
        raise DiscError(
            f"{path}: needs {host.size(size)}, but there is only {host.size(most)} of memory."
        )


def _map(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file that safetensors has validated, as memory-mapped views."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        places = json.loads(file.read(length))
    places.pop("__metadata__", None)
    data = np.asarray(np.memmap(path, np.uint8, "r", 8 + length))
    return {
        name: data[slice(*x["data_offsets"])].view(TYPES[x["dtype"]]).reshape(x["shape"])
        for name, x in places.items()
    }


def _checksum(arrays: Mapping[str, np.ndarray[Any, Any]], text: str) -> int:
    """CRC-32 over the header and each array's name, type, shape and bytes."""
    checksum = zlib.crc32(text.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        checksum = zlib.crc32(f"{name}{array.dtype}{array.shape}".encode(), checksum)
        checksum = zlib.crc32(_bytes(array), checksum)
    return checksum


def within(path: Path, folder: Path) -> bool:
    """Whether a path, with links resolved, lies in a folder."""
    try:
        with suppress(FileNotFoundError):
            path.stat()  # raises on circular links, which resolve() accepts from Python 3.13 on
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def sync(path: Path) -> None:
    """Flush a file, or a directory's entries, to the disk.

    Windows flushes only files that are open for writing, and no directories.
    """
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


TEXT = 10**7  # maximum bytes of a text file; a config has some thousands
RECORD = 10**8  # maximum bytes of a run's record, which has one row per iteration
DEPTH = 50  # maximum nesting of containers
DRAWN = 1e30  # maximum in a figure or a table: the square of a larger number may overflow

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions raised by values of the wrong type, size or shape."""


def read_text(path: Path, most: int = TEXT) -> str:
    """The text of a file.

    Raises:
        OSError: it is too large, or not a regular file (a pipe or device may never end).
        UnicodeDecodeError: it is not text.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if path.stat().st_size > most:
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
    return path.read_text(encoding="utf-8")


def parse(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Check the nesting of lists and dicts.

    Raises:
        ValueError: it is nested too deeply.
    """
    level = [value]
    for _ in range(DEPTH):
        tables = [x.values() for x in level if isinstance(x, dict)]
        level = [x for some in level if isinstance(some, list) for x in some]
        level += [x for some in tables for x in some]
        if not level:
            return
    raise ValueError("nested too deeply")
