"""Generating HTML. Text that is not `Html` is escaped, so files can't inject markup."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

VOID = ("meta", "br")


class Html(str):
    """Markup that is not escaped."""

    __slots__ = ()


def escape(value: object) -> Html:
    """Escape text; `Html` is unchanged."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object], between: str = "") -> Html:
    """Join escaped parts."""
    return Html(escape(between).join(escape(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. `class_` is class, `data_key` data-key; None and False omit an attribute."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            parts.append(key if value is True else f'{key}="{escape(value)}"')
    start = f"<{' '.join(parts)}>"
    return Html(start if name in VOID else f"{start}{join(children)}</{name}>")


def data(value: Any) -> Html:
    """JSON for a script, without characters that could end its element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return tag("script", Html(text), type="application/json")


class TableCell(NamedTuple):
    """A table's cell: its content and its sort key."""

    shown: object
    key: float | str | None = None  # None comes last


class Column(NamedTuple):
    """A table's column."""

    title: str
    kind: str = ""  # number, or a CSS class


def numeric(*titles: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, "number") for title in titles]


def note(text: str) -> Html:
    """An explanation of a table."""
    return tag("p", text, class_="note")


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[object]], heads: int = 2
) -> Html:
    """A scrollable, sortable table; the first `heads` cells of a row are headers."""
    top = [
        tag("th", column.title, scope="col", class_=_kind(column, i, heads))
        for i, column in enumerate(columns)
    ]
    body = []
    for row in rows:
        cells = zip(row, columns, strict=True)
        body.append(tag("tr", *(_cell(x, column, i, heads) for i, (x, column) in enumerate(cells))))
    inner = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", *top)),
        tag("tbody", join(body, "\n")),
        class_="sortable",
    )
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _kind(column: Column, index: int, heads: int) -> str | None:
    """The CSS class of a cell; headers stay visible."""
    return ("first", "second")[index] if index < heads else column.kind or None


def _cell(value: object, column: Column, index: int, heads: int) -> Html:
    shown, key = value if isinstance(value, TableCell) else (value, str(value))
    name, scope = ("th", "row") if index < heads else ("td", None)
    key = "" if key is None else key
    return tag(name, shown, scope=scope, class_=_kind(column, index, heads), data_key=key)


NOTHING = TableCell("–")


def measured(value: float, spread: float | None = None) -> TableCell:
    """A number with its ±, if given: 246,436 ± 40,387, 314.3, −0.250."""
    size = max(abs(value), spread or 0.0)
    both = [value] if spread is None else [value, spread]
    return TableCell(" ± ".join(_fixed(x, size) for x in both), value)


def _fixed(value: float, size: float) -> str:
    """Format a value with the decimal places of a number of some size."""
    places = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    tiny = 0 < size < 0.01
    return (f"{value:.2g}" if tiny else f"{value:,.{places}f}").replace("-", "−")


def between(ends: tuple[float, float] | None) -> TableCell:
    """An interval."""
    return TableCell(" to ".join(_fixed(x, abs(x)) for x in ends), ends[0]) if ends else NOTHING


def several(count: int, word: str) -> str:
    """1 run, 2 runs."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def some(names: Sequence[str], most: int = 4) -> str:
    """The first few of many names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
