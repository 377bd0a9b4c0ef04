"""`python -m tools.versus` compares two arms at the seeds that both have."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tools import versus

PAPER = Path(__file__).parents[2] / "results" / "paper"


def test_only_common_seeds_are_compared(tmp_path: Path) -> None:
    task = tmp_path / "hopper"
    task.mkdir()
    for name in ("disc_paper_seed0", "disc_paper_seed1", "ppo_seed1", "ppo_seed2"):
        (task / name).symlink_to(PAPER / "hopper" / name)
    found = versus.row(task, "disc_paper", "ppo")
    assert found is not None
    assert found.startswith("| Hopper-v5 | 1,000,000 | 1 | ")
    assert versus.row(task, "disc_paper", "sac") is None


def test_ratio_is_of_means_and_its_interval_resamples_pairs() -> None:
    theirs = np.array([1.0, 2.0, 4.0])
    assert versus.ratio(2.0 * theirs, theirs) == "2.00 (2.00 to 2.00)"
    assert versus.ratio(np.array([6.0, 1.0]), np.array([1.0, 1.0])) == "3.50 (1.00 to 6.00)"
    assert versus.ratio(np.array([3.0]), np.array([2.0])) == "1.50"


def test_unfinished_runs_are_left_out(tmp_path: Path) -> None:
    for name in ("disc_paper_seed0", "ppo_seed0"):
        shutil.copytree(PAPER / "hopper" / name, tmp_path / name)
    assert versus.row(tmp_path, "disc_paper", "ppo") is not None
    record = tmp_path / "disc_paper_seed0" / "progress.csv"
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:-1]))
    assert not versus.done(record.parent)
    assert versus.row(tmp_path, "disc_paper", "ppo") is None
