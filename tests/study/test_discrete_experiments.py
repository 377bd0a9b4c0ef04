"""The experiments with discrete actions can be read, and their environments made."""

from __future__ import annotations

from pathlib import Path

import pytest

from disc.study import spec, sweep

FILES = sorted((Path(__file__).parents[2] / "results" / "discrete").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_experiment_has_three_seeds_of_both_algorithms(path: Path, tmp_path: Path) -> None:
    found = spec.read(path)
    cells = found.cells()
    assert {cell.arm.algorithm for cell in cells} == {"disc", "ppo"}
    assert {cell.seed for cell in cells} == {0, 1, 2}
    sweep.check_environments([sweep.status(tmp_path, cell) for cell in cells])


def test_there_are_three_experiments() -> None:
    assert [path.stem for path in FILES] == ["ant", "gaussian", "half_cheetah"]
