"""Search spaces of `disc tune`: ranges and choices of an algorithm's options, from TOML.

learning_rate = {low = 1e-5, high = 3e-3, log = true}
epochs = {low = 3, high = 15}
widths = {choices = [[64, 64], [256, 256]]}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from disc.algos import ALGORITHMS
from disc.options import kinds
from disc.study import spec
from disc.types import DiscError

SPACES = Path(__file__).parent / "spaces"
"""The default space of each built-in algorithm."""
DIGITS = 4  # significant, of values from a range of floats
CORNERS = 2_000  # maximum of combinations to try for a valid one
EXAMPLE = "{low = 1e-5, high = 1e-3, log = true} or {choices = [1, 2]}"


class Range(NamedTuple):
    """All numbers from `low` to `high`, or every `step`-th."""

    low: float
    high: float
    log: bool = False  # uniform in the logarithm
    step: float | None = None
    whole: bool = False  # of an option that is a whole number

    @property
    def ends(self) -> list[Any]:
        """The values that are checked."""
        return [self.low, self.high]

    @property
    def widest(self) -> float:
        """A value with the longest possible text."""
        return self.high if self.whole else 1.234e-05

    def __str__(self) -> str:
        every = f" in steps of {self.step:g}" if self.step is not None else ""
        return f"{self.low:g} to {self.high:g}{every}{' (log)' if self.log else ''}"

    def value(self, drawn: float) -> float:
        """A drawn number as the option's value: floats have few digits, as names contain them."""
        if self.whole:
            return int(drawn)
        return min(max(float(f"{drawn:.{DIGITS}g}"), self.low), self.high)

    def holds(self, value: Any) -> bool:
        """Whether the value may be drawn."""
        if not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        return self.step is None or ((value - self.low) / self.step).is_integer()


class Choices(NamedTuple):
    """One of a few values."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> list[Any]:
        """The values that are checked."""
        return list(self.values)

    @property
    def labels(self) -> list[str]:
        """The values as text."""
        return [label(value) for value in self.values]

    @property
    def widest(self) -> Any:
        """The value with the longest text."""
        return max(self.values, key=lambda value: len(label(value)))

    def __str__(self) -> str:
        return ", ".join(self.labels)

    def value(self, drawn: str) -> Any:
        """The value with this label."""
        return self.values[self.labels.index(drawn)]

    def holds(self, value: Any) -> bool:
        """Whether the value may be drawn."""
        return value in self.values


Space = dict[str, Range | Choices]


def label(value: Any) -> str:
    """A value as text."""
    return value if isinstance(value, str) else json.dumps(value)


def default(algorithm: str) -> dict[str, Any]:
    """The default space of an algorithm, as TOML.

    Raises:
        DiscError: it has none, like the algorithms of other packages.
    """
    path = SPACES / f"{algorithm}.toml"
    if not path.is_file():
        raise DiscError(
            f"there is no default search space for {algorithm}; add a table [space] with the "
            f"options to tune, such as option = {EXAMPLE}."
        )
    return spec.read_toml(path)


def parse(given: Any, base: Mapping[str, Any]) -> Space:
    """The space of a study, checked.

    Args:
        given: its TOML.
        base: the arm without the searched options, as in a sweep's file.

    Raises:
        DiscError: an entry is invalid, or the algorithm refuses a value, whatever the others are.
    """
    given = spec.check_table("[space]", given)
    if not given:
        raise DiscError(f"[space] is empty; add options to tune, such as option = {EXAMPLE}.")
    config: Any = ALGORITHMS[base["algo"]].Config
    known = kinds(config)
    space: Space = {}
    for name, entry in given.items():
        if name not in known:
            raise DiscError(
                f"[space] {base['algo']} has no option {name}; it has {', '.join(known)}."
            )
        if name in base:
            raise DiscError(f"{name} is in [options] and in [space]; remove one.")
        space[name] = _entry(f"[space] {name}", entry, known[name])
    for name in space:
        _check_values(name, space, base)
    return space


def _entry(where: str, given: Any, kind: Any) -> Range | Choices:
    """A range or choices, as far as they can be checked without the other options."""
    if not isinstance(given, dict):
        raise DiscError(f"{where} must be a table, such as {EXAMPLE}, not {given!r}.")
    for key in given:
        if key not in ("low", "high", "log", "step", "choices"):
            raise DiscError(f"{where} has no {key!r}; use low, high, log and step, or choices.")
    if "choices" in given:
        return _choices(where, given)
    plain = [x for x in get_args(kind) if x is not type(None)] or [kind]
    if plain[0] not in (int, float) or len(plain) > 1:
        raise DiscError(f"{where} can't be a range; give choices = a list of values.")
    return _range(where, given, plain[0])


def _choices(where: str, given: dict[str, Any]) -> Choices:
    values = given["choices"]
    if len(given) > 1:
        raise DiscError(f"{where} must have either choices, or low and high.")
    if not isinstance(values, list) or len(values) < 2:
        raise DiscError(f"{where}.choices must be a list of two or more values, not {values!r}.")
    found = Choices(tuple(values))
    if len({*found.labels}) < len(values):
        raise DiscError(f"{where}.choices has a value twice: {found}.")
    return found


def _range(where: str, given: dict[str, Any], kind: type) -> Range:
    if not {"low", "high"} <= given.keys():
        raise DiscError(f"{where} must have low and high, or choices.")
    low, high = (spec.check_type(f"{where}.{name}", given[name], kind) for name in ("low", "high"))
    log = spec.check_type(f"{where}.log", given.get("log", False), bool)
    step = given.get("step")
    if low >= high:
        raise DiscError(f"{where}.low must be below high, {high:g}, not {low:g}.")
    if log and low <= 0:
        raise DiscError(f"{where}.low must be above 0 if log is true, not {low:g}.")
    if step is not None:
        step = spec.check_type(f"{where}.step", step, kind)
        if log:
            raise DiscError(f"{where} can't have both log and step; remove one.")
        if step <= 0 or abs((high - low) / step - round((high - low) / step)) > 1e-9:
            raise DiscError(f"{where}.step must be above 0 and divide high − low, not {step:g}.")
    return Range(low, high, log, step, kind is int)


def _check_values(name: str, space: Space, base: Mapping[str, Any]) -> None:
    """Raise a `DiscError` if the algorithm refuses a value for all ends of the other ranges."""
    others = [[(other, x) for x in entry.ends] for other, entry in space.items() if other != name]
    for value in space[name].ends:
        first = _refusal({**base, name: value})
        if first is None:
            continue
        corners: Iterator[tuple[tuple[str, Any], ...]] = itertools.product(*others)
        tried = ({**base, **dict(corner), name: value} for corner in corners)
        if all(_refusal(options) is not None for options in itertools.islice(tried, CORNERS)):
            raise DiscError(f"[space] {name}: {label(value)} is refused: {first}")


def _refusal(given: Mapping[str, Any]) -> str | None:
    """Why an arm is invalid; None if it is not."""
    try:
        spec.single_arm(given)
    except DiscError as error:
        return str(error)
    return None
