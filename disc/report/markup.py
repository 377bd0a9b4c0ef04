"""Markup as text. Whatever is not marked as `Html` is escaped, so nothing slips in from a file."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

VOID = ("meta", "br")


class Html(str):
    """Markup that may stand in a page as it is."""

    __slots__ = ()


def escape(value: object) -> Html:
    """A text for a page; `Html` stays as it is."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after the other."""
    return Html(escape(between).join(escape(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. `class_` is class, `data_key` data-key; None and False leave an attribute out."""
    words = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            words.append(key if value is True else f'{key}="{escape(value)}"')
    start = f"<{' '.join(words)}>"
    return Html(start if name in VOID else f"{start}{join(children)}</{name}>")


def data(value: Any) -> Html:
    """JSON for a script to read, without a character that could end its element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return tag("script", Html(text), type="application/json")


class Cell(NamedTuple):
    """A table's cell: what it shows, and what it is sorted by."""

    shown: object
    key: float | str | None = None  # None comes last


class Column(NamedTuple):
    """A table's column."""

    title: str
    kind: str = ""  # number, or a class of its own


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[object]], heads: int = 2
) -> Html:
    """A table that scrolls by itself and can be sorted; the first cells of a row are its heads."""
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
    """Its class: heads stay in sight."""
    return ("first", "second")[index] if index < heads else column.kind or None


def _cell(value: object, column: Column, index: int, heads: int) -> Html:
    shown, key = value if isinstance(value, Cell) else (value, str(value))
    name, scope = ("th", "row") if index < heads else ("td", None)
    key = "" if key is None else key
    return tag(name, shown, scope=scope, class_=_kind(column, index, heads), data_key=key)


NOTHING = Cell("–")


def number(value: float) -> str:
    """A number for people: 246,436, 314.3, −0.250."""
    return _fixed(value, value)


def _fixed(value: float, like: float) -> str:
    """A value with as many places behind the point as suit another one's size."""
    size = abs(like)
    places = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    tiny = 0 < size < 0.01
    return (f"{value:.2g}" if tiny else f"{value:,.{places}f}").replace("-", "−")


def measured(value: float, spread: float | None = None) -> Cell:
    """A number with its ±, if it has one."""
    size = max(abs(value), spread or 0.0)
    return Cell(
        _fixed(value, size) + ("" if spread is None else f" ± {_fixed(spread, size)}"), value
    )


def between(ends: tuple[float, float] | None) -> Cell:
    """An interval."""
    return Cell(f"{number(ends[0])} to {number(ends[1])}", ends[0]) if ends else NOTHING


def several(count: int, word: str) -> str:
    """1 run, 2 runs."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def some(names: Sequence[str], most: int = 4) -> str:
    """The first of many names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
