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
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (start and end):
        raise DiscError(f"{page}: has no lines <!-- {name} --> and <!-- /{name} -->.")
    storage.write_text(page, before + start + text + end + after)
