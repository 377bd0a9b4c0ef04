"""Parts of Markdown pages that tools write, between `<!-- NAME -->` and `<!-- /NAME -->`."""

from __future__ import annotations

from pathlib import Path

from disc import storage
from disc.types import DiscError


def replace(page: Path, name: str, text: str) -> None:
    """Replace the lines between the markers of a part.

    Raises:
        DiscError: the page does not have both markers.
    """
    before, after = parts(page, name)
    storage.write_text(page, before + text + after)


def parts(page: Path, name: str) -> tuple[str, str]:
    """The text of a page up to a part, and from its end on, both with the marker.

    Raises:
        DiscError: the page does not have both markers, or is not text.
    """
    try:
        before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    except UnicodeDecodeError as error:
        raise DiscError(f"{page}: is not UTF-8 text.") from error
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (start and end):
        raise DiscError(f"{page}: has no lines <!-- {name} --> and <!-- /{name} -->.")
    return before + start, end + after
