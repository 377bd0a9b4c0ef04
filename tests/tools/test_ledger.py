"""`tools.ledger` lists what is missing of a sweep and what it costs; `tools.pages` writes parts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from disc.types import DiscError
from tests.support import sweeps
from tools import ledger, pages

PAGE = "Before\n<!-- ledger -->\nold\n<!-- /ledger -->\nAfter\n"


def test_missing_runs_cost_as_much_as_the_finished_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sweeps.experiment(seeds=(0, 1, 2))
    sweeps.write(tmp_path, found)
    for seed in (0, 1):
        sweeps.run(tmp_path, found.cell("hopper", sweeps.DISC, seed), 3000.0)
    (study,) = ledger.load.load(tmp_path).studies
    seconds = ledger.pace(study.groups["hopper", "DISC"])
    assert seconds is not None

    (tmp_path / "page.md").write_text(PAGE)
    args = ["ledger", str(tmp_path), "--page", str(tmp_path / "page.md")]
    monkeypatch.setattr(sys, "argv", args)
    ledger.main()
    first, *lines, last = (tmp_path / "page.md").read_text().splitlines()
    hours = 100_000 * seconds / 3600
    assert (first, last) == ("Before", "After")
    assert f"| hopper | DISC | 0, 1 | 0123456 | 1 | {hours:.1f} |" in lines
    assert f"| hopper | PPO | – | – | 3 | ~{3 * hours:.1f} |" in lines
    assert "| walker2d | DISC | – | – | 3 | ? |" in lines
    assert "6 more are of tasks without any run." in lines[-2]


def test_directory_without_a_table_ends_with_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ledger", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        ledger.main()
    assert stopped.value.code == 2
    assert "contains no runs" in capsys.readouterr().err


def test_page_without_markers_is_refused_and_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.raises(DiscError, match="has no lines <!-- other -->"):
        pages.replace(page, "other", "new\n")
    assert page.read_text() == PAGE
