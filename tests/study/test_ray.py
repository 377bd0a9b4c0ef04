"""Sweeps on a real Ray cluster of two nodes, which are lost, silent, or never there."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from disc import DiscError, storage
from disc.run import log as run_log
from disc.study import sweep
from disc.study.local import Local
from disc.study.ray import Cluster, Runner, read, software, write
from disc.study.spec import Cell
from disc.study.sweep import Board, Status
from tests.support.studies import ROOT, both, study, working_on

pytest.importorskip("ray")

RUNS = Path("runs")
STEPS = 7680  # fifteen seconds, if it is slow
STORE = 80 * 2**20  # bytes
QUICK = {  # a node that says nothing for a second and a half is lost
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}

Records = dict[str, list[dict[str, float]]]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where machines make folders of their own."""
    return tmp_path_factory.mktemp("machines")


@pytest.fixture(scope="module")
def machines(own: Path) -> Iterator[Any]:
    """A cluster of one node, with one CPU."""
    from ray.cluster_utils import Cluster as Machines

    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # as a socket's path must be short
        patch.setenv("TMPDIR", str(own))
        patch.setenv("PYTHONPATH", str(ROOT))
        found = Machines(initialize_head=True, head_node_args={**head, "_system_config": QUICK})
        yield found
        found.shutdown()


@pytest.fixture
def second(machines: Any) -> Any:
    """Its second node."""
    there = next(iter(machines.worker_nodes), None)
    return there or machines.add_node(num_cpus=1, object_store_memory=STORE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # where runs find the tests' environments
    return tmp_path


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return study(tmp_path, **both(steps=STEPS)).cells()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """What the cells record as processes of this machine, undisturbed."""
    root = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        found = sweep.look(root, study(root, **both(steps=STEPS)).cells())
        assert len(sweep.run(root, found, Local(2), 0, str).done) == 2
    return records(root)


def records(root: Path) -> Records:
    """What each run recorded, but for its times."""
    return {
        path.parent.name: [
            {name: value for name, value in row.items() if not name.startswith("time/")}
            for row in run_log.read_progress(path)
        ]
        for path in root.glob("*/*/progress.csv")
    }


def run(
    machines: Any,
    cells: list[Cell],
    share: bool,
    show: Callable[[Board], object] = str,
    jobs: int | None = None,
    retries: int = 0,
) -> Board:
    """A sweep in the current folder."""
    backend = Cluster.connect(machines.address, jobs, share)
    return sweep.run(RUNS, sweep.look(RUNS, cells), backend, retries, show)


def left(folder: Path, own: Path) -> list[Any]:
    """Processes and files that a sweep may have left."""
    return [*working_on(folder), *own.iterdir(), *folder.rglob("*.lease"), *folder.rglob(".*.part")]


def resumed(cell: Cell) -> list[int]:
    """The steps from which a run was gone on with."""
    config = json.loads((RUNS / cell.path / "config.json").read_text())
    return [x["step"] for x in config.get("resumed", [])]


@pytest.mark.parametrize("share", [True, False], ids=["shared", "brought back"])
@pytest.mark.usefixtures("second")
def test_the_same_numbers_as_here(
    share: bool, machines: Any, own: Path, folder: Path, cells: list[Cell], alone: Records
) -> None:
    most = list[int]()
    state = run(machines, cells, share, lambda board: most.append(len(board.running)))
    assert (len(state.done), state.failed, max(most)) == (2, {}, 2)
    assert records(RUNS) == alone
    for cell in cells:
        path = RUNS / cell.path
        assert {"curve.png", "events", "policy.disc"} <= {x.name for x in path.iterdir()}
        assert "Run directory" in (RUNS / sweep.LOGS / f"{cell.path}.log").read_text()
        command = json.loads((path / "config.json").read_text())["command"]
        assert (str(folder) in " ".join(command)) == share
    assert not left(folder, own)


class Loses:
    """Shown a board, loses a node once every run has a checkpoint; once that is felt, none is slow.

    No two processes may ever work on the same run.
    """

    def __init__(self, machines: Any, lose: Callable[[Any], object]) -> None:
        self.machines, self.lose, self.saved, self.before = machines, lose, dict[Path, int](), [0]
        Path("slow").touch()

    def __call__(self, board: Board) -> None:
        now = {x.cell.path: sweep.status(RUNS, x.cell).saved or 0 for x, *_ in board.running}
        runs = {path: runners(path) for path in now}
        pids = sorted(pid for found in runs.values() for pid in found)
        assert all(len(found) <= 1 for found in runs.values())
        if not self.saved and len(now) == len(pids) == 2 and all(now.values()):
            self.saved, self.before = now, pids
            above = {parent(parent(pid)) for pid in pids}
            self.lose(next(x for x in self.machines.worker_nodes if raylet(x).pid in above))
        elif self.saved and pids != self.before:
            Path("slow").unlink(missing_ok=True)


def runners(path: Path) -> list[int]:
    """Processes that run a cell."""
    found = list[int]()
    for pid in working_on(Path.cwd()):
        with suppress(OSError):  # it has just ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            found += [pid] * (f"/{path}\0".encode() in words)
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def raylet(node: Any) -> Any:
    return node.all_processes["raylet"][0].process


@pytest.mark.parametrize("how", ["killed", "killed, brought back", "silent"])
@pytest.mark.usefixtures("second")
def test_a_lost_machine_costs_what_was_not_saved(
    how: str, machines: Any, own: Path, folder: Path, cells: list[Cell], alone: Records
) -> None:
    """One that is silent still runs its cell, and must not write beside who goes on with it."""
    show = Loses(machines, lambda node: machines.remove_node(node, allow_graceful=False))
    if how == "silent":
        machines.add_node(num_cpus=1, object_store_memory=STORE)  # on which it goes on at once
        show.lose = lambda node: raylet(node).send_signal(signal.SIGSTOP)
    try:
        state = run(machines, cells, "brought back" not in how, show)
    finally:
        for node in list(machines.worker_nodes):
            machines.remove_node(node, allow_graceful=False)
    assert (len(state.done), state.failed) == (2, {})
    assert records(RUNS) == alone
    stays, lost = sorted(cells, key=lambda cell: len(resumed(cell)))
    assert not resumed(stays)
    assert [show.saved[lost.path] <= step < STEPS for step in resumed(lost)] == [True]
    for path in own.iterdir():
        assert "brought back" in how  # a machine that is killed can't clear up
        shutil.rmtree(path)
    assert not left(folder, own)


@pytest.mark.usefixtures("second")
def test_ctrl_c_saves_all_and_the_same_call_goes_on(
    machines: Any, own: Path, folder: Path, cells: list[Cell], alone: Records
) -> None:
    queued = study(folder, **both(seeds=[1])).cells()[0]
    Path("slow").touch()

    def show(board: Board) -> None:
        rows = [job.rows() for _, job, _ in board.running]
        if not board.stopping and len(rows) == 3 and all(rows[:2]):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        run(machines, [*cells, queued], False, show, jobs=3)
    assert not str(stopped.value)  # all were saved
    assert not left(folder, own)
    Path("slow").unlink()
    saved = {cell.path: sweep.status(RUNS, cell) for cell in cells}
    for x in saved.values():
        assert 0 < x.step < STEPS
        assert (x.saved or 0) - x.step in (0, 256)  # its evaluation may have been left for later
    assert not (RUNS / queued.path).exists()
    run(machines, cells, False)
    assert records(RUNS) == alone
    assert all(resumed(cell) == [saved[cell.path].saved] for cell in cells)


def test_what_fails_is_reported_with_what_it_said(machines: Any, own: Path, folder: Path) -> None:
    arm = {**both()["arms"][0], "env_kwargs": {"at": 600}}
    (cell,) = study(folder, **both(tasks=["tests.support.studies:fragile"], arms=[arm])).cells()
    state = run(machines, [cell], share=False, retries=1)
    assert "the motor is on fire" in state.failed[cell]
    log = (RUNS / sweep.LOGS / f"{cell.path}.log").read_text()
    assert log.count("the motor is on fire") == 2
    assert sweep.status(RUNS, cell).saved == 1024  # it did not start anew the second time
    assert not left(folder, own)


def test_no_ray_and_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiscError, match=r"can't join .* at 127.0.0.1:1 \(.*refused\); `ray start"):
        Cluster.connect("127.0.0.1:1", None)
    with pytest.raises(DiscError, match="can't join a Ray cluster at nowhere"):
        Cluster.connect("nowhere", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DiscError, match=r"^--ray needs Ray: pip install 'disc-rl\[ray\]'.$"):
        Cluster.connect("auto", None)


@pytest.mark.parametrize(("jobs", "cpus", "slots"), [(None, 3.0, 3), (None, 0.0, 1), (5, 2.0, 5)])
def test_slots(jobs: int | None, cpus: float, slots: int) -> None:
    there = SimpleNamespace(cluster_resources=lambda: {"CPU": cpus} if cpus else {})
    assert Cluster(there, None, jobs, True).slots() == slots


def test_a_machine_with_other_software_is_refused(tmp_path: Path, cells: list[Cell]) -> None:
    order: Any = (Status(cells[0], False, []), tmp_path, tmp_path / "lease", "mine", tmp_path, {})
    with pytest.raises(DiscError, match=r"lacks jax 0.0.1: install the same there"):
        Runner(*order, software() | {"jax 0.0.1"}).news((), None)
    assert Runner(*order, software()).news((), None) is None  # it does not see the directory
    (tmp_path / "lease").write_text("another's")
    assert Runner(*order, software()).news((), None) is None


def test_files_are_brought_back_so_that_every_state_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is what has a config, and a checkpoint needs a record that is as new."""
    run, there, here = Path("task", "ppo_seed0"), tmp_path / "there", tmp_path / "here"
    old, new = (f"checkpoints/step_{step:012d}.safetensors" for step in (1, 2))
    for name in (old, new, "checkpoints/.x.part", "events/x", "policy.disc", "config.json"):
        (there / run / name).parent.mkdir(parents=True, exist_ok=True)
        (there / run / name).write_text(name)
    (there / run / "progress.csv").write_text("step\n1\n2\n300")  # its last row is being written
    found = read(there, run)
    wanted = [new, "config.json", "events/x", "policy.disc", "progress.csv"]
    assert (next(iter(found)), sorted(found)) == (f"{run}/{new}", [f"{run}/{x}" for x in wanted])
    assert found[f"{run}/progress.csv"].tobytes() == b"step\n1\n2\n"
    assert f"{run}/{new}" not in read(there, run, (f"{run}/{new}",))
    states, replace = [], storage.replace

    def watched(path: Path) -> Any:
        states.append({str(x.relative_to(here / run)) for x in here.rglob("*") if x.is_file()})
        return replace(path)

    monkeypatch.setattr(storage, "replace", watched)
    write(here, run, found)
    assert all("config.json" in state for state in states[1:])
    assert states[-1] == {*wanted} - {new}
    for step in (3, 4):
        name = f"{run}/checkpoints/step_{step:012d}.safetensors"
        write(here, run, {name: np.zeros(3, np.uint8)})
    assert {path.stem[-1] for path in (here / run / "checkpoints").iterdir()} == {"3", "4"}
