"""Options are converted and checked here, whoever gave them: Python, a command or a file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np

from disc.types import DiscError

LARGEST = 2**62  # larger values overflow 64-bit integers
RANGES = {
    "seed": (0, 2**64 - 1),
    "num_envs": (1, 1_000),
    "threads": (1, 1_000),
    "episodes": (1, 10**6),
    "eval_episodes": (1, 10**6),
    "eval_every": (0, LARGEST),
    "checkpoint_every": (0, LARGEST),
    "patience": (0, LARGEST),
    "limits_from": (0, LARGEST),
    "retries": (0, LARGEST),
}
"""The smallest and the largest value of each count; other counts are at least 1."""


def count(name: str, value: Any, within: tuple[int, int] | None = None) -> int:
    """The value as an int.

    Raises:
        DiscError: it is not a whole number, or not within the range, by default that of `RANGES`.
    """
    low, high = within or RANGES.get(name, (1, LARGEST))
    if not _is(Integral, value) or int(value) < low:
        raise DiscError(f"{name} must be a whole number of at least {low:,}, not {value!r}.")
    if int(value) > high:
        raise DiscError(f"{name} must be a whole number of at most {high:,}, not {value!r}.")
    return int(value)


def convert(name: str, value: Any, kind: Any) -> Any:
    """The value as the type of an option: 1 or np.float32(1) becomes 1.0 if that is float.

    Raises:
        DiscError: it is not of this type, or not one of its choices.
    """
    if type(None) in get_args(kind):
        if value is None:
            return None
        kind = next(x for x in get_args(kind) if x is not type(None))
    rule, converted = _converted(value, kind)
    if converted is None:
        raise DiscError(f"{name} must be {rule}, not {value!r}.")
    return converted


def convert_fields(config: Any) -> None:
    """Convert the fields of a frozen dataclass to their declared types."""
    for name, kind in kinds(config.__class__).items():
        object.__setattr__(config, name, convert(name, getattr(config, name), kind))


@cache
def kinds(config: type) -> dict[str, Any]:
    """The declared types of the fields of a class."""
    hints = get_type_hints(config).items()
    return {name: kind for name, kind in hints if get_origin(kind) is not ClassVar}


def _is(kind: type, value: Any) -> bool:
    """Whether the value is a number of this kind; true and false are not numbers."""
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


def _converted(value: Any, kind: Any) -> tuple[str, Any]:
    """A description of a type, and the value converted to it, or None if that is impossible."""
    whole = _is(Integral, value)
    large = whole and abs(int(value)) >= LARGEST
    if kind is bool:
        return "true or false", bool(value) if isinstance(value, bool | np.bool_) else None
    if kind is int:
        rule = "a whole number within ±2^62" if large else "a whole number"
        return rule, int(value) if whole and not large else None
    if kind is float:
        # float(np.float32(1e-4)) is 9.9999997e-05, but its shortest text is 1e-04
        short = isinstance(value, np.floating) and not isinstance(value, float)
        real = _is(Real, value) and not large
        return "a number", float(str(value) if short else value) if real else None
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        found = [x for x in choices if isinstance(value, str) and x == value]
        return f"one of {', '.join(choices)}", found[0] if found else None
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        several = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim)
        entries = [_converted(x, inner)[1] for x in value] if several else [None]
        names = {int: "whole numbers", float: "numbers", str: "strings"}
        rule = f"a list of {names.get(inner) or ', '.join(get_args(inner))}"
        return rule, None if None in entries else tuple(entries)
    return "a string", value if isinstance(value, str) else None


class Checker:
    """Raises a `DiscError` that names the option. None is valid where `convert` accepted it."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def __call__(self, option: str, holds: bool, rule: str) -> None:
        if not holds:  # also if the value is NaN, as its comparisons are False
            raise DiscError(f"{option} must be {rule}, not {getattr(self.config, option)!r}.")

    def counts(self, *options: str) -> None:
        for option, value in self._given(options):
            count(option, value)

    def at_least(self, low: float, *options: str) -> None:
        for option, value in self._given(options):
            self(option, low <= value < float("inf"), f"at least {low}")

    def _given(self, options: tuple[str, ...]) -> Iterator[tuple[str, float]]:
        values = ((option, getattr(self.config, option)) for option in options)
        return ((option, value) for option, value in values if value is not None)

    def within(self, low: float, high: float, *options: str) -> None:
        for option, value in self._given(options):
            self(option, low <= value <= high, f"within [{low}, {high}]")

    def above_zero(self, *options: str) -> None:
        for option, value in self._given(options):
            self(option, 0 < value < float("inf"), "above 0")

    def rate(self, *options: str) -> None:
        for option in options:
            self(option, 0 < getattr(self.config, option) < 1, "above 0 and below 1")

    def below_one(self, *options: str) -> None:
        for option in options:
            self(option, 0 <= getattr(self.config, option) < 1, "at least 0 and below 1")
