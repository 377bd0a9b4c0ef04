"""Running a sweep's cells as processes on this machine."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from filelock import lock_descriptor

from disc import storage
from disc.run import log as run_log
from disc.study.sweep import LOGS, Job, Locked, Status, cli_args
from disc.types import DiscError

ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables with which matrix products use one core, so that processes do not compete."""
# Loaded here, because loading right after a fork is unsafe.
SYSTEM = ctypes.CDLL(None) if sys.platform == "linux" else None


class LocalJob:
    """A cell in a separate process on this machine, on one core."""

    def __init__(self, root: Path, found: Status) -> None:
        self.directory = root / found.cell.path
        self.log = root / LOGS / f"{found.cell.path}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if not storage.within(self.log, root / LOGS):
            raise DiscError(f"{self.log}: is a link that leads out of {root / LOGS}; remove it.")
        with open(self.log, "a", encoding="utf-8") as log:
            claim(log, self.directory)
            self.process = launch(cli_args(root, found), log)

    def poll(self) -> int | None:
        """None while it runs, then its exit status."""
        return self.process.poll()

    def rows(self) -> list[run_log.Row]:
        """The last rows of its record."""
        return run_log.tail(self.directory / "progress.csv")

    def stop(self, now: bool = False) -> None:
        """Ask it to save and stop, or kill it now."""
        self.process.kill() if now else self.process.terminate()

    def last_output(self) -> str:
        """The last line of its log."""
        return last_line(self.log)


def claim(log: IO[str], directory: Path) -> None:
    """Lock a run's log; its process inherits the lock and holds it until it exits.

    Not on Windows, where locks are not inherited, and a locked file can't be written to by others.
    The lock of the run directory remains.

    Raises:
        Locked: a process of another sweep holds the lock.
    """
    if os.name == "nt":
        return
    try:
        taken = lock_descriptor(log.fileno(), blocking=False)
    except OSError:
        return  # a file system without locks
    if not taken:
        raise Locked(f"{directory}: is locked by another sweep.")


def launch(cli_args: list[str], log: IO[str]) -> subprocess.Popen[bytes]:
    """Start a process that runs `disc` with these arguments.

    It ignores Ctrl-C, because its parent asks it to stop, and is killed if its parent dies.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "disc", *cli_args],
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **ONE_CORE},
        start_new_session=True,
        preexec_fn=partial(end_with, os.getpid()) if sys.platform == "linux" else None,
    )


def end_with(parent: int) -> None:
    """Kill this process when its parent dies, so that it does not block the next sweep."""
    if SYSTEM is not None:
        SYSTEM.prctl(1, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


def last_line(path: Path) -> str:
    """The last non-empty line of a file."""
    with suppress(OSError):
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
    return ""


@dataclass(frozen=True)
class Local:
    """Runs `jobs` processes in parallel on this machine."""

    jobs: int

    def slots(self) -> int:
        """Maximum number of parallel jobs."""
        return self.jobs

    def start(self, root: Path, found: Status) -> Job:
        """Start or resume a cell."""
        return LocalJob(root, found)

    def close(self, root: Path) -> None:
        """Nothing to clean up."""
