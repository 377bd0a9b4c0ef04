"""A sweep's cells as Ray tasks, on one machine or many.

Where the cluster's machines see the sweep's directory, a task works in it. Where they don't, it
works in a folder of its own and hands back the run's files whenever there is a new checkpoint, so
that a lost machine costs the steps since the last one.
"""

from __future__ import annotations

import secrets
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from disc import files, logs
from disc.sweep import LOGS, PATIENCE, Status, last_line, launch, words
from disc.types import DiscError

SECONDS_BETWEEN_NEWS = 2.0
FAILED = 1


class News(NamedTuple):
    """What a task says of its run."""

    rows: list[logs.Row]  # the last of its record
    said: str  # the last line of its log
    files: dict[str, bytes]  # that have changed, where there is no shared directory
    code: int | None = None  # exit status, at the end


def work(root: str, token: str, found: Status, kept: dict[str, bytes]) -> Iterator[News]:
    """Run a cell on the machine that this is called on.

    Args:
        root: the sweep's directory.
        token: the name of a file there, by which a machine tells whether it sees it.
        found: the cell.
        kept: the files of its run directory so far.
    """
    with tempfile.TemporaryDirectory(prefix="disc-") as own:
        shared = (Path(root) / token).exists()
        base = Path(root) if shared else Path(own)
        directory = base / found.cell.path
        log = base / LOGS / f"{found.cell.path}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        for name, contents in {} if shared else kept.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(contents)
        with open(log, "a", encoding="utf-8") as file:
            process = launch(words(Path(), found), file, base)
        try:
            seen: set[str] = set()
            while (code := process.poll()) is None:
                time.sleep(SECONDS_BETWEEN_NEWS)
                changed = {} if shared else _new_checkpoint(directory, seen)
                yield News(logs.tail(directory / "progress.csv"), last_line(log), changed)
            last = {} if shared else _contents(directory)
            yield News(logs.tail(directory / "progress.csv"), last_line(log), last, code)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with suppress(Exception):
                    process.wait(PATIENCE)
                process.kill()


def _new_checkpoint(directory: Path, seen: set[str]) -> dict[str, bytes]:
    """All files, if there is a checkpoint that was not there before."""
    names = {path.name for path in directory.glob("checkpoints/step_*")}
    if names <= seen:
        return {}
    seen |= names
    return _contents(directory)


def _contents(directory: Path) -> dict[str, bytes]:
    """The files of a run directory; of the checkpoints only the newest."""
    checkpoints = sorted(directory.glob("checkpoints/step_*"))[-1:]
    others = [path for path in directory.rglob("*") if path.parent.name != "checkpoints"]
    found = {}
    for path in [*others, *checkpoints]:  # so the record is as new as the checkpoint, or newer
        if path.is_file() and not path.name.startswith("."):
            with suppress(OSError):
                found[str(path.relative_to(directory))] = path.read_bytes()
    return found


class Task:
    """A cell that runs as a Ray task."""

    def __init__(self, cluster: Cluster, root: Path, found: Status) -> None:
        self.directory, self.ray = root / found.cell.path, cluster.ray
        self.log = root / LOGS / f"{found.cell.path}.log"
        self.news = News(found.rows, "", {})
        kept = _contents(self.directory)
        self.updates = cluster.remote.remote(str(root.absolute()), cluster.token, found, kept)
        self.code: int | None = None

    def poll(self) -> int | None:
        """None while it runs, then its exit status; takes in what it has said."""
        while self.code is None:
            try:
                ready, _ = self.ray.wait([self.updates], timeout=0, fetch_local=False)
                if not ready:
                    return None
                self._take(self.ray.get(next(self.updates)))
            except StopIteration:
                self.code = FAILED
            except Exception as error:  # its machine is gone, or it was cancelled
                self.news = self.news._replace(said=f"{type(error).__name__}: {error}")
                self.code = FAILED
        return self.code

    def _take(self, news: News) -> None:
        self.news, self.code = news, news.code
        order = sorted(news.files, key=lambda name: not name.startswith("checkpoints/"))
        for name in order:  # the checkpoint first, as the rest is worth nothing without it
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.replace(path) as beside:
                beside.write_bytes(news.files[name])
        if news.files and news.said:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(self.log, news.said + "\n")

    def rows(self) -> list[logs.Row]:
        """The last rows of its record."""
        return self.news.rows

    def stop(self, now: bool = False) -> None:
        """Ask it to save and stop, or end it now."""
        self.ray.cancel(self.updates, force=now)

    def said(self) -> str:
        """The last thing it said."""
        return self.news.said


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster."""

    ray: Any
    remote: Any  # `work` as Ray's
    token: str
    jobs: int | None

    @classmethod
    def connect(cls, address: str, jobs: int | None) -> Cluster:
        """Join the cluster at an address.

        Raises:
            DiscError: Ray is not installed, or there is no cluster.
        """
        try:
            import ray
        except ImportError as error:
            raise DiscError("--ray needs Ray: pip install 'disc-rl[ray]'.") from error
        try:
            ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise DiscError(
                f"there is no Ray cluster at {address} ({error}); start one with "
                "`ray start --head`."
            ) from error
        token = f".shared-{secrets.token_hex(8)}"
        remote = ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(work)
        return cls(ray, remote, token, jobs)

    def slots(self) -> int:
        """How many may run at the same time: as many as the cluster has cores now."""
        cores = int(self.ray.cluster_resources().get("CPU", 0))
        return min(cores, self.jobs or cores)

    def start(self, root: Path, found: Status) -> Task:
        """Start a cell, or go on with it."""
        (root / self.token).touch()
        return Task(self, root, found)

    def close(self, root: Path) -> None:
        """Leave nothing behind."""
        (root / self.token).unlink(missing_ok=True)
        self.ray.shutdown()
