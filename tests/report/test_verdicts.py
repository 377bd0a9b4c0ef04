"""The report's comparison with the paper's numbers, and its warnings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from disc.report import details, load, page, tables
from disc.report.tables import PAPER_TASKS
from disc.study.statistics import MaxAverage
from tests.support import sweeps
from tests.support.sweeps import Page, small, written


def row_of(root: Path, arm: str = "DISC", task: str = "hopper") -> tables.Row:
    (study,) = load.load(root).studies
    rows = tables.rows(study)
    return next(x for x in rows if (x.group.arm, x.group.task) == (arm, task))


def said(root: Path) -> str:
    return "\n".join(page.warnings(load.load(root)))


# Verdicts


@pytest.mark.parametrize(
    ("value", "spread", "paper", "kind"),
    [
        (100.0, 0.0, [100.0], "above"),
        (99.0, 1.0, [100.0], "within"),
        (99.0, 0.9, [100.0], "below"),
        (80.0, 10.0, [100.0, 10.0], "within"),
        (79.0, 10.0, [100.0, 10.0], "below"),
        (-50.0, 3.0, [-62.11], "above"),
        (-70.0, 8.0, [-62.11], "within"),
    ],
)
def test_comparison_with_the_paper_considers_both_spreads(
    value: float, spread: float, paper: list[float], kind: str
) -> None:
    assert tables.compare(value, spread, paper) == kind


def test_table_row_matches_hand_calculation(tmp_path: Path) -> None:
    """Two seeds, constant 3,400 and 3,600: mean 3,500, deviation 100, paper 3,570 ± 200."""
    found = small()
    sweeps.write(tmp_path, found)
    for seed, value in ((0, 3400.0), (1, 3600.0)):
        sweeps.run(tmp_path, found.cell("hopper", sweeps.DISC, seed), value)
    row = row_of(tmp_path)
    assert row.ours == MaxAverage(3500.0, 100.0, 84_000)  # the 21st point of the grid
    assert row.interval == (3400.0, 3600.0)
    assert tables.verdict(row) == ("within", "within the spread", "")
    assert tables.verdict(row_of(tmp_path, "PPO")) == ("missing", "not run yet", "")


def test_shortened_runs_are_not_comparable(tmp_path: Path) -> None:
    found = small(steps=1_000_000, cut=100_000)
    row = row_of(sweeps.sweep(tmp_path / "cut", found, 5000.0))
    assert tables.verdict(row) == ("apart", "not comparable: shortened", "")
    page = written(tmp_path / "cut")
    short = "runs cut at 100,000 steps"
    assert f"A small experiment – {short}" in page.text
    assert f"Learning curves ({short})" in page.text
    assert f"± standard deviation over seeds ({short})" in page.text
    assert f"small: {short}; not comparable with full runs." in page.text
    row = row_of(sweeps.sweep(tmp_path / "scale", small(steps=1_000_000, scale=0.1), 5000.0))
    assert tables.verdict(row).text == "not comparable: shortened"
    row = row_of(sweeps.sweep(tmp_path / "uncut", small(cut=100_000), 5000.0))
    assert tables.verdict(row).text == "at or above"  # the cut is at its normal end


def test_unfinished_runs_are_left_out_and_reported(tmp_path: Path) -> None:
    found = small()
    sweeps.write(tmp_path, found)
    zero, one = (found.cell("hopper", sweeps.DISC, seed) for seed in (0, 1))
    sweeps.run(tmp_path, zero, 9000.0, done=50_000)
    row = row_of(tmp_path)
    assert tables.verdict(row) == ("apart", "not comparable: unfinished", "")
    assert "1 run unfinished (hopper/disc_paper_seed0)" in said(tmp_path)
    assert "Unfinished: DISC on hopper." in written(tmp_path).text
    sweeps.run(tmp_path, one, 3700.0)
    row = row_of(tmp_path)
    assert row.ours
    assert (row.ours.value, row.seeds) == (3700.0, 1)
    left = "1 unfinished run left out"
    assert tables.verdict(row) == ("above", "at or above", left)
    assert f"at or above {left}" in written(tmp_path).text
    assert "1 of 2" in written(tmp_path).text


def test_run_that_stopped_early_is_finished_but_not_comparable(tmp_path: Path) -> None:
    found = small(stop_at={"hopper": 3500.0})
    sweeps.write(tmp_path, found)
    cell = found.cells()[0]
    best = {"step": 50_000, "return": 3600.0, "return_std": 9.0, "episodes": 10, "by": "mean"}
    best["reevaluated"] = {"return": 3210.0, "return_std": 70.0, "episodes": 10}
    plan = {**sweeps.config(cell)["plan"], "stop_at": 3500.0, "best": "mean"}
    end = {"step": 50_000, "early": True, "reason": "…", "best": best}
    sweeps.run(tmp_path, cell, 3600.0, done=50_000, plan=plan, ended=end)
    judged = tables.verdict(row_of(tmp_path))
    assert judged == ("apart", "not comparable: stopped early", "1 run stopped early")
    page = written(tmp_path).text
    assert "1 finished, 0 unfinished" in page
    assert "48,000 (stopped early)" in page
    assert "3,600 3,600 50k 3,210 ± 70" in page  # last, best, its step, re-evaluated


def test_run_without_evaluations_has_no_verdict(tmp_path: Path) -> None:
    found = small()
    sweeps.write(tmp_path, found)
    path = sweeps.run(tmp_path, found.cells()[0])
    (path / "progress.csv").write_text("step,time/elapsed\n2048,1.0\n")
    assert tables.verdict(row_of(tmp_path)).text == "no evaluation yet"
    assert "No data yet." in written(tmp_path).text


def test_steps_beyond_the_plan_are_ignored(tmp_path: Path) -> None:
    """A run of 100,000 steps in an experiment of 50,000."""
    longer = small(cut=100_000, steps=1_000_000)
    cell = longer.cell("hopper", sweeps.DISC, 0)
    sweeps.run(tmp_path, cell, lambda share: 1000.0 + 1000.0 * (share > 0.5))
    sweeps.write(tmp_path, small(cut=50_000, steps=1_000_000))
    row = row_of(tmp_path)
    assert row.group.finished
    assert row.ours
    assert row.ours.value == 1000.0


# Warnings


def test_fewer_than_five_seeds_give_a_warning(tmp_path: Path) -> None:
    sweeps.sweep(tmp_path / "five", small(seeds=(0, 1, 2, 3, 4)))
    assert "Fewer than five seeds" not in said(tmp_path / "five")
    sweeps.sweep(tmp_path / "four", small(seeds=(0, 1, 2, 3)))
    assert "Fewer than five seeds (DISC on hopper: 4, PPO on hopper: 4)" in said(tmp_path / "four")


def test_different_versions_between_runs_give_a_warning(tmp_path: Path) -> None:
    found = small()
    sweeps.sweep(tmp_path / "same", found)
    assert "version" not in said(tmp_path / "same")
    sweeps.write(tmp_path, found)
    for cell in found.cells():
        versions = {**sweeps.VERSIONS, "mujoco": f"3.{cell.seed}"}
        sweeps.run(tmp_path, cell, versions=versions)
    assert "The version of MuJoCo differs between runs of small: 3.0 or 3.1." in said(tmp_path)
    assert "Gymnasium differs" not in said(tmp_path)


def test_version_change_within_a_run_gives_a_warning(tmp_path: Path) -> None:
    found = small()
    sweeps.write(tmp_path, found)
    resumed = [{"step": 50_000, "versions": {"gymnasium": "1.3.0"}, "command": ["disc", "resume"]}]
    sweeps.run(tmp_path, found.cells()[0], resumed=resumed)
    assert "version of Gymnasium differs between runs of small: 1.2.0 or 1.3.0" in said(tmp_path)
    assert "at step 50000: disc resume" in written(tmp_path).text


def test_note_on_the_papers_tasks_needs_paper_numbers(tmp_path: Path) -> None:
    sweeps.sweep(tmp_path / "paper", small())
    assert PAPER_TASKS in said(tmp_path / "paper")
    assert written(tmp_path / "paper").text.count(PAPER_TASKS) == 2  # warning and table
    sweeps.sweep(tmp_path / "own", small(paper={}))
    page = written(tmp_path / "own")
    assert "MuJoCo 1.3" not in page.text
    assert "verdict" not in page.text


def test_damaged_runs_are_left_out_with_the_reason(tmp_path: Path) -> None:
    found = small(seeds=tuple(range(6)))
    sweeps.write(tmp_path, found)
    paths = [sweeps.run(tmp_path, found.cell("hopper", sweeps.DISC, seed)) for seed in range(6)]
    (paths[1] / "progress.csv").write_text("step,eval/return\nnonsense,1\n")
    (paths[2] / "config.json").write_text("{")
    (paths[3] / "progress.csv").write_text("step,eval/return\n2000,1\n1000,2\n")
    (paths[4] / "progress.csv").unlink()
    (paths[5] / "config.json").unlink()
    (tmp_path / "other.json").write_text('{"arms": [], "tasks": 3, "seeds": []}')
    (tmp_path / "unrelated.json").write_text('{"speed": 3}')
    (tmp_path / "torn.json").write_text("{")
    text = said(tmp_path)
    assert "Left out: hopper/disc_paper_seed1 – can't be read (could not convert" in text
    assert "Left out: hopper/disc_paper_seed2 – its config.json is damaged" in text
    assert "hopper/disc_paper_seed3 – can't be read (the steps in progress.csv decrease)" in text
    assert "Left out: hopper/disc_paper_seed4 – progress.csv is missing or damaged" in text
    assert "Left out: hopper/disc_paper_seed5 – not a run directory" in text
    assert "Left out: other.json – can't be read" in text
    assert "Left out: torn.json – can't be read" in text
    assert "unrelated" not in text
    assert row_of(tmp_path).seeds == 1
    assert (
        "1 of 12 planned runs here: 1 finished, 0 unfinished. 7 left out" in written(tmp_path).text
    )


def test_runs_with_other_options_are_left_out_or_reported(tmp_path: Path) -> None:
    found = small()
    sweeps.write(tmp_path, found)
    zero, one = (found.cell("hopper", sweeps.DISC, seed) for seed in (0, 1))
    other = sweeps.config(zero)
    sweeps.run(tmp_path, zero, config={**other["config"], "epsilon": 0.7})
    sweeps.run(tmp_path, one, plan={**other["plan"], "eval_every": 2_000})
    text = said(tmp_path)
    assert "paper_seed0 – does not match the experiment small (epsilon is 0.7, not 0.4)." in text
    assert "small: 1 run evaluated differently than planned: eval_every is 2000, not 4000." in text
    assert "Not part of an experiment, so listed only at the end: hopper/disc_paper_seed0." in text
    assert row_of(tmp_path).seeds == 1
    page = written(tmp_path)
    assert "1 of 4 planned runs here, and 1 other: 2 finished" in page.text
    assert "disc (no experiment)" in page.text


def test_seeds_beyond_the_experiment_are_included(tmp_path: Path) -> None:
    found = small()
    sweeps.sweep(tmp_path, found)
    sweeps.run(tmp_path, found.cell("hopper", sweeps.DISC, 17))
    assert row_of(tmp_path).seeds == 3


# Detailed statistics


def test_detailed_scores_match_hand_calculation(tmp_path: Path) -> None:
    found = small(seeds=(0, 1, 2, 3, 4))
    sweeps.write(tmp_path, found)
    for cell in found.cells():
        sweeps.run(tmp_path, cell, 3570.0 if cell.arm.label == "DISC" else 357.0 * cell.seed)
    (study,) = load.load(tmp_path).studies
    scores = details.scores(study)
    np.testing.assert_array_equal(scores["hopper", "PPO"].final, 357.0 * np.arange(5))
    by = details.references(study, scores)
    assert by.values == {"hopper": 3570.0}
    assert "the paper's value of DISC" in by.summary
    text = Page(details.careful(study)).text
    assert "DISC PPO 1.000 1.000 to 1.000 1" in text  # probability of improvement
    assert "PPO 1 5 0.200" in text  # normalised: the mean of 0, 0.1, … 0.4
    assert "Performance profiles" in text


def test_scores_without_the_paper_are_divided_by_the_best_arm(tmp_path: Path) -> None:
    found = small(paper={}, tasks=("hopper", "walker2d"))
    sweeps.write(tmp_path, found)
    for cell in found.cells():
        value = 200.0 if cell.arm.label == "DISC" else 100.0
        sweeps.run(tmp_path, cell, value if cell.task == "hopper" else -value)
    (study,) = load.load(tmp_path).studies
    by = details.references(study, details.scores(study))
    assert by.values == {"hopper": 200.0}
    assert "divided by the best arm's mean. Left out" in by.summary
    assert "walker2d" in by.summary
