"""Code in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def files(page: str) -> dict[str, str]:
    """The code blocks of a page that begin with a file's name in a comment, by that name."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n(# (\S+\.\w+)\n.*?)^```$", text, re.M | re.S)
    return {name: block for block, name in blocks}


def python(page: str) -> list[str]:
    """The Python blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
