"""Files that are whole or not there: tensors with a JSON header, written beside and renamed."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from disc.types import DiscError


class DamagedError(DiscError):
    """A file that is not what was written."""


@contextmanager
def replace(path: Path) -> Iterator[Path]:
    """A path to write to; the file takes `path`'s place only once it is whole and on the disk."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        sync(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replace(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """Write arrays and a JSON header in the safetensors format, with a checksum of both."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    arrays = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    text = json.dumps(header)
    metadata = {"disc": text, "crc32": str(_checksum(arrays, text))}
    with replace(path) as beside:
        try:
            save_file(arrays, beside, metadata=metadata)
        except SafetensorError as error:  # which is no OSError, whatever the disk said
            raise OSError(f"{path}: can't be written ({error})") from error
        beside.chmod(0o666 & ~_umask())  # the library's own temporary file is private


def read_tensors(
    path: Path, kind: str, version: int
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """The arrays of a file and its JSON header.

    Args:
        path: the file.
        kind: the `format` its header must name.
        version: the newest `format_version` that can be read.

    Raises:
        DamagedError: it is not as it was written.
        DiscError: it is missing, or of another kind or version.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DiscError(f"{path}: there is no such file.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata["disc"])
        checksum = int(metadata["crc32"])
        found, found_version = header["format"], int(header["format_version"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path}: not a {kind} file, or a damaged one ({error}).") from None
    if _checksum(tensors, metadata["disc"]) != checksum:
        raise DamagedError(f"{path}: damaged (its checksum does not match).")
    if found != kind:
        raise DiscError(f"{path}: this is a {found} file, and a {kind} file is needed.")
    if found_version > version:
        raise DiscError(
            f"{path}: format version {found_version} is newer than this installation reads "
            f"({version}): upgrade disc-rl."
        )
    return tensors, header


def _checksum(arrays: Mapping[str, np.ndarray[Any, Any]], text: str) -> int:
    """CRC-32 over the header and each array's name, type, shape and bytes."""
    checksum = zlib.crc32(text.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        checksum = zlib.crc32(f"{name}{array.dtype}{array.shape}".encode(), checksum)
        checksum = zlib.crc32(array.reshape(-1).view(np.uint8).data, checksum)
    return checksum


def _umask() -> int:
    """The permissions that the user's new files lack."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def sync(path: Path) -> None:
    """Wait until a file, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
