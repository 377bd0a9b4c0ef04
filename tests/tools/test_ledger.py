"""`tools.ledger` lists what is missing of a sweep and what it costs; `tools.pages` writes parts."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from disc.run.log import read_progress
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
        run = sweeps.run(tmp_path, found.cell("hopper", sweeps.DISC, seed), 3000.0)
        rows = read_progress(run / "progress.csv")
        took(run, seconds_per_step=0.36)  # ten hours in 100,000 steps
        assert rows[-1]["step"] == 100_000
    took(sweeps.run(tmp_path, found.cell("walker2d", sweeps.PPO, 0), 1.0, done=50_000), 0.72)
    config = json.loads((run / "config.json").read_text())
    config["resumed"] = [{"commit": "abcdef0123-dirty"}]
    (run / "config.json").write_text(json.dumps(config))

    (tmp_path / "page.md").write_text(PAGE)
    args = ["ledger", str(tmp_path), "--page", str(tmp_path / "page.md")]
    monkeypatch.setattr(sys, "argv", args)
    ledger.main()
    first, *lines, last = (tmp_path / "page.md").read_text().splitlines()
    assert (first, last) == ("Before", "After")
    assert "| hopper | DISC | 0, 1 | 0123456, abcdef0-dirty | 1 | 10.0 |" in lines
    assert "| hopper | PPO | – | – | 3 | ~30.0 |" in lines
    assert "| walker2d | DISC | – | – | 3 | ~60.0 |" in lines
    assert "| walker2d | PPO | – | – | 3 | ~60.0 |" in lines  # of an unfinished run
    assert "The missing runs would take 160 core-hours." in lines[-2]


def took(run: Path, seconds_per_step: float) -> None:
    """Rewrite the times of a run's record."""
    path = run / "progress.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["time/elapsed"] = str(seconds_per_step * float(row["step"]))
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


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
    page.write_bytes(b"\xff")
    with pytest.raises(DiscError, match="is not UTF-8 text"):
        pages.replace(page, "ledger", "new\n")
