"""The layout of an observation: from nested arrays, as an environment gives them, to S numbers.

The order and the encodings are those of `gymnasium.spaces.utils.flatten`: the entries of a Dict or
a Tuple one after the other, arrays in C order, categories as one-hot vectors. A layout is compiled
once from a space (`disc/envs/spaces.py`) or from a policy file, and needs numpy only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from disc.types import Floats

Key: TypeAlias = str | int
Node: TypeAlias = "Numbers | Categories | Entries"
MOST = 2**31  # entries of an array, or categories
FARTHEST = 2**62  # magnitude of the first category


class LayoutError(ValueError):
    """An observation does not fit.

    Args:
        what: what is wrong, without a subject: `has shape (3,), not (9,)`.
        entry: the name of the entry that is wrong; empty if it is the whole observation.
        place: position in a list of observations, if it is in one.
    """

    def __init__(self, what: str, entry: str = "", place: int | None = None) -> None:
        listed = "the observation" if place is None else f"observation {place} of the list"
        self.what, self.entry = what, entry
        self.subject = f"entry {entry} of {listed}" if entry else listed

    def __str__(self) -> str:
        return f"{self.subject} {self.what}"


@dataclass(frozen=True)
class Numbers:
    """An array of numbers, unchanged: Box and MultiBinary."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Numbers in the flat observation."""
        return math.prod(self.shape)

    def encode(self, x: Any, out: Floats) -> None:
        """Write arrays (*lead, *shape) to `out`, (*lead, size)."""
        if x.dtype.kind not in "fiub":
            raise TypeError(f"is {value_summary(x)}, not an array of numbers")
        out[...] = x.reshape(out.shape)

    def names(self) -> Iterator[str]:
        """What to add to the entry's name for each number of the flat observation."""
        if not self.shape:
            return iter([""])
        places = itertools.product(*map(range, self.shape))
        return (f"[{', '.join(map(str, place))}]" for place in places)

    def to_json(self) -> Any:
        """The form in a policy file."""
        return {"numbers": list(self.shape)}


@dataclass(frozen=True)
class Categories:
    """An array of categories, each encoded as a one-hot vector: Discrete and MultiDiscrete."""

    shape: tuple[int, ...]
    counts: tuple[int, ...]  # of the array's elements in C order
    starts: tuple[int, ...]  # the first category of each

    @property
    def size(self) -> int:
        """Numbers in the flat observation."""
        return sum(self.counts)

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """(size,): the element of the array that a number of the flat observation belongs to."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def _values(self) -> NDArray[np.int64]:
        """(size,): the category that it stands for."""
        pairs = zip(self.starts, self.counts, strict=True)
        return np.concatenate([np.arange(start, start + count) for start, count in pairs])

    def encode(self, x: Any, out: Floats) -> None:
        """Write arrays (*lead, *shape) to `out`, (*lead, size)."""
        if x.dtype.kind not in "iub":
            raise TypeError(f"is {value_summary(x)}, not {self._wanted()}")
        flat = x.reshape(*out.shape[:-1], len(self.counts))
        found = flat[..., self._columns] == self._values
        if np.count_nonzero(found) != flat.size:
            low = np.asarray(self.starts)
            wrong = (flat < low) | (flat >= low + np.asarray(self.counts))
            raise ValueError(f"is {flat[wrong].reshape(-1)[0]}, not {self._wanted()}")
        out[...] = found

    def _wanted(self) -> str:
        if len(set(self.counts)) == len(set(self.starts)) == 1:
            last = self.starts[0] + self.counts[0] - 1
            return f"a whole number from {self.starts[0]} to {last}"
        return "whole numbers in the ranges of the space"

    def names(self) -> Iterator[str]:
        """What to add to the entry's name for each number of the flat observation."""
        places = Numbers(self.shape).names()
        for place, start, count in zip(places, self.starts, self.counts, strict=True):
            yield from (f"{place} = {value}" for value in range(start, start + count))

    def to_json(self) -> Any:
        """The form in a policy file."""
        return {
            "categories": list(self.counts),
            "starts": list(self.starts),
            "shape": list(self.shape),
        }


@dataclass(frozen=True)
class Entries:
    """Several entries, by key or, if `keys` is None, by position: Dict and Tuple."""

    keys: tuple[Key, ...] | None
    nodes: tuple[Node, ...]

    @property
    def size(self) -> int:
        """Numbers in the flat observation."""
        return sum(node.size for node in self.nodes)

    @property
    def count(self) -> int:
        """Number of entries."""
        return len(self.nodes)

    def check(self, value: Any) -> None:
        """Raise an error unless a value has exactly these entries."""
        if self.keys is None:
            if not isinstance(value, tuple | list):
                raise TypeError(f"is {value_summary(value)}, not a tuple of {self.count} entries")
            if len(value) != self.count:
                raise ValueError(f"has {len(value)} entries, not {self.count}")
            return
        if not isinstance(value, Mapping):
            keys = ", ".join(map(repr, self.keys))
            raise TypeError(f"is {value_summary(value)}, not a dict with the keys {keys}")
        missing = [repr(key) for key in self.keys if key not in value]
        unknown = [repr(key) for key in value if key not in self.keys]
        what = [f"lacks the key {missing[0]}"] if missing else []
        what += [f"has the unknown key {unknown[0]}"] if unknown else []
        if what:
            raise ValueError(" and ".join(what))

    def named(self, name: str) -> Iterator[tuple[Key, str, Node]]:
        """Each entry's key, its full name, and its node."""
        if self.keys is None:
            for i, node in enumerate(self.nodes):
                yield i, f"{name}[{i}]", node
        else:
            for key, node in zip(self.keys, self.nodes, strict=True):
                yield key, f"{name}.{key}" if name else str(key), node

    def to_json(self) -> Any:
        """The form in a policy file."""
        inner = [node.to_json() for node in self.nodes]
        if self.keys is None:
            return {"tuple": inner}
        return {"dict": [list(pair) for pair in zip(self.keys, inner, strict=True)]}


@dataclass(frozen=True)
class Leaf:
    """An array in an observation, and its place among the S numbers."""

    path: tuple[Key, ...]
    name: str  # for messages; empty if the observation is this array
    node: Numbers | Categories
    place: slice


@dataclass(frozen=True)
class Layout:
    """How an observation becomes S numbers."""

    root: Node
    size: int = field(init=False)  # S
    shape: tuple[int, ...] = field(init=False)  # of a Box, else (S,)
    plain: bool = field(init=False)  # the observation is an array that is used unchanged
    leaves: tuple[Leaf, ...] = field(init=False, repr=False, compare=False)
    inner: tuple[tuple[tuple[Key, ...], int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain, leaves, inner = isinstance(self.root, Numbers), list[Leaf](), list[Any]()
        _compile(self.root, (), "", leaves, inner)
        size = self.root.size
        shape = self.root.shape if isinstance(self.root, Numbers) else (size,)
        values = {"size": size, "shape": shape, "plain": plain}
        for name, value in {**values, "leaves": tuple(leaves), "inner": tuple(inner)}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def box(cls, shape: tuple[int, ...]) -> Layout:
        """The layout of an array of numbers."""
        return cls(Numbers(shape))

    def to_json(self) -> Any:
        """The form in a policy file."""
        return self.root.to_json()

    @classmethod
    def from_json(cls, value: Any) -> Layout:
        """The layout in a policy file, which may be untrusted.

        Raises:
            ValueError: it is not one.
        """
        return cls(_parse(value))

    def __str__(self) -> str:
        """The entries and their sizes: `position (3), gear (one of 4)`."""
        parts = []
        for leaf in self.leaves:
            one_hot = isinstance(leaf.node, Categories)
            shape = leaf.node.shape or (() if one_hot else (1,))
            what = " × ".join(map(str, shape))
            if isinstance(leaf.node, Categories):
                of = f"one of {'/'.join(map(str, dict.fromkeys(leaf.node.counts)))}"
                what = f"{what} × {of}" if what else of
            parts.append(f"{leaf.name or 'category'} ({what})")
        return ", ".join(parts)

    def names(self) -> list[str]:
        """A name for each of the S numbers: `arm.position[2]`, `gear = 3`, `number 7`."""
        found = []
        for leaf in self.leaves:
            if leaf.name or isinstance(leaf.node, Categories):
                found += [f"{leaf.name or 'category'}{rest}" for rest in leaf.node.names()]
            else:
                found += [f"number {i}" for i in range(leaf.node.size)]
        return found

    @np.errstate(over="ignore")  # callers check for infinities
    def flatten(self, observation: Any) -> Floats:
        """One observation as the environment gives it, as a new array (S,).

        An array's shape may differ from that of the space, but not its size.

        Raises:
            LayoutError: it does not fit.
        """
        out = np.zeros(self.size, np.float32)
        try:
            for path, count in self.inner:
                value = observation
                for key in path:
                    value = value[key]
                if len(value) != count:
                    raise ValueError
            for path, start, stop, first, node in self._steps:
                x = observation
                for key in path:
                    x = x[key]
                if first is not None:
                    out[range(start, stop)[x - first if x >= first else stop]] = 1.0
                    continue
                if type(x) is not np.ndarray:
                    x = np.asarray(x)
                if node is not None:
                    node.encode(x, out[start:stop])
                elif x.dtype.kind in "fiub" and x.size == stop - start:
                    out[start:stop] = x if x.ndim == 1 else x.reshape(-1)
                else:
                    raise ValueError
        except Exception:
            return self._carefully(observation)
        return out

    @cached_property
    def _steps(self) -> tuple[tuple[tuple[Key, ...], int, int, int | None, Categories | None], ...]:
        """Path, place, first category of a Discrete space, and node if there are several."""
        steps: list[Any] = []
        for leaf in self.leaves:
            node, place = leaf.node, (leaf.path, leaf.place.start, leaf.place.stop)
            if isinstance(node, Numbers):
                steps.append((*place, None, None))
            else:
                steps.append((*place, None if node.shape else node.starts[0], node))
        return tuple(steps)

    def rows(self, observation: Any) -> tuple[Floats, bool]:
        """Observations as rows (B, S), and whether it was a single one.

        Args:
            observation: one nested observation; a batch of them, with a leading axis in every
                array; a list of them (for a Tuple, a list of tuples); or flat numbers, (S,) or
                (B, S). Whole numbers for a Discrete or MultiDiscrete space are its values if their
                shape permits, and flat otherwise.

        Raises:
            LayoutError: it does not fit; shapes must be those of the space.
        """
        root = self.root
        if isinstance(root, Entries):
            kind = tuple if root.keys is None else Mapping
            if isinstance(observation, kind):
                return self._nested(observation)
            listed = isinstance(observation, tuple | list) and len(observation) > 0
            if listed and all(isinstance(x, kind) for x in observation):
                return self._stacked(observation)
        x = _array(observation)
        if isinstance(root, Categories) and x.dtype.kind in "iub":
            depth = x.ndim - len(root.shape)
            if depth in (0, 1) and x.shape[depth:] == root.shape:
                return self._nested(x)
        if x.dtype.kind in "fiub" and x.ndim in (1, 2) and x.shape[-1] == self.size:
            return np.asarray(x, np.float32).reshape(-1, self.size), x.ndim == 1
        if isinstance(root, Entries) and root.keys is None and isinstance(observation, list):
            return self._nested(observation)
        if isinstance(root, Entries) and x.dtype.kind in "fiub":
            raise LayoutError(
                f"has shape {x.shape}, but must be nested as the environment gives it, or flat, of "
                f"shape ({self.size},) or a batch of those"
            )
        return self._carefully(observation, strict=True)[None], True

    @np.errstate(over="ignore")
    def _nested(self, observation: Any) -> tuple[Floats, bool]:
        """One nested observation, or a batch of them with a leading axis in every array."""
        if error := self._entries_fault(observation):
            raise error
        arrays = [_array(_follow(observation, leaf.path)) for leaf in self.leaves]
        pairs = list(zip(self.leaves, arrays, strict=True))
        leads = (x.shape[: max(0, x.ndim - len(leaf.node.shape))] for leaf, x in pairs)
        lead = next((lead for lead in leads if len(lead) <= 1), ())
        for leaf, x in pairs:
            if x.shape != (shape := (*lead, *leaf.node.shape)):
                batch = f", as the batch has {lead[0]} observations" if lead else ""
                raise LayoutError(f"has shape {x.shape}, not {shape}{batch}", leaf.name)
        out = np.empty((math.prod(lead), self.size), np.float32)
        for leaf, x in pairs:
            try:
                leaf.node.encode(x.reshape(len(out), *leaf.node.shape), out[:, leaf.place])
            except (TypeError, ValueError) as error:
                raise LayoutError(str(error), leaf.name) from error
        return out, not lead

    def _stacked(self, observations: Any) -> tuple[Floats, bool]:
        """A list of nested observations."""
        rows = []
        for i, observation in enumerate(observations):
            try:
                row, single = self._nested(observation)
            except LayoutError as error:
                raise LayoutError(error.what, error.entry, i) from error
            if not single:
                raise LayoutError("is a batch of observations, not one", "", i)
            rows.append(row)
        return np.concatenate(rows), False

    def misfit(self, observation: Any) -> LayoutError | None:
        """How one observation differs from the space in its entries, a shape or a category."""
        try:
            self._carefully(observation, strict=True)
        except LayoutError as error:
            return error
        return None

    def _entries_fault(self, observation: Any) -> LayoutError | None:
        """What is wrong with the entries of an observation."""
        level: list[tuple[str, Node, Any]] = [("", self.root, observation)]
        while level:
            name, node, value = level.pop(0)
            if isinstance(node, Entries):
                try:
                    node.check(value)
                except (TypeError, ValueError) as error:
                    return LayoutError(str(error), name)
                level += [(inner, below, value[key]) for key, inner, below in node.named(name)]
        return None

    @np.errstate(over="ignore")
    def _carefully(self, observation: Any, strict: bool = False) -> Floats:
        """Like `flatten`, but slower, with an error that says what is wrong.

        Args:
            observation: one observation.
            strict: shapes must be those of the space, not only sizes.
        """
        if error := self._entries_fault(observation):
            raise error
        out = np.empty(self.size, np.float32)
        for leaf in self.leaves:
            x = _array(_follow(observation, leaf.path))
            shape, numbers = leaf.node.shape, x.dtype.kind in "fiub"
            if numbers and (x.size != math.prod(shape) or (strict and x.shape != shape)):
                raise LayoutError(f"has shape {x.shape}, not {shape}", leaf.name)
            try:
                leaf.node.encode(x, out[leaf.place])
            except (TypeError, ValueError) as error:
                raise LayoutError(str(error), leaf.name) from error
        return out


def _compile(node: Any, path: tuple[Key, ...], name: str, leaves: list[Leaf], inner: Any) -> None:
    """Collect the leaves with their places, and the paths of the nodes between with their sizes."""
    if not isinstance(node, Entries):
        start = leaves[-1].place.stop if leaves else 0
        leaves.append(Leaf(path, name, node, slice(start, start + node.size)))
        return
    inner.append((path, node.count))
    for key, full, below in node.named(name):
        _compile(below, (*path, key), full, leaves, inner)


def _parse(value: Any) -> Node:
    """A node from a policy file; its depth is limited by that of the JSON."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an observation layout")
    kinds = set(value)
    if kinds == {"numbers"}:
        return Numbers(_whole(value["numbers"], 0, MOST))
    if kinds == {"categories", "starts", "shape"}:
        counts = _whole(value["categories"], 1, MOST)
        starts = _whole(value["starts"], -FARTHEST, FARTHEST)
        shape = _whole(value["shape"], 1, MOST)
        if not len(counts) == len(starts) == math.prod(shape):
            raise ValueError("an observation layout has categories that do not fit their shape")
        return Categories(shape, counts, starts)
    if kinds == {"tuple"} and isinstance(value["tuple"], list) and value["tuple"]:
        return Entries(None, tuple(map(_parse, value["tuple"])))
    if kinds == {"dict"} and isinstance(value["dict"], list) and value["dict"]:
        pairs = value["dict"]
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise ValueError("an observation layout has a dict that is not a list of pairs")
        keys = tuple(pair[0] for pair in pairs)
        if not all(type(key) in (str, int) for key in keys) or len(set(keys)) < len(keys):
            raise ValueError("an observation layout has invalid or repeated keys")
        return Entries(keys, tuple(_parse(pair[1]) for pair in pairs))
    raise ValueError(f"an observation layout has a node with {', '.join(sorted(kinds)) or 'no'}")


def _whole(value: Any, least: int, most: int) -> tuple[int, ...]:
    """A list of whole numbers in a range."""
    if not isinstance(value, list) or not all(type(x) is int and least <= x <= most for x in value):
        raise ValueError("an observation layout has sizes that are not whole numbers in range")
    return tuple(value)


def _follow(value: Any, path: tuple[Key, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _array(value: Any) -> Any:
    """The value as an array; of objects if it can't be one of numbers."""
    try:
        return np.asarray(value)
    except Exception:
        return np.asarray(None)


def value_summary(value: Any) -> str:
    """A short description of a value."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind != "O":
        value = value.item()
    if value is None or isinstance(value, str | bytes | int | float):
        return repr(value)[:50]
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    return f"a {type(value).__name__}"
