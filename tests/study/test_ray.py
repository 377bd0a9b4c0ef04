"""Sweeps on a real Ray cluster of two nodes, which are lost, unresponsive or missing."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import disc
from disc import PPO, DiscError, storage
from disc.envs.ray import Ray
from disc.envs.workers import Remote
from disc.run import log as run_log
from disc.study import sweep
from disc.study.local import Local
from disc.study.ray import Cluster, Runner, read, software, write
from disc.study.spec import Cell
from disc.study.sweep import Board, Status
from faults.outcome import differences
from tests.support import environments as probes
from tests.support.small import small
from tests.support.studies import ROOT, both, study, wait_for, working_on

pytest.importorskip("ray")

RUNS = Path("runs")
STEPS = 7680  # fifteen seconds if slow
STORE = 80 * 2**20  # bytes
QUICK = {  # a node that does not respond for 3 seconds is lost; on a busy machine 1.5 are too few
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 6,
}

Records = dict[str, list[dict[str, float]]]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where machines create their own folders."""
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
    """The cluster's second node."""
    there = next(iter(machines.worker_nodes), None)
    return there or machines.add_node(num_cpus=1, object_store_memory=STORE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # where runs find the tests' environments
    return tmp_path


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return study(tmp_path, **both(steps=STEPS)).cells()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The rows of the cells as undisturbed local processes."""
    root = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        found = sweep.look(root, study(root, **both(steps=STEPS)).cells())
        assert len(sweep.run(root, found, Local(2), 0, str).done) == 2
    return records(root)


def records(root: Path) -> Records:
    """Each run's rows without times."""
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
    """The steps from which a run was resumed."""
    config = json.loads((RUNS / cell.path / "config.json").read_text())
    return [x["step"] for x in config.get("resumed", [])]


@pytest.mark.usefixtures("second")
def test_cluster_runs_equal_local_runs(
    machines: Any, own: Path, folder: Path, cells: list[Cell], alone: Records
) -> None:
    """Copied back from the nodes; the test with a silent node has a shared directory."""
    most = list[int]()
    state = run(machines, cells, False, lambda board: most.append(len(board.running)))
    assert (len(state.done), state.failed, max(most)) == (2, {}, 2)
    assert records(RUNS) == alone
    for cell in cells:
        path = RUNS / cell.path
        assert {"events", "policy.disc"} <= {x.name for x in path.iterdir()}
        assert "Run directory" in (RUNS / sweep.LOGS / f"{cell.path}.log").read_text()
        command = json.loads((path / "config.json").read_text())["command"]
        assert str(folder) not in " ".join(command)
    assert not left(folder, own)


class Loses:
    """Loses a node once every run has a checkpoint, then lets the runs finish quickly.

    Checks that no two processes ever work on the same run.
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
            Path("slow").write_text("very")  # no run ends before the loss is noticed
            self.lose(next(x for x in self.machines.worker_nodes if raylet(x).pid in above))
        elif self.saved and (
            {*pids} - {*self.before} or any(all_ended([pid]) for pid in self.before)
        ):  # one has been resumed, or was killed
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


def children(pid: int) -> list[int]:
    found = list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            found += [int(process.name)] * (parent(int(process.name)) == pid)
    return found


def all_ended(pids: list[int]) -> bool:
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return False
    return True


def raylet(node: Any) -> Any:
    return node.all_processes["raylet"][0].process


@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.usefixtures("second")
def test_runs_of_a_lost_node_resume_from_their_checkpoints(
    how: str, machines: Any, own: Path, folder: Path, cells: list[Cell], alone: Records
) -> None:
    """An unresponsive node still runs its cell, and must not write beside the resumed run.

    The killed node's runs are copied back, the silent one's are in a shared directory.
    """
    show = Loses(machines, lambda node: machines.remove_node(node, allow_graceful=False))
    if how == "silent":
        machines.add_node(num_cpus=1, object_store_memory=STORE)  # where it resumes at once
        show.lose = lambda node: raylet(node).send_signal(signal.SIGSTOP)
    try:
        state = run(machines, cells, how == "silent", show)
    finally:
        for node in list(machines.worker_nodes):
            machines.remove_node(node, allow_graceful=False)
    assert (len(state.done), state.failed) == (2, {})
    assert records(RUNS) == alone
    stays, lost = sorted(cells, key=lambda cell: len(resumed(cell)))
    assert not resumed(stays)
    assert [show.saved[lost.path] <= step < STEPS for step in resumed(lost)] == [True]
    for path in own.iterdir():
        assert how == "killed"  # a killed node can't clean up
        shutil.rmtree(path)
    assert not left(folder, own)


@pytest.mark.usefixtures("second")
def test_ctrl_c_saves_all_runs_and_the_same_call_resumes_them(
    machines: Any, own: Path, folder: Path, cells: list[Cell], alone: Records
) -> None:
    third = study(folder, **both(seeds=[1])).cells()[0]  # Ray chooses which of the three waits
    Path("slow").write_text("very")  # no run ends before the interruption

    def show(board: Board) -> None:
        begun = [job for _, job, _ in board.running if job.rows()]
        if not board.stopping and len(board.running) == 3 and len(begun) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        run(machines, [*cells, third], False, show, jobs=3)
    assert not str(stopped.value)  # all were saved
    assert not left(folder, own)
    Path("slow").unlink()
    begun = [cell for cell in (*cells, third) if (RUNS / cell.path).exists()]
    saved = {cell.path: sweep.status(RUNS, cell) for cell in begun}
    assert len(saved) == 2
    for x in saved.values():
        assert 0 < x.step < STEPS
        assert (x.saved or 0) - x.step in (0, 256)  # its evaluation may be pending
    run(machines, cells, False)
    assert {name: rows for name, rows in records(RUNS).items() if name in alone} == alone
    for cell in cells:
        assert resumed(cell) == ([saved[cell.path].saved] if cell in begun else [])


def test_failed_runs_are_reported_with_their_output(machines: Any, own: Path, folder: Path) -> None:
    arm = {**both()["arms"][0], "env_kwargs": {"at": 600}}
    (cell,) = study(folder, **both(tasks=["tests.support.studies:fragile"], arms=[arm])).cells()
    state = run(machines, [cell], share=False, retries=1)
    assert "the motor is on fire" in state.failed[cell]
    log = (RUNS / sweep.LOGS / f"{cell.path}.log").read_text()
    assert log.count("the motor is on fire") == 2
    assert sweep.status(RUNS, cell).saved == 1024  # the second try resumed
    assert not left(folder, own)


def test_missing_ray_or_cluster_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DiscError, match=r"can't connect.* at 127.0.0.1:1 \(.*refused\); `ray start"
    ):
        Cluster.connect("127.0.0.1:1", None)
    with pytest.raises(DiscError, match="can't connect to a Ray cluster at nowhere"):
        Cluster.connect("nowhere", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DiscError, match=r"^--ray needs Ray: pip install 'disc-rl\[ray\]'.$"):
        Cluster.connect("auto", None)


@pytest.mark.parametrize(("jobs", "cpus", "slots"), [(None, 3.0, 3), (None, 0.0, 1), (5, 2.0, 5)])
def test_slots_default_to_the_cpus_of_the_cluster(
    jobs: int | None, cpus: float, slots: int
) -> None:
    there = SimpleNamespace(cluster_resources=lambda: {"CPU": cpus} if cpus else {})
    assert Cluster(there, None, jobs, True).slots() == slots


def test_node_with_other_software_raises(tmp_path: Path, cells: list[Cell]) -> None:
    order: Any = (Status(cells[0], False, []), tmp_path, tmp_path / "lease", "mine", tmp_path, {})
    with pytest.raises(DiscError, match=r"lacks jax 0.0.1: install the same versions"):
        Runner(*order, software() | {"jax 0.0.1"}).news((), None)
    assert Runner(*order, software()).news((), None) is None  # it does not see the directory
    (tmp_path / "lease").write_text("another's")
    assert Runner(*order, software()).news((), None) is None


def test_files_are_copied_back_in_a_resumable_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run needs a config, and a checkpoint needs a progress file that is as new."""
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


# One run whose environments are stepped on the cluster


def test_run_with_environments_on_a_cluster_survives_the_loss_of_a_node(
    machines: Any, second: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same rows as in this process, although the environments' node is killed after the first."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Ray may put all actors on one node, even if told to spread them; here it must be the second.
    there = NodeAffinitySchedulingStrategy(second.node_id, soft=True)
    monkeypatch.setattr(Ray, "placement", there)
    options: dict[str, Any] = {"checkpoint_every": 700, "eval_every": 0, "progress": False}
    deaths, report = list[str](), Remote._report_death
    monkeypatch.setattr(
        Remote, "_report_death", lambda *x: (deaths.append(str(x[-1])), report(*x))[1]
    )

    def lose(agent: Any, row: Any) -> bool:
        if second in machines.worker_nodes:
            actors = children(raylet(second).pid)
            machines.remove_node(second, allow_graceful=False)
            wait_for(partial(all_ended, actors), 60.0)  # they notice it after a while
        return agent.state.step < 768

    with small(PPO, probes.wide, num_envs=2, workers="threads") as agent:
        agent.learn(1024, out="here", **options)
    with small(PPO, probes.wide, num_envs=2, workers=f"ray:{machines.address}") as agent:
        agent.learn(1024, out="there", callbacks=[lose], **options)
    assert len(deaths) >= 2  # both environments were there
    with pytest.raises(DiscError, match=r"must not choose; if you trust it, add `--workers"):
        disc.resume("there", env=probes.wide, progress=False)
    disc.resume("there", 1024, env=probes.wide, workers="threads", progress=False).close()
    assert differences(Path("here"), Path("there")) == []


def test_ray_workers_that_cannot_be_reached_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with small(PPO, workers="ray:127.0.0.1:1") as agent:
        with pytest.raises(DiscError, match=r"can't connect.* at 127.0.0.1:1 \(.*refused\)"):
            agent.learn(256, eval_every=0, progress=False)
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(DiscError, match=r"^workers='ray' needs Ray: pip install"):
            agent.learn(256, eval_every=0, progress=False)
