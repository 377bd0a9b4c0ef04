"""A sweep's cells on a Ray cluster, of one machine or many.

Each cell is a Ray actor, as a task can't be asked to save and stop: it takes one CPU and runs the
cell as a process. Where its machine sees the sweep's directory, the run is made there; elsewhere in
a folder of that machine's, and brought back at each checkpoint, so that a loss costs no more.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from disc import host as disc_host
from disc import storage
from disc.run import checkpoint
from disc.run import log as run_log
from disc.study.local import Process, claim, last_line
from disc.study.sweep import LOGS, Status, status
from disc.types import DiscError

LOOK = 1.0  # seconds between looks at a process
PATIENCE = 10.0  # seconds for a machine to answer
LOSSES = 20  # of machines that a cell may run on before it is held to be its fault
PASSED_ON = ("DISC_", "JAX_", "MUJOCO_", "PYTHONPATH", "XLA_")  # variables that runs see
Files = dict[str, np.ndarray[Any, Any]]  # bytes, by their path within a sweep's directory
# The last rows of a run's record, exit status if it ended, newest checkpoint, files to bring back.
News = tuple[list[run_log.Row], int | None, tuple[str, ...], Files]


@dataclass
class Runner:
    """The actor: a cell on the machine that this lives on."""

    found: Status
    root: Path  # the sweep's directory
    lease: Path  # a file that begins with `token`, if this machine sees that directory
    token: str  # and then holds what only this one knows, until another has the cell
    folder: Path  # the sweep's current one
    variables: dict[str, str]
    software: set[str]
    own: tempfile.TemporaryDirectory[str] | None = None  # of a run that is to be brought back

    def news(self, have: tuple[str, ...], kept: Files | None) -> News | None:
        """How the cell is, which is begun if it does not run; None if that needs what is kept."""
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
            raise DiscError(f"{socket.gethostname()} lacks {missing}: install the same there.")
        run = self.found.cell.path
        if shared := self._held():
            self.token += os.urandom(8).hex()
            self.lease.write_text(self.token)
            time.sleep(2 * LOOK if (self.root / run).exists() else 0.0)  # who had it sees that
        elif kept is not None:
            self.own = tempfile.TemporaryDirectory(prefix="disc-", ignore_cleanup_errors=True)
            self.root = Path(self.own.name)
            write(self.root, run, kept)
        else:
            return False
        os.chdir(self.folder if self.folder.is_dir() else self.root)
        paths = [str(Path(__file__).parents[2]), str(self.folder)]  # so `disc` is this one
        paths += [x["PYTHONPATH"] for x in (self.variables, os.environ) if "PYTHONPATH" in x]
        os.environ.update(self.variables, PYTHONSAFEPATH="1", PYTHONPATH=os.pathsep.join(paths))
        self.job = Process(self.root, status(self.root, self.found.cell))
        if shared:
            threading.Thread(target=self._watch, daemon=True).start()
        return True

    def _held(self) -> bool:
        """Whether this machine sees the directory, and nobody was given the cell after it."""
        with suppress(OSError):
            return self.lease.read_text().startswith(self.token)
        return False

    def _watch(self) -> None:
        """End the process once the cell is another's, as after this machine was given up."""
        while self.job.process.returncode is None and self._held():
            time.sleep(LOOK)
        self.job.stop(now=True)

    def stop(self, now: bool) -> None:
        """Ask the process to save and stop, or end it and leave nothing behind."""
        self.job.stop(now)
        if now:
            self.job.process.wait()
        if now and self.own is not None:
            self.own.cleanup()


def software() -> set[str]:
    """What decides about numbers: this package's source and the versions of what it uses."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    sources = b"".join(path.read_bytes() for path in files)
    versions = {**disc_host.versions(), "disc with the checksum": f"{zlib.crc32(sources):08x}"}
    return {f"{name} {version}" for name, version in versions.items()}


def checkpoints(root: Path, run: Path) -> tuple[str, ...]:
    """A run's checkpoints, the oldest first, by their paths within the sweep's directory."""
    return tuple(sorted(str(x.relative_to(root)) for x in (root / run).glob("checkpoints/step_*")))


def read(root: Path, run: Path, have: tuple[str, ...] = ()) -> Files:
    """The newest checkpoint of a run unless it is had, then all else, so its record is as new."""
    names = [name for name in checkpoints(root, run)[-1:] if name not in have]
    paths = [*(root / run).rglob("[!.]*"), root / LOGS / f"{run}.log"]
    others = (path for path in paths if path.is_file() and path.parent.name != "checkpoints")
    names += [str(path.relative_to(root)) for path in others]
    try:
        found = {name: np.fromfile(root / name, np.uint8) for name in names}
    except FileNotFoundError:
        return {}  # one was just removed
    if (record := f"{run}/progress.csv") in found:  # less a row that is being written
        found[record] = found[record][: found[record].tobytes().rfind(b"\n") + 1]
    return found


def write(root: Path, run: Path, found: Files) -> None:
    """Write a run's files in an order that leaves at every moment what can go on exactly."""
    ranks = {"config.json": 0, "progress.csv": 2, "checkpoints": 3}  # and 1 for all else
    for name in sorted(found, key=lambda x: ranks.get(x.removeprefix(f"{run}/").split("/")[0], 1)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with storage.replace(root / name) as beside:
            found[name].tofile(beside)
    if brought := [name for name in found if (root / name).parent.name == "checkpoints"]:
        checkpoint.prune(root / max(brought))


class Task:
    """A cell that runs on the cluster, or waits there for a CPU; see `Job`."""

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
            except errors.RayError as error:  # its machine is lost; Ray starts the actor elsewhere
                self._end(1, str(error)) if self.stopping else self._ask()
        return self.code

    def _take(self, news: News | None) -> None:
        if news is None:
            return self._ask(read(self.root, self.run))
        rows, code, newest, found = news
        self.shown, self.begun = rows or self.shown, True
        write(self.root, self.run, found)
        if code is None or checkpoints(self.root, self.run)[-1:] != newest:
            return self._ask()  # again at the end, where a shared directory shows it late
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
        self.code, self.actor = code, None  # an actor that nobody holds ends, and frees its CPU

    def rows(self) -> list[run_log.Row]:
        return self.shown

    def stop(self, now: bool = False) -> None:
        self.stopping = True
        if now or not self.begun:
            self._end(1)
        else:
            self.actor.stop.remote(False)

    def said(self) -> str:
        return last_line(self.log)


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster; see `Backend`."""

    ray: Any
    runner: Any  # `Runner` as Ray's
    jobs: int | None  # cells at the same time; as many as there are CPUs if None
    share: bool  # work in the sweep's directory where a machine sees it
    leaving: list[Any] = field(default_factory=list)  # actors' last answers

    @classmethod
    def connect(cls, address: str, jobs: int | None, share: bool = True) -> Cluster:
        """Join the cluster at an address; a DiscError says why that can't be."""
        try:
            import ray
        except ImportError as error:
            raise DiscError("--ray needs Ray: pip install 'disc-rl[ray]'.") from error
        try:
            host, _, port = address.rpartition(":")
            if port.isdigit():  # Ray itself would try for minutes
                socket.create_connection((host, int(port)), PATIENCE).close()
            ray.init(address=address, log_to_driver=False, logging_level=40)
        except Exception as error:
            why = f"can't join a Ray cluster at {address} ({' '.join(str(error).split())})"
            raise DiscError(f"{why}; `ray start --head` starts one.") from error
        with suppress(AttributeError):  # a name of its own, which prints pages on a lost machine
            ray._private.worker.print_to_stdstream = lambda *_, **__: None
        actor = ray.remote(num_cpus=1, max_restarts=LOSSES, scheduling_strategy="SPREAD")(Runner)
        return cls(ray, actor, jobs, share)

    def slots(self) -> int:
        """How many may run, or wait in Ray's queue: one at least, for a cluster that grows."""
        return self.jobs or max(1, int(self.ray.cluster_resources().get("CPU", 0)))

    def start(self, root: Path, found: Status) -> Task:
        return Task(self, root, found)

    def close(self, root: Path) -> None:
        self.ray.wait(self.leaving, num_returns=len(self.leaving), timeout=PATIENCE)
        self.ray.shutdown()
