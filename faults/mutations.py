"""Mutations of untrusted or damaged files: of their bytes, JSON and arrays."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
from safetensors.numpy import save

from disc import storage

Arrays = dict[str, np.ndarray[Any, Any]]
Item = TypeVar("Item")

DEEP, LONG = "@DEEP@", "@LONG@"  # placeholders for values that `json.dumps` can't write
LITERALS = {f'"{DEEP}"': "[" * 100_000 + "]" * 100_000, f'"{LONG}"': "9" * 5_000}

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>"
TEXTS: Sequence[str] = (
    "", "0", "nan", "disc", "sac", "Pendulum-v1", "../../x", "..", "/etc/passwd", "os:system",
    "subprocess:run", "a:B-v0", "\0", "\ud800", "\x1b[2J\x07", "[bold]x[/bold] [/]", MARKUP,
    "</script><!-- \"' &", "line\nbreak\r", "$\\frac$", "é" * 10, "x" * 100_000,
)  # fmt: skip
NUMBERS: Sequence[Any] = (
    0, 1, -1, 2, 7, 0.5, -0.5, 5e-324, 1e30, 1e308, -1e308, math.nan, math.inf, -math.inf, 2**31,
    2**53, 2**63, -(2**63), 10**12, 10**18, 10**30, 10**400, True, False, LONG,
)  # fmt: skip
SHAPES: Sequence[Any] = (
    None, [], {}, [[]], [None], [0], [-1, -3], [3, 1], ["a"], [1e308], [10**12] * 3, {"a": 1},
    {"": None}, {"self": 1}, [{"a": [{}]}], [["seed", 1]], DEEP, [DEEP], [[[[[[[1]]]]]]] * 3,
)  # fmt: skip


def one(rng: np.random.Generator, items: Sequence[Item]) -> Item:
    """A random item."""
    return items[int(rng.integers(len(items)))]


def hostile(rng: np.random.Generator) -> Any:
    """An unexpected value."""
    return copy.deepcopy(one(rng, one(rng, (TEXTS, NUMBERS, SHAPES))))


# Bytes


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Mutated bytes: flipped, truncated, inserted, moved, or a length that claims terabytes."""
    kind, size = int(rng.integers(7)), len(data)
    start, stop = sorted(int(x) for x in rng.integers(size + 1, size=2))
    if kind == 0:
        changed = bytearray(data)
        for at in rng.integers(size, size=int(rng.integers(1, 9))):
            changed[at] ^= 1 << int(rng.integers(8))
        return bytes(changed)
    if kind == 1:
        return data[:start]
    if kind == 2:
        return data[:start] + rng.bytes(int(rng.integers(1, 200))) + data[start:]
    if kind == 3:
        return data[:start] + data[stop:]
    if kind == 4:
        return data[:stop] + data[start:]
    if kind == 5:
        length = one(rng, (0, 1, size, 2**31, 2**40, 2**63, 2**64 - 1))
        return length.to_bytes(8, "little") + data[8:]
    head = bytearray(data[: size // 2])  # digits, so that sizes and offsets change
    digits = [at for at, byte in enumerate(head) if 48 <= byte < 58]
    for at in rng.choice(digits, size=min(3, len(digits))) if digits else ():
        head[at] = int(rng.integers(48, 58))
    return bytes(head) + data[size // 2 :]


# JSON


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All pairs of a container and one of its keys, at any depth."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def changed(value: Any, rng: np.random.Generator) -> Any:
    """A copy of a JSON value with one or a few entries changed, removed or added."""
    value = json.loads(json.dumps(value))
    for _ in range(1 + int(rng.integers(6) == 0) * 3):
        container, key = one(rng, list(places(value)))
        kind = int(rng.integers(8))
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[one(rng, TEXTS)] = hostile(rng)
        elif kind == 1:
            container.extend([hostile(rng)] * 3)
        elif kind == 2:
            container[key] = copy.deepcopy(one(rng, list(places(value)))[0])
        else:
            container[key] = hostile(rng)
        if not value:
            break
    return value


def text(value: Any) -> str:
    """JSON, with placeholders replaced."""
    written = json.dumps(value)
    for name, literal in LITERALS.items():
        written = written.replace(name, literal)
    return written


# Arrays


def altered(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    """The arrays with one or a few retyped, reshaped, with odd values, removed or added."""
    arrays = dict(arrays)
    for _ in range(1 + int(rng.integers(6) == 0) * 3):
        name = one(rng, sorted(arrays))
        kind = int(rng.integers(6))
        if kind == 0 and len(arrays) > 1:
            del arrays[name]
        elif kind == 1:
            more = one(rng, (f"{name}x", f"{name[:-1]}9", "policy/weight_7", "", "../../x"))
            arrays[more] = arrays[name]
        elif kind == 2:
            arrays[name] = arrays[one(rng, sorted(arrays))]
        elif kind == 3:
            arrays[name] = _retyped(arrays[name], rng)
        elif kind == 4:
            arrays[name] = _reshaped(arrays[name], rng)
        else:
            arrays[name] = _filled(arrays[name], rng)
    return arrays


TYPES: Sequence[Any] = (
    np.float64, np.float16, np.int8, np.int64, np.uint8, np.bool_, np.complex64,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
)  # fmt: skip


def _retyped(array: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(one(rng, TYPES))


def _reshaped(array: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    forms: list[Any] = [
        array[None],
        array[..., None],
        array.reshape(-1),
        array.T,
        array.reshape(-1)[:0],
    ]
    forms += [np.zeros(shape, array.dtype) for shape in ((), (0,), (0, 2**40), (1, 1), (1000, 300))]
    if array.ndim:
        forms += [array[:-1], np.concatenate([array, array]), array[..., :-1]]
    return np.array(one(rng, forms), order="C")


def _filled(array: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    new = np.array(array, order="C")
    value = one(rng, (math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 0.0, -1.0))
    if new.dtype.kind == "f" and new.size:
        if rng.integers(2):
            new[...] = value
        else:
            new.reshape(-1)[int(rng.integers(new.size))] = value
    return new


def write(path: Path, arrays: Arrays, header: Any) -> None:
    """Write a file with a correct checksum."""
    encoded = text(header)
    checksum = storage._checksum(arrays, encoded)
    path.write_bytes(save(arrays, metadata={"disc": encoded, "crc32": str(checksum)}))
