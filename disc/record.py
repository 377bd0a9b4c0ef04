"""The rows of a run in memory: a list of dictionaries to look at, columns of numbers inside."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import overload

from disc.types import Metrics


class Record(Sequence[Metrics]):
    """Rows of numbers, at eight bytes each: a sixth of what dictionaries take.

    Args:
        rows: what it holds at first.
    """

    def __init__(self, rows: Iterable[Metrics] = ()) -> None:
        self._columns: dict[str, array[float]] = {}
        self._length = 0
        for row in rows:
            self.append(row)

    def append(self, row: Metrics) -> None:
        """Add a row; what is NaN in it counts as not measured."""
        for name in row:
            if name not in self._columns:
                self._columns[name] = array("d", [math.nan]) * self._length
        for name, column in self._columns.items():
            column.append(row.get(name, math.nan))
        self._length += 1

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Metrics: ...

    @overload
    def __getitem__(self, index: slice) -> list[Metrics]: ...

    def __getitem__(self, index: int | slice) -> Metrics | list[Metrics]:
        if isinstance(index, slice):
            return [self._row(i) for i in range(self._length)[index]]
        return self._row(range(self._length)[index])

    def _row(self, i: int) -> Metrics:
        values = ((name, column[i]) for name, column in self._columns.items())
        row = {name: value for name, value in values if not math.isnan(value)}
        return {**row, "step": int(row["step"])} if "step" in row else row

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))
