"""The diff of PPO and DISC with which docs/disc.md opens."""

from __future__ import annotations

from pathlib import Path

from tools.difference import difference

PAGE = Path(__file__).parents[2] / "docs" / "disc.md"


def test_page_has_the_current_diff() -> None:
    shown = PAGE.read_text().split("<!-- difference -->\n```diff\n")[1].split("\n```\n<!--")[0]
    assert shown == difference().rstrip(), "docs/disc.md: paste `python -m tools.difference`"


def test_diff_shows_the_three_changes_of_the_paper() -> None:
    added = [line[1:] for line in difference().splitlines() if line.startswith("+")]
    for change in ("dimension_clip", "dimension_deviation", "gae_v", "is_penalty"):
        assert any(change in line for line in added), change
