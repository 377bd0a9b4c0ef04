"""Untrusted experiments and progress files cannot leave their directory or break a report."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disc import DiscError, report
from disc.report import details, load, plots
from disc.run import log
from disc.study import spec, statistics, sweep
from disc.study.spec import Arm, Cell, plain
from faults import studies
from tests.support import sweeps
from tests.support.sweeps import small, written

# Names


@pytest.mark.parametrize("name", ["..", ".", "", "../../x", "/etc/x", "a/../b", "~", "...", "a\0b"])
def test_names_cannot_lead_out_of_the_directory(name: str, tmp_path: Path) -> None:
    arm = Arm(name, "disc", {}, 1, {name: name})
    cell = Cell(name, arm, 0, 1, 1, 1, 1, 1)
    assert len(cell.path.parts) == 2
    assert (tmp_path / cell.path).resolve().parents[1] == tmp_path.resolve()
    assert plain(name) not in ("", ".", "..")
    assert "/" not in plain(name)


# Experiments


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(small().as_json()), **changes})


@pytest.mark.parametrize(
    "odd",
    [
        {"seeds": ["/../../x"]},
        {"seeds": [-1]},
        {"seeds": [10**300]},
        {"tasks": []},
        {"tasks": [["hopper"]]},
        {"tasks": ["nowhere"]},
        {"arms": []},
        {"arms": [["DISC", "disc"]]},
        {"arms": [{"label": f"{i}", "algorithm": "disc"} for i in range(1001)]},
        {"arms": [{"label": "x", "algorithm": "magic"}]},
        {"arms": [{"label": 3, "algorithm": "disc"}]},
        {"arms": [{"label": "x", "algorithm": "disc", "options": [1]}]},
        {"arms": [{"label": "x", "algorithm": "disc", "options": {"tau": "x" * 300}}]},
        {"arms": [{"label": "x", "algorithm": "disc", "options": {"anneal_steps": "x"}}]},
        {"steps": {"hopper": "many"}},
        {"steps": {"hopper": math.inf}},
        {"eval_every": "often"},
        {"scale": math.nan},
        {"scale": 0},
        {"cut": -3},
        {"title": ["x"]},
        {"table": "yes"},
        {"paper": {"DISC": [1]}},
        {"paper": {"DISC": {"hopper": []}}},
        {"paper": {"DISC": {"hopper": [math.nan]}}},
        {"figures": [{"title": "x", "metric": [3], "arms": []}]},
        {"figures": [{"title": "x", "metric": ["a"], "arms": [], "window": 10**9}]},
        {"figures": [{"title": "x", "metric": ["a"], "arms": [], "line": 1e308}]},
        {"figures": [{"title": "x", "metric": ["a"], "arms": [], "together": []}]},
        {"more": 1},
    ],
    ids=lambda odd: str(odd)[:60],
)
def test_invalid_experiments_raise(odd: dict[str, Any]) -> None:
    with pytest.raises(DiscError, match="can't be read as an experiment"):
        spec.from_json(changed(**odd), Path("x.json"))


@pytest.mark.parametrize("text", ["[" * 100_000, "3", "[]", "{}", '"x"', "null"])
def test_json_that_is_not_an_experiment_raises(text: str) -> None:
    with pytest.raises(DiscError, match="can't be read as an experiment"):
        spec.from_json(text, Path("x.json"))


def test_small_file_cannot_define_millions_of_runs() -> None:
    names = [f"t{i}" for i in range(500)]
    steps = dict.fromkeys(names, 9)
    many = changed(tasks=names, steps=steps, anneal_steps=steps, seeds=list(range(500)))
    with pytest.raises(DiscError, match="more than 100,000"):
        spec.from_json(many, Path("x.json"))


@pytest.mark.parametrize(
    "line",
    [
        f"note = {'9' * 5_000}",
        f"steps = {'9' * 400}",
        'tasks = ["hopper", ".."]',
        "seeds = []",
        f"title = {'[' * 5_000}{']' * 5_000}",
        f'[[arms]]\nalgo = "disc"\nepochs = {list(range(1, 1_002))}',
        '[[arms]]\nalgo = "sac"\ntau = 1e400',
        f'[[arms]]\nalgo = "sac"\ntau = {"9" * 400}',
        f'[[arms]]\nalgo = "sac"\nenv_kwargs = {{x = "{"y" * 300}"}}',
        '[[figures]]\ntitle = "x"\nline = inf',
    ],
    ids=lambda line: line[:40],
)
def test_invalid_toml_files_raise(line: str, tmp_path: Path) -> None:
    start = "" if line.startswith("tasks") else 'tasks = ["hopper"]\n'
    arms = "" if "[[arms]]" in line else '\n[[arms]]\nalgo = "disc"'
    (tmp_path / "x.toml").write_text(f"{start}{line}{arms}\n")
    with pytest.raises(DiscError, match=r"x\.toml: "):
        spec.read(tmp_path / "x.toml")


# Reports


def test_lone_surrogate_does_not_break_a_report(tmp_path: Path) -> None:
    bad = small(title="half \ud800", arms=(Arm("\ud800", "disc"),), paper={})
    sweeps.write(tmp_path, small())
    (tmp_path / "small.json").write_text(json.dumps(json.loads(bad.as_json())))
    for cell in bad.cells():
        sweeps.run(tmp_path, cell, commit="\ud800")
    page = written(tmp_path)
    assert "half \\ud800" in page.text
    assert json.loads(page.scripts[0])["lines"][0]["label"] == "\ud800"


def test_run_with_an_invalid_date_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems allow dates beyond Python's calendar."""

    class Calendar:
        @staticmethod
        def fromtimestamp(seconds: float) -> None:
            raise ValueError("year 33658 is out of range")

    monkeypatch.setattr(load, "datetime", Calendar)
    sweeps.run(tmp_path, small().cells()[0])
    with pytest.raises(DiscError, match="contains no runs"):
        report.write(tmp_path)


@pytest.mark.parametrize("value", ["1e308", "-1e308", "inf", "nan", "1e400"])
def test_extreme_and_non_finite_values_do_not_break_a_report(value: str, tmp_path: Path) -> None:
    sweeps.write(tmp_path, small())
    for cell in small().cells():
        path = sweeps.run(tmp_path, cell) / "progress.csv"
        path.write_text(path.read_text().replace("1000.0\n", f"{value}\n", 3))
    studies.page(tmp_path)


def test_huge_step_does_not_allocate_a_huge_grid() -> None:
    curve = (np.array([4_000, 2**52, 2**53]), np.array([1.0, 2.0, 3.0]))
    assert statistics.max_average_return([curve]).value == 2.0
    usual = (np.arange(4_000, 400_001, 4_000), np.arange(100.0))
    assert statistics.max_average_return([usual]).step == 400_000


def test_invalid_experiment_is_left_out_and_the_others_shown(tmp_path: Path) -> None:
    sweeps.sweep(tmp_path, small())
    (tmp_path / "odd.json").write_text(changed(seeds=["/../x"]))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    os.mkfifo(tmp_path / "pipe.json")
    text = written(tmp_path).text
    for name in ("odd.json", "deep.json", "pipe.json"):
        assert f"Left out: {name}" in text
    assert "A small experiment" in text


# Progress files

HEAD = "step,eval/return,eval/return_std\n"


@pytest.mark.parametrize(
    "rows",
    ["1,2,3,4\n", "inf,1,1\n", "-1,1,1\n", "1e300,1,1\n", f"1,{'9' * 140_000},1\n", ",1,1\n"],
    ids=lambda rows: rows[:20],
)
def test_invalid_progress_files_raise(rows: str, tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text(HEAD + rows)
    with pytest.raises(ValueError, match=r"damaged|a step is invalid"):
        log.read_progress(path)
    with pytest.raises(DiscError, match=r"can't be read as a progress\.csv"):
        plots.curves([path], tmp_path / "x.svg")


def test_plot_accepts_missing_deviations_and_odd_folder_names(tmp_path: Path) -> None:
    """An evaluation without its deviation, and a folder name that is a TeX formula."""
    folders = [tmp_path / "$\\frac$", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / "progress.csv").write_text(HEAD + "1,2,\n2,3,1\n3,inf,nan\n4,1e308,1\n")
    plots.curves(folders, tmp_path / "x.svg")
    assert "frac" in (tmp_path / "x.svg").read_text()


def test_sweep_status_tolerates_invalid_files(tmp_path: Path) -> None:
    cell = small().cells()[0]
    path = sweeps.run(tmp_path, cell)
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "step_x.safetensors").write_text("")
    (path / "progress.csv").write_text("time/elapsed\n1\n")
    (found,) = sweep.look(tmp_path, [cell])
    assert (found.step, found.saved, found.done) == (0, None, False)
    (path / "progress.csv").write_text("step\ninf\n")
    assert sweep.look(tmp_path, [cell])[0].step == 0


def test_pairs_of_many_arms_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(details, "PAIRED", 2)
    arms = tuple(Arm(f"arm {i}", "disc") for i in range(3))
    found = dataclasses.replace(sweeps.experiment(seeds=(0, 1)), arms=arms)
    sweeps.sweep(tmp_path, dataclasses.replace(found, arms=arms[:1]))  # which all of them share
    sweeps.write(tmp_path, found)
    page = report.write(tmp_path).read_text()
    assert "Pairs are omitted for more than 2 arms." in page
