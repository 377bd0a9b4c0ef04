"""The README's table and figure of a sweep."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from disc import DiscError
from tests.support import sweeps
from tests.support.sweeps import small
from tools import headline


def test_table_matches_hand_calculation(tmp_path: Path) -> None:
    """Two seeds of DISC, constant 3,400 and 3,600; an unfinished run of PPO is left out."""
    found = small()
    sweeps.write(tmp_path, found)
    for seed, value in ((0, 3400.0), (1, 3600.0)):
        sweeps.run(tmp_path, found.cell("hopper", sweeps.DISC, seed), value)
    sweeps.run(tmp_path, found.cell("hopper", sweeps.PPO, 0), 3000.0, done=50_000)
    headline.write(tmp_path)
    lines = (tmp_path / "small.md").read_text().splitlines()
    assert lines[2:] == [
        "| Hopper-v5 | DISC | 2 | 4,000 | 3,570 ± 200 | 3,500 ± 100 | 3,400 to 3,600 | 3,500 | "
        "3,500 | within the spread |"
    ]


def test_figure_has_one_panel_per_task(tmp_path: Path) -> None:
    found = sweeps.experiment(seeds=(0, 1))
    sweeps.sweep(tmp_path, found, lambda share: 4000.0 * share)
    (table, figure) = headline.write(tmp_path)
    assert len(table.read_text().splitlines()) == 6
    with Image.open(figure) as image:
        assert image.size[0] == 2 * 645  # 4.3 inches at 150 dots
        assert len(np.unique(np.asarray(image.convert("L")))) > 50


@pytest.mark.parametrize("words", [[], ["none"]])
def test_headline_command_without_a_sweep_ends_with_status_2(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tools.headline", *words])
    with pytest.raises(SystemExit) as stopped:
        headline.main()
    assert stopped.value.code == 2


def test_headline_command_writes_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeps.sweep(tmp_path, small())
    monkeypatch.setattr(sys, "argv", ["tools.headline", str(tmp_path)])
    headline.main()
    assert str(tmp_path / "small.png") in capsys.readouterr().out


def test_sweep_without_finished_runs_raises(tmp_path: Path) -> None:
    found = small()
    sweeps.write(tmp_path, found)
    sweeps.run(tmp_path, found.cell("hopper", sweeps.DISC, 0), done=50_000)
    with pytest.raises(DiscError, match="no finished run"):
        headline.write(tmp_path)


@pytest.mark.parametrize("page", ["README.md", "results/README.md"])
def test_pages_show_the_generated_table(page: str) -> None:
    root = Path(__file__).parents[2]
    _, _, rest = (root / page).read_text(encoding="utf-8").partition("<!-- table1 -->\n")
    shown, _, _ = rest.partition("<!-- /table1 -->")
    assert shown == (root / "results/paper/table1.md").read_text(encoding="utf-8")


def test_table_of_the_sweep_replaces_the_one_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- table1 -->\nold\n<!-- /table1 -->\nAfter\n")
    found = small(name="table1")
    sweeps.sweep(tmp_path / "sweep", found)
    args = ["tools.headline", str(tmp_path / "sweep"), "--pages", str(page)]
    monkeypatch.setattr(sys, "argv", args)
    headline.main()
    before, first, *lines, last, after = page.read_text().splitlines()
    assert (before, after) == ("Before", "After")
    assert (first, last) == ("<!-- table1 -->", "<!-- /table1 -->")
    assert lines == (tmp_path / "sweep" / "table1.md").read_text().splitlines()

    shown = page.read_text()
    (tmp_path / "sweep" / "table1.json").unlink()  # its table stays, but is not of this sweep
    sweeps.write(tmp_path / "sweep", small())
    with pytest.raises(SystemExit) as stopped:
        headline.main()
    assert stopped.value.code == 2
    assert "no finished run of table1" in capsys.readouterr().err
    assert page.read_text() == shown
