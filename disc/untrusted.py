"""Text from files that may be a stranger's: read, parsed and shown with care."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

LARGE = 10**7  # bytes: a config takes some thousands
RECORD = 10**8  # bytes of a run's record, which has a row for every iteration
DEPTH = 50  # containers within each other
LONG = 2_000  # characters of a message
DRAWN = 1e30  # number in a figure or a table: the square of a larger one may overflow

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What values of a wrong type, size or shape raise where they are used."""


def printable(text: str, most: int = LONG) -> str:
    """Text for a terminal: cut if it is long, and what a terminal would obey is escaped."""
    if len(text) > most:
        text = f"{text[: most // 2]} … {text[-most // 2 :]}"
    if text.isprintable():
        return text
    shown = (x if x.isprintable() else x.encode("unicode_escape").decode() for x in text)
    return "".join(shown)


def read_text(path: Path, most: int = LARGE) -> str:
    """The text of a file.

    Raises:
        OSError: it is no file but a pipe or a device, which may never end, or too large.
        UnicodeDecodeError: it is no text.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if path.stat().st_size > most:
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
    return path.read_text(encoding="utf-8")


def parse(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, or so deep that printing it would fail.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Refuse lists and tables in each other without end.

    Raises:
        ValueError: there are more than anybody needs.
    """
    level = [value]
    for _ in range(DEPTH):
        tables = [x.values() for x in level if isinstance(x, dict)]
        level = [x for some in level if isinstance(some, list) for x in some]
        level += [x for some in tables for x in some]
        if not level:
            return
    raise ValueError("nested too deeply")
