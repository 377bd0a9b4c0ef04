"""Running a sweep's cells on a Ray cluster of one or more machines.

Each cell is a Ray actor: a task can't be asked to save and stop. It uses one CPU and runs the
cell as a process. If its machine has access to the sweep's directory, it writes there; otherwise it
writes to a temporary folder, which is copied back at each checkpoint.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from disc import storage
from disc.envs.ray import PATIENCE, connect
from disc.host import software
from disc.run import checkpoint
from disc.run import log as run_log
from disc.run.lock import Lock
from disc.study.local import LocalJob, claim, last_line
from disc.study.sweep import LOGS, Status, status
from disc.types import DiscError

LOOK = 1.0  # seconds between checks of a process
LOSSES = 20  # machines that may be lost while running a cell before it counts as failed
PASSED_ON = ("DISC_", "JAX_", "MUJOCO_", "PYTHONPATH", "XLA_")  # variables passed to runs
Files = dict[str, np.ndarray[Any, Any]]  # bytes, by path within a sweep's directory
# The last rows of a run's record, exit status if it ended, newest checkpoint, files to copy back.
News = tuple[list[run_log.Row], int | None, tuple[str, ...], Files]


@dataclass
class Runner:
    """The actor, which runs a cell on its machine."""

    found: Status
    root: Path  # the sweep's directory
    lease: Path  # a file that begins with `token`, if this machine has access to the directory
    token: str  # followed by this actor's identifier, until another actor takes the cell
    folder: Path  # the sweep's current one
    variables: dict[str, str]
    software: set[str]
    own: tempfile.TemporaryDirectory[str] | None = None  # if the run must be copied back

    def news(self, have: tuple[str, ...], kept: Files | None) -> News | None:
        """The cell's state. Starts it if it is not running; None if that needs the kept files."""
        if not hasattr(self, "job") and not self._begin(kept):
            return None
        with suppress(subprocess.TimeoutExpired):
            self.job.process.wait(LOOK)
        code, run = self.job.poll(), self.found.cell.path
        newest = checkpoints(self.root, run)[-1:]
        back = self.own is not None and (code is not None or newest != have)
        return self.job.rows(), code, newest, read(self.root, run, have) if back else {}

    def _begin(self, kept: Files | None) -> bool:
        if missing := ", ".join(sorted(self.software - software())):
            raise DiscError(f"{socket.gethostname()} lacks {missing}: install the same versions.")
        run = self.found.cell.path
        if shared := self._held():
            self.token += os.urandom(8).hex()
            self.lease.write_text(self.token)
            if (self.root / run).exists():
                time.sleep(2 * LOOK)  # the previous actor notices
                wait_for_lock(self.root / run)  # and kills its process
        elif kept is not None:
            self.own = tempfile.TemporaryDirectory(prefix="disc-", ignore_cleanup_errors=True)
            self.root = Path(self.own.name)
            write(self.root, run, kept)
        else:
            return False
        os.chdir(self.folder if self.folder.is_dir() else self.root)
        paths = [str(Path(__file__).parents[2]), str(self.folder)]  # so that this `disc` is used
        paths += [x["PYTHONPATH"] for x in (self.variables, os.environ) if "PYTHONPATH" in x]
        os.environ.update(self.variables, PYTHONSAFEPATH="1", PYTHONPATH=os.pathsep.join(paths))
        self.job = LocalJob(self.root, status(self.root, self.found.cell))
        if shared:
            threading.Thread(target=self._watch, daemon=True).start()
        return True

    def _held(self) -> bool:
        """Whether this machine has access to the directory, and no other actor took the cell."""
        with suppress(OSError):
            return self.lease.read_text().startswith(self.token)
        return False

    def _watch(self) -> None:
        """Kill the process when another actor takes the cell, as when Ray lost this machine."""
        while self.job.process.returncode is None and self._held():
            time.sleep(LOOK)
        self.job.stop(now=True)

    def stop(self, now: bool) -> None:
        """Ask the process to save and stop, or kill it and clean up."""
        self.job.stop(now)
        if now:
            self.job.process.wait()
        if now and self.own is not None:
            self.own.cleanup()


def wait_for_lock(run: Path) -> None:
    """Wait until no process works on a run, for `PATIENCE` at most; the run reports it then."""
    for _ in range(round(PATIENCE / LOOK)):
        with suppress(DiscError):
            Lock.take(run).release()
            return
        time.sleep(LOOK)


def checkpoints(root: Path, run: Path) -> tuple[str, ...]:
    """Paths of a run's checkpoints within the sweep's directory, the oldest first."""
    return tuple(sorted(str(x.relative_to(root)) for x in (root / run).glob("checkpoints/step_*")))


def read(root: Path, run: Path, have: tuple[str, ...] = ()) -> Files:
    """Read a run's newest checkpoint unless in `have`, then all other files, which are newer."""
    names = [name for name in checkpoints(root, run)[-1:] if name not in have]
    paths = [*(root / run).rglob("[!.]*"), root / LOGS / f"{run}.log"]
    others = (path for path in paths if path.is_file() and path.parent.name != "checkpoints")
    names += [str(path.relative_to(root)) for path in others]
    try:
        found = {name: np.fromfile(root / name, np.uint8) for name in names}
    except FileNotFoundError:
        return {}  # a file was just removed
    if (record := f"{run}/progress.csv") in found:  # without a partly written row
        found[record] = found[record][: found[record].tobytes().rfind(b"\n") + 1]
    return found


def write(root: Path, run: Path, found: Files) -> None:
    """Write a run's files in an order such that it can be resumed exactly at any time."""
    ranks = {"config.json": 0, "progress.csv": 2, "checkpoints": 3}  # and 1 for all others
    for name in sorted(found, key=lambda x: ranks.get(x.removeprefix(f"{run}/").split("/")[0], 1)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with storage.replace(root / name) as beside:
            found[name].tofile(beside)
    if brought := [name for name in found if (root / name).parent.name == "checkpoints"]:
        checkpoint.prune(root / max(brought))


class ClusterJob:
    """A cell that runs on the cluster, or waits for a CPU; see `Job`."""

    def __init__(self, cluster: Cluster, root: Path, found: Status) -> None:
        self.cluster, self.ray, self.root = cluster, cluster.ray, root.absolute()
        self.run, self.log = found.cell.path, self.root / LOGS / f"{found.cell.path}.log"
        self.lease, token = self.log.with_suffix(".lease"), os.urandom(8).hex()
        self.lease.parent.mkdir(parents=True, exist_ok=True)
        self.lock = open(self.lease, "a", encoding="utf-8")  # noqa: SIM115
        claim(self.lock, self.root / self.run)
        self.lease.write_text(token if cluster.share else "")
        variables = {x: os.environ[x] for x in os.environ if x.startswith(PASSED_ON)}
        order = (found, self.root, self.lease, token, Path.cwd(), variables, software())
        self.actor = cluster.runner.remote(*order)
        self.shown, self.begun, self.stopping = found.rows, False, False
        self.code: int | None = None
        self._ask()

    def _ask(self, kept: Files | None = None) -> None:
        self.asked = self.actor.news.remote(checkpoints(self.root, self.run)[-1:], kept)

    def poll(self) -> int | None:
        errors = self.ray.exceptions
        if self.code is None and self.ray.wait([self.asked], timeout=0, fetch_local=False)[0]:
            try:
                self._take(self.ray.get(self.asked))
            except (errors.RayTaskError, errors.ActorDiedError, OSError) as error:
                self._end(1, str(getattr(error, "cause", error)))
            except errors.RayError as error:  # machine lost; Ray restarts the actor elsewhere
                self._end(1, str(error)) if self.stopping else self._ask()
        return self.code

    def _take(self, news: News | None) -> None:
        if news is None:
            return self._ask(read(self.root, self.run))
        rows, code, newest, found = news
        self.shown, self.begun = rows or self.shown, True
        write(self.root, self.run, found)
        if code is None or checkpoints(self.root, self.run)[-1:] != newest:
            return self._ask()  # again: a shared directory may show the end late
        return self._end(code)

    def _end(self, code: int, why: str = "") -> None:
        with open(self.log, "a", encoding="utf-8") as log:
            log.writelines(f"{line.strip()}\n" for line in why.splitlines()[-1:])
        if self.begun and not why:
            self.cluster.leaving.append(self.actor.stop.remote(True))
        else:
            self.ray.kill(self.actor)
        self.lease.unlink(missing_ok=True)
        self.lock.close()
        self.code, self.actor = code, None  # without references, the actor ends and frees its CPU

    def rows(self) -> list[run_log.Row]:
        return self.shown

    def stop(self, now: bool = False) -> None:
        self.stopping = True
        if now or not self.begun:
            self._end(1)
        else:
            self.actor.stop.remote(False)

    def last_output(self) -> str:
        return last_line(self.log)


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster; see `Backend`."""

    ray: Any
    runner: Any  # `Runner` as a Ray actor class
    jobs: int | None  # maximum of parallel cells; the number of CPUs if None
    share: bool  # write to the sweep's directory if a machine has access to it
    leaving: list[Any] = field(default_factory=list)  # last results of actors

    @classmethod
    def connect(cls, address: str, jobs: int | None, share: bool = True) -> Cluster:
        """Connect to the cluster at an address; raises a `DiscError` if that fails."""
        ray = connect(address, "--ray")
        actor = ray.remote(num_cpus=1, max_restarts=LOSSES, scheduling_strategy="SPREAD")(Runner)
        return cls(ray, actor, jobs, share)

    def slots(self) -> int:
        """Maximum of cells running or in Ray's queue; at least one, as clusters may grow."""
        return self.jobs or max(1, int(self.ray.cluster_resources().get("CPU", 0)))

    def start(self, root: Path, found: Status) -> ClusterJob:
        return ClusterJob(self, root, found)

    def close(self, root: Path) -> None:
        self.ray.wait(self.leaving, num_returns=len(self.leaving), timeout=PATIENCE)
        self.ray.shutdown()
