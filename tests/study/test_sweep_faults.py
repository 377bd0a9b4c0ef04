"""Sweeps as real processes that are interrupted, killed or fail, and invalid input."""

from __future__ import annotations

import json
import math
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from disc.cli import main
from disc.run import log as run_log
from disc.study import estimate, sweep
from tests.support.command import run
from tests.support.small import PPO
from tests.support.studies import (
    PLAN,
    ROOT,
    STEPS,
    both,
    disc,
    finish,
    study,
    wait_for,
    working_on,
    write,
)


def directories(root: Path) -> list[Path]:
    """The run directories of a sweep, by name."""
    return sorted(path.parent for path in root.glob("*/*/config.json"))


def records(root: Path) -> dict[str, list[dict[str, float]]]:
    """Each run's rows without times."""
    return {
        path.name: [
            {name: value for name, value in row.items() if not name.startswith("time/")}
            for row in run_log.read_progress(path / "progress.csv")
        ]
        for path in directories(root)
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed sweep."""
    folder = tmp_path_factory.mktemp("whole")
    write(folder / "study.toml", **both())
    code, out, err = finish(disc(folder, "sweep", "study.toml", "--jobs", "2"))
    assert code == 0, err
    assert out == "Report: runs/study/report.html\n"
    assert "2 of 2 runs done" in err
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which sweeps find the tests' environments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def test_undisturbed_sweep_completes_its_runs(whole: Path) -> None:
    root = whole / "runs/study"
    assert sorted(path.name for path in root.iterdir()) == [
        "logs", "report.html", "study.json", "tests.support.studies-paced",
    ]  # fmt: skip
    first, second = directories(root)
    assert (first.name[:5], second.name[:4]) == ("disc_", "sac_")
    for rows in records(root).values():
        assert [row["step"] for row in rows] == list(range(256, STEPS + 1, 256))
        assert ["eval/return" in row for row in rows] == [False, True] * 5
    for path in (first, second):
        command = json.loads((path / "config.json").read_text())["command"]
        assert command[:3] == ["disc", "train", "tests.support.studies:paced"]
        assert command[command.index("--out") + 1] == str(path.relative_to(whole))
        assert str(whole) not in " ".join(command)
        assert not (path / "curve.png").exists()  # the report has the curves


def test_repeating_the_command_starts_nothing(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(whole)
    logged = {path: path.stat().st_mtime_ns for path in (whole / "runs").rglob("*.log")}
    assert len(logged) == 2
    assert run("sweep", "study.toml") == 0
    assert capsys.readouterr().out == "Report: runs/study/report.html\n"
    assert {path: path.stat().st_mtime_ns for path in logged} == logged
    assert run("sweep", "study.toml", "--dry-run", "--seeds", "0") == 0
    assert capsys.readouterr().out.splitlines()[0] == "2 runs, 2 done, 0 to do"


def begin(folder: Path) -> subprocess.Popen[str]:
    """Start a sweep of slow runs and wait until both are partly done."""
    write(folder / "study.toml", **both())
    (folder / "slow").touch()
    process = disc(folder, "sweep", "study.toml", "--jobs", "2")

    def under_way() -> bool:
        assert process.poll() is None, process.communicate()
        found = [run_log.tail(path / "progress.csv") for path in directories(folder / "runs/study")]
        return len(found) == 2 and all(len(rows) >= 3 for rows in found)

    wait_for(under_way)
    return process


def assert_goes_on(folder: Path, whole: Path) -> None:
    """The same command completes the sweep, with the results of the undisturbed one."""
    for rows in records(folder / "runs/study").values():
        assert 3 <= len(rows) < STEPS // 256
    (folder / "slow").unlink()
    # In a process of its own: locks of killed runs are released a moment after they have ended.
    code, out, err = finish(disc(folder, "sweep", "study.toml", "--jobs", "2"))
    assert (code, out) == (0, "Report: runs/study/report.html\n"), err
    assert records(folder / "runs/study") == records(whole / "runs/study")
    for path in directories(folder / "runs/study"):
        resumed = json.loads((path / "config.json").read_text())["resumed"]
        relative = str(path.relative_to(folder))
        assert [x["command"][:3] for x in resumed] == [["disc", "resume", relative]]


def test_ctrl_c_saves_all_runs_and_the_same_command_resumes_them(whole: Path, here: Path) -> None:
    process = begin(here)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert "Stopped; all runs are saved. Run the same command again to resume." in err
    assert "Traceback" not in err
    assert not working_on(here)
    for path in directories(here / "runs/study"):
        last = run_log.tail(path / "progress.csv")[-1]["step"]
        saved = int(max((path / "checkpoints").iterdir()).stem.removeprefix("step_"))
        assert saved - last in (0, 256)  # its evaluation may be pending
    assert_goes_on(here, whole)


def test_killed_sweep_ends_its_runs_and_the_same_command_resumes_them(
    whole: Path, here: Path
) -> None:
    process = begin(here)
    assert len(working_on(here)) == 3
    process.kill()
    assert finish(process)[0] == -signal.SIGKILL
    wait_for(lambda: not working_on(here), 10.0)
    assert_goes_on(here, whole)


def test_failed_run_is_retried_from_its_checkpoint_then_reported(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arms = [
        {"label": "once", "algo": "ppo", **PPO, "env_kwargs": {"at": 700, "mended": "mended"}},
        {"label": "always", "algo": "ppo", **PPO, "env_kwargs": {"at": 300}},
    ]
    contents: dict[str, Any] = {**PLAN, "eval_every": 0, "tasks": ["tests.support.studies:fragile"]}
    write(here / "study.toml", arms=arms, **contents, steps=1024)
    words = ["sweep", "study.toml", "--jobs", "2", "--retries", "1", "--out", "here"]
    assert run(*words) == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[-1] == "Report: here/report.html"
    assert "1 of 2 runs done" in err
    root = here / "here"
    once, always = (next(root.glob(f"*/ppo_{part}*_seed0")) for part in ("at=700", "at=300"))
    assert json.loads((once / "config.json").read_text())["resumed"][0]["step"] == 512
    assert [row["step"] for row in records(root)[once.name]] == [256, 512, 768, 1024]
    log = Path("here", sweep.LOGS, f"{always.relative_to(root)}.log")
    last = err.splitlines()[-1]
    assert f"{always.relative_to(root)} failed: " in last
    assert "the motor is on fire" in last
    assert last.endswith(f"(log: {log})")
    assert (here / log).read_text().count("the motor is on fire") == 2


def test_estimate_tries_each_kind_of_run(here: Path) -> None:
    arms = [{"algo": "ppo", **PPO, "env_kwargs": [{}, {"at": 1}]}]
    found = sweep.look(
        here, study(here, arms=arms, tasks=["tests.support.studies:fragile"]).cells()
    )
    told: list[str] = []
    good, bad = estimate.estimate(found, 2, told.append).values()
    assert good is not None
    assert math.isfinite(good)
    assert good > 0.0
    assert bad is None
    assert len(told) == 1
    assert "(2 of 2) …" in told[0]


# Invalid input


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sweep none.toml", "none.toml: can't be read"),
        ("reproduce table9", "no experiment 'table9'"),
        ("sweep study.toml --scale -0.1", "scale must be above 0"),
        ("sweep study.toml --scale nan", "scale must be above 0"),
        ("sweep study.toml --scale 2", "scale must be above 0"),
        ("sweep study.toml --steps 0", "steps must be"),
        ("sweep study.toml --jobs 0", "jobs must be"),
        ("sweep study.toml --retries -1", "retries must be"),
        ("sweep study.toml --seeds -1", "seed must be"),
        ("sweep study.toml --tasks ant", "study has no task 'ant'"),
        ("sweep study.toml --algos sac", "study has no arm 'sac'"),
        ("sweep study.toml --out study.toml/x", "study.toml/x: can't be"),
        ("sweep study.toml --out taken", "is not a run directory"),
        ("sweep away.toml", "Hoper-v5: no such environment"),
        ("sweep away.toml --dry-run", "Hoper-v5: no such environment"),
        ("sweep discrete.toml", "discrete actions"),
        ("sweep study.toml --ray localhost:1", "Ray"),
    ],
)
def test_bad_input_is_reported_and_nothing_is_written(
    words: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "study.toml")
    write(tmp_path / "away.toml", tasks=["Hoper-v5"])
    write(tmp_path / "discrete.toml", tasks=["CartPole-v1"], arms=[{"algo": "sac"}])
    (tmp_path / "taken/hopper/ppo_seed0/mine").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        main.main(words.split())
    assert stopped.value.code == 2
    said = capfd.readouterr().err
    assert says in said
    assert "Traceback" not in said
    assert sorted(tmp_path.rglob("*")) == before
