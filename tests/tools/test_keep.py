"""The parts of a sweep that are kept in the repository."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from disc.run import log
from tools.keep import keep

CONFIG = {
    "algorithm": "disc",
    "env": "Hopper-v5",
    "env_kwargs": {},
    "seed": 0,
    "num_envs": 1,
    "threads": 1,
    "plan": {"steps": 30, "eval_every": 10, "eval_episodes": 1, "checkpoint_every": 0},
    "config": {"horizon": 10},
}


def write(run: Path, steps: list[int]) -> None:
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(CONFIG))
    lines = ["step,time/sampling,eval/return,is/batches"]
    lines += [f"{step},0.5,{step / 3:.9g},{'' if step == 20 else 2}" for step in steps]
    (run / "progress.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    root = tmp_path / "sweep"
    write(root / "hopper" / "disc_seed0", [10, 20, 30])
    write(root / "hopper" / "disc_seed1", [10, 20])
    (root / "hopper" / "disc_seed0" / "policy.disc").write_bytes(b"large")
    (root / "table1.json").write_text("{}")
    return root


def test_unfinished_runs_are_kept_if_asked(sweep: Path, tmp_path: Path) -> None:
    kept = keep(sweep, tmp_path / "kept", unfinished=True)
    assert [path.name for path in kept] == ["disc_seed0", "disc_seed1"]


def test_only_finished_runs_and_needed_columns_are_kept(sweep: Path, tmp_path: Path) -> None:
    there = tmp_path / "kept"
    assert keep(sweep, there) == [there / "hopper" / "disc_seed0"]
    kept = sorted(str(x.relative_to(there)) for x in there.rglob("*") if x.is_file())
    assert kept == [
        "hopper/disc_seed0/config.json",
        "hopper/disc_seed0/progress.csv",
        "table1.json",
    ]
    rows = log.read_progress(there / "hopper" / "disc_seed0" / "progress.csv")
    assert rows == [
        {"step": 10, "eval/return": 3.33333, "is/batches": 2.0},
        {"step": 20, "eval/return": 6.66667},
        {"step": 30, "eval/return": 10.0, "is/batches": 2.0},
    ]


def test_keeping_again_changes_nothing(sweep: Path, tmp_path: Path) -> None:
    there = tmp_path / "kept"
    keep(sweep, there)
    first = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    keep(sweep, there)
    assert {path: path.read_bytes() for path in there.rglob("*") if path.is_file()} == first


def test_keep_command_lists_runs_and_reports_damage(sweep: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.keep", str(sweep), str(tmp_path / "kept")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [str(tmp_path / "kept" / "hopper" / "disc_seed0")]
    (sweep / "hopper" / "disc_seed0" / "config.json").write_text("{")
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert len(failed.stderr.splitlines()) == 1


def test_kept_commands_do_not_name_the_folder_of_the_sweep(tmp_path: Path) -> None:
    run = tmp_path / "sweep" / "hopper" / "disc_seed0"
    write(run, [10, 20, 30])
    command = ["disc", "train", "hopper", "--out", str(run)]
    (run / "config.json").write_text(json.dumps({**CONFIG, "command": command}))
    (kept,) = keep(tmp_path / "sweep", tmp_path / "kept")
    found = json.loads((kept / "config.json").read_text())
    assert found == {**CONFIG, "command": [*command[:-1], "hopper/disc_seed0"]}
