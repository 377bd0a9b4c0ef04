"""`python -m tools.scores` gives the numbers that the documents quote."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from disc import DiscError
from tests.support import studies
from tools import scores

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "results" / "paper"


@pytest.mark.parametrize(
    ("task", "count", "best"), [("walker2d", 8, "4,946"), ("half-cheetah", 6, "5,224")]
)
def test_readme_quotes_the_pooled_scores(task: str, count: int, best: str) -> None:
    runs = sorted((PAPER / task).glob("ppo*_seed*"))
    assert scores.pooled(runs).startswith(f"{count} runs: max average return {best} ±")
    assert best in (ROOT / "README.md").read_text(encoding="utf-8")


def test_csv_has_one_row_per_run(tmp_path: Path) -> None:
    runs = sorted((PAPER / "hopper").glob("disc_paper_seed*"))
    scores.write_csv(runs, tmp_path / "scores.csv")
    rows = list(csv.DictReader((tmp_path / "scores.csv").open(encoding="utf-8")))
    assert [row["seed"] for row in rows] == [run.name[-1] for run in runs]
    assert len(rows) > 1
    assert {row["settings"] for row in rows} == {"disc"}


def test_options_that_a_run_left_open_are_listed_as_it_used_them(tmp_path: Path) -> None:
    arms = [{"algo": "disc", "preset": "recommended", "noise_color": 0.0}]
    (cell,) = studies.study(tmp_path, arms=arms).cells()
    left_open = dataclasses.asdict(cell.config(cell.options, "recommended"))
    listed = scores.settings({"algorithm": "disc", "env": "Hopper-v5", "config": left_open}).split()
    assert "final_std=0.25" in listed
    assert not any(x.startswith(("noise_color", "epsilon_b")) for x in listed)  # the paper's


def test_run_without_evaluations_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text("step\n1\n")
    with pytest.raises(DiscError, match="has no evaluations"):
        scores.curve(tmp_path)


@pytest.mark.parametrize(("algorithm", "wanted"), [("disc", 0.4), ("ppo", None)])
def test_share_of_iterations_with_the_penalty_off_its_target(
    algorithm: str, wanted: float | None, tmp_path: Path
) -> None:
    (cell,) = studies.study(tmp_path, arms=[{"algo": algorithm, "preset": "paper"}]).cells()
    run = studies.record(tmp_path / "runs", cell, 1)
    values = (0.00049, 0.00051, 0.001, 0.00199, 0.00201)  # J_targ is 0.001
    lines = [f"{i},{x}" for i, x in enumerate(values, 1)]
    (run / "progress.csv").write_text("\n".join(["step,is/j_is", *lines, ""]))
    assert scores.off_target(run) == wanted


def test_docs_quote_the_table_of_discrete_actions() -> None:
    folders = ROOT / "results" / "discrete"
    runs = [
        path.parent
        for name in ("half_cheetah", "ant", "gaussian")
        for path in sorted((folders / name).glob("*/*_seed*/config.json"))
    ]
    runs += [
        x
        for arm in ("disc_paper", "ppo")
        for x in sorted((PAPER / "half-cheetah").glob(f"{arm}_seed*"))
    ]
    page = (ROOT / "docs" / "discrete-actions.md").read_text(encoding="utf-8")
    assert scores.table(runs, 1_001_472) in page
