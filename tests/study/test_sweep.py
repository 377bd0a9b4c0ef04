"""Sweeps without processes: run status, scheduling and display."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from disc import DiscError
from disc.cli import display as cli_display
from disc.study import estimate, sweep
from disc.study.local import Local
from disc.study.spec import Arm, Cell
from disc.study.sweep import Board, Status
from tests.support.small import PPO
from tests.support.studies import PLAN, REFUSED, SPOILING, Here, Running, record, study


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    """Four runs of 1,000 steps."""
    return study(tmp_path, seeds=[0, 1, 2, 3], steps=1000, **PLAN).cells()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "PAUSE", 0.0)


# Run status


def test_status_is_read_from_the_run_directory(root: Path, cells: list[Cell]) -> None:
    new, begun, half, done = cells
    record(root, begun)
    record(root, half, 256, 512, saved=512)
    record(root, done, 256, 1024)  # without checkpoints, as in results/
    found = sweep.look(root, [*cells, done])
    assert [(x.begun, x.step, x.done) for x in found] == [
        (False, 0, False),
        (True, 0, False),
        (True, 512, False),
        (True, 1024, True),
    ]
    assert sweep.cli_args(root, found[0]) == new.command(root)
    for status in found[1:]:
        words = f"resume {root / status.cell.path} --steps 1000 --threads 1 --no-plots"
        assert sweep.cli_args(root, status) == words.split()


def test_run_is_done_only_when_its_last_step_is_saved(root: Path, cells: list[Cell]) -> None:
    early, late, longer, damaged = cells
    record(root, early, 512, 1024, saved=512)  # killed before its last checkpoint was complete
    record(root, late, 512, 1024, saved=1024)
    record(root, longer, 1024, 5120, saved=4096)  # more steps than asked for, then killed
    record(root, damaged, 512).joinpath("progress.csv").write_bytes(b"step,a\n\0\0,\xff\n")
    assert [x.done for x in sweep.look(root, cells)] == [False, True, True, False]


def test_run_that_stopped_early_is_done_and_one_killed_before_its_end_is_not(
    root: Path, tmp_path: Path
) -> None:
    limits = {"stop_at": 100.0, "patience": 2}
    cells = study(tmp_path, seeds=[0, 1, 2], steps=1000, **PLAN, **limits).cells()
    plan = {"plan": {"steps": 1000, **PLAN, **limits, "best": "mean"}}
    end = {"step": 512, "early": True, "reason": "its evaluation reached 100"}
    record(root, cells[0], 512, saved=512, ended=end, **plan)
    record(root, cells[1], 512, 1024, saved=1024, **plan)  # its best is not yet evaluated again
    record(root, cells[2], 512, 1024, saved=1024, ended={**end, "early": False}, **plan)
    assert [x.done for x in sweep.look(root, cells)] == [True, False, True]


def test_finished_run_is_resumed_for_more_steps(root: Path, tmp_path: Path) -> None:
    arms = [{"algo": "sac"}, {"algo": "ppo"}]
    short, cut, long = (
        study(tmp_path, arms=arms, steps=steps, **PLAN) for steps in (1000, 2000, 2000)
    )
    for cell in replace(cut, cut=1000).cells():
        record(root, cell, 1024, saved=1024)
    for experiment in (short, replace(cut, cut=1000), long):
        sac, ppo = experiment.cells()
        whole = experiment is long
        found = sweep.status(root, sac)
        assert found.done is not whole
        assert sweep.cli_args(root, found)[2:4] == ["--steps", str(sac.steps)]
        if experiment is short:
            with pytest.raises(DiscError, match="anneal_steps is 2000, not 1000"):
                sweep.status(root, ppo)
        else:
            assert sweep.status(root, ppo).done is not whole


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed": 7}, "seed is 7, not 0"),
        ({"env": "Ant-v5"}, "env is Ant-v5, not Hopper-v5"),
        ({"algorithm": "trpo"}, "algorithm is trpo, not ppo"),
        ({"num_envs": 2}, "num_envs is 2, not 1"),
        ({"env_kwargs": {"a": 1}}, "env_kwargs is {'a': 1}, not {}"),
        ({"plan": {"steps": 9, **PLAN, "checkpoint_every": 4}}, "checkpoint_every is 4, not 512"),
        ({"plan": {"steps": 9, **PLAN, "patience": 3}}, "patience is 3, not 0"),
        ({"config": {"gamma": 0.5, "unknown": 3}}, "gamma is 0.5, not 0.99"),
        ({"config": {"anneal_steps": 500}}, "anneal_steps is 500, not 1000"),
    ],
)
def test_run_with_other_options_raises(
    changes: dict[str, Any], says: str, root: Path, cells: list[Cell]
) -> None:
    record(root, cells[0], 1024, **changes)
    with pytest.raises(DiscError, match=rf"ppo_seed0: is a different run \({says}\); choose"):
        sweep.status(root, cells[0])


def test_run_may_have_filled_in_options_that_the_sweep_left_open(
    root: Path, tmp_path: Path
) -> None:
    arms = [{"algo": "disc", "preset": "recommended", "epsilon_b": 0.1}]
    (cell,) = study(tmp_path, arms=arms, steps=1000, **PLAN).cells()
    asked = dataclasses.asdict(cell.config(cell.options, "recommended"))
    filled = dataclasses.asdict(cell.config(cell.options, "recommended").for_actions(3))
    for same in (filled, asked):  # older runs recorded None
        record(root, cell, 512, saved=512, config=same)
        assert sweep.status(root, cell).step == 512
    for other, says in (
        ({**filled, "epsilon_b": 0.2}, "epsilon_b is 0.2, not 0.1"),
        ({**filled, "gamma": 0.99}, "gamma is 0.99, not 0.995"),
        ({k: v for k, v in filled.items() if k != "final_std"}, "final_std is 0.0, not 0.25"),
    ):
        record(root, cell, 512, saved=512, config=other)
        with pytest.raises(DiscError, match=says):
            sweep.status(root, cell)


def test_begun_run_keeps_its_own_evaluations(root: Path, cells: list[Cell]) -> None:
    plan = {"steps": 1000, **PLAN, "eval_every": 4, "eval_episodes": 3}
    record(root, cells[0], 512, saved=512, plan=plan)
    status = sweep.status(root, cells[0])
    assert (status.begun, status.step) == (True, 512)
    assert "--eval-every" not in sweep.cli_args(root, status)
    with pytest.raises(DiscError, match="eval_every is 4, not 512"):  # it decides the end
        sweep.status(root, replace(cells[0], patience=3))


def test_directory_without_a_valid_run_raises(root: Path, cells: list[Cell]) -> None:
    (root / cells[0].path).mkdir(parents=True)
    assert not sweep.status(root, cells[0]).begun
    (root / cells[0].path / "precious").touch()
    (root / cells[1].path).touch()
    record(root, cells[2]).joinpath("config.json").write_text("{}")
    for cell, says in zip(cells, ("not a run", "not a run", "damaged"), strict=False):
        with pytest.raises(DiscError, match=f"seed{cell.seed}: .*{says}"):
            sweep.status(root, cell)


# Scheduling


def test_failed_runs_are_retried_while_others_continue(root: Path, cells: list[Cell]) -> None:
    record(root, cells[0], 1024)
    here, running = Here(2, seed1=[1, -9], seed2=[1, 2, 1]), list[int]()
    state = here.run(root, cells, lambda board: running.append(len(board.running)))
    assert sorted(here.seeds) == [1, 1, 1, 2, 2, 2, 3]  # the first is done already
    assert state.failed == {cells[2]: "ValueError: no"}
    assert sorted(x.cell.seed for x in state.done) == [0, 1, 3]
    assert (max(running), state.running, state.waiting, here.closed) == (2, [], [], True)
    again = Here(2, seed2=[-9, -9, -9])
    state = again.run(root, cells)
    assert again.seeds == [2, 2, 2]
    assert state.failed == {cells[2]: "ended by signal 9 (Killed)"}


def test_problem_with_one_run_does_not_stop_the_others(root: Path, cells: list[Cell]) -> None:
    here = Here(1, seed0=[REFUSED], seed1=[SPOILING])
    state = here.run(root, cells)
    assert state.failed[cells[0]] == "no more processes"
    assert "seed is 5, not 1" in state.failed[cells[1]]
    assert [x.cell.seed for x in state.done] == [2, 3]


def test_run_finished_by_another_sweep_is_not_started(root: Path, cells: list[Cell]) -> None:
    here, found = Here(1), sweep.look(root, cells[:2])
    record(root, cells[0], 1024, saved=1024)
    assert len(sweep.run(root, found, here, 0, lambda _: None).done) == 2
    assert here.seeds == [1]


def test_half_created_run_directory_is_used(root: Path, cells: list[Cell]) -> None:
    left = root / cells[0].path / ".config.json.123.part"
    left.parent.mkdir(parents=True)
    left.write_text("{")
    assert len(Here(1).run(root, cells[:1]).done) == 1
    assert not left.exists()


def test_two_sweeps_do_not_work_on_the_same_run(root: Path, cells: list[Cell]) -> None:
    log = root / sweep.LOGS / f"{cells[0].path}.log"
    log.parent.mkdir(parents=True)
    with open(log, "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        state = sweep.run(root, sweep.look(root, cells[:1]), Local(1), 2, lambda _: None)
    assert "is locked by another sweep" in state.failed[cells[0]]
    assert not (root / cells[0].path).exists()


@pytest.mark.parametrize("stubborn", [False, True])
def test_ctrl_c_asks_every_run_to_save(
    stubborn: bool, root: Path, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, shown = Here(2, stubborn), list[bool]()

    def show(state: Board) -> None:
        shown.append(state.stopping)
        if not state.stopping:
            raise KeyboardInterrupt

    if stubborn:
        monkeypatch.setattr(sweep, "PATIENCE", 0.0)
    with pytest.raises(KeyboardInterrupt) as stopped:
        here.run(root, cells, show)
    assert shown == [False, True]
    assert [job.asked for job in here.started] == [[False, True] if stubborn else [False]] * 2
    assert str(stopped.value) == ("2 could not save" if stubborn else "")
    assert here.closed


def test_second_ctrl_c_ends_all_runs_at_once(
    root: Path, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    here = Here(2, stubborn=True)
    monkeypatch.setattr("time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt, match="2 could not save"):
        here.run(root, cells)
    assert [job.asked for job in here.started] == [[False, True]] * 2


def test_internal_error_lets_running_runs_save(root: Path, cells: list[Cell]) -> None:
    here = Here(2)
    with pytest.raises(ZeroDivisionError):
        here.run(root, cells, lambda _: 1 // 0)
    assert [job.asked for job in here.started] == [[False]] * 2


# Display


def printed(shown: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_table_shows_progress_of_running_runs(cells: list[Cell]) -> None:
    steps = [{"step": 100 * i, "time/elapsed": 10.0 * i} for i in range(1, 6)]
    cut = {name: value for name, value in steps[0].items() if name != "step"}  # cut by `log.tail`
    rows: list[dict[str, float]] = [cut, *steps[1:4], {**steps[4], "eval/return": -1234.56}]
    over: list[dict[str, float]] = [{"step": 1024, "time/elapsed": 102.4, "train/return": 3.0}]
    state = Board(
        4,
        done=[Status(cells[3], True, over)],
        running=[
            (Status(cells[0], True, []), Running(rows), 0.0),
            (Status(cells[1], True, []), Running(over), 0.0),
            (Status(cells[2], False, []), Running([]), 0.0),
        ],
        failed={cells[3]: "it [fell] over"},
    )
    first, _, *lines = printed(cli_display.table(state)).splitlines()
    assert first.strip() == "1 of 4 runs done · 3 running · 1 failed · about 0:50 left"
    assert lines[0].split()[:4] == ["hopper/ppo_seed0", "500/1,000", "50", "%"]
    assert lines[0].split()[4:] == ["-1,234.6", "10", "0:50"]
    assert lines[1].split()[1:5] == ["1,024/1,000", "100", "%", "3.0"]
    assert lines[1].split()[-1] == "0:00"
    assert lines[2].split()[1:] == ["0/1,000", "0", "%", "…", "…", "…"]
    assert cli_display.line(Board(2, waiting=[Status(cells[0], False, [])])).endswith("1 waiting")


@pytest.mark.parametrize("terminal", [False, True])
def test_failures_and_stopping_are_printed_once(terminal: bool, cells: list[Cell]) -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=terminal, highlight=False)
    state = Board(1, failed={cells[0]: "a long reason [in brackets] of more than forty letters"})
    with cli_display.Display(console) as display:
        display(state)
        state.stopping = True
        display(state)
        display(state)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("seed0 failed: a long reason [in brackets] of more than forty letters\n") == 1
    assert said.count("Saving all runs, then stopping") == 1


def test_plan_shows_the_remaining_hours_of_each_run(cells: list[Cell]) -> None:
    found = [
        Status(cell, True, [{"step": step}])
        for cell, step in zip(cells, (1024, 500, 0, 0), strict=True)
    ]
    seconds: dict[Cell, float | None] = {cells[1]: 7200.0, cells[2]: 3600.0, cells[3]: None}
    text = printed(cli_display.plan(found, seconds, 4))
    assert text.splitlines()[0] == (
        "4 runs, 1 done, 3 to do: about 2.00 h with 4 at a time, "
        "not counting 1 that could not be estimated"
    )
    rows = [line.split()[1:] for line in text.splitlines()[-4:]]
    assert rows == [
        ["1,000", "yes"],
        ["1,000", "50", "%", "2.00"],
        ["1,000", "0", "%", "1.00"],
        ["1,000", "0", "%", "?"],
    ]
    assert "about 3.00 h with 1 at a time" in printed(cli_display.plan(found, seconds, 1))


def test_estimate_uses_the_speed_of_earlier_runs(cells: list[Cell]) -> None:
    row = {"step": 1000, "time/elapsed": 50.0}
    found = [Status(cells[0], True, [row]), Status(cells[1], True, [{"step": 500}])]
    told: list[str] = []
    assert estimate.estimate(found, 2, told.append) == {cells[1]: 25.0}
    assert not told  # nothing was tried


def test_trial_run_measures_finite_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "SECONDS", 0.0)
    arm = Arm("PPO", "ppo", {**PPO, "widths": [16, 16]}, 2)
    pace = estimate.measure(Cell("Pendulum-v1", arm, 0, 1000, 1000, 0, 3, 0))
    assert all(math.isfinite(seconds) and seconds > 0.0 for seconds in pace)
