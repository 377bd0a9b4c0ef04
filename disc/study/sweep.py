"""Running an experiment: which cells are done, which are left, several side by side.

Every cell is a run directory, made by `disc train` and gone on with by `disc resume` in a process
of its own, so that a sweep can be stopped and started again at any moment.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from disc import storage
from disc.envs.factory import Maker
from disc.run import directory, log
from disc.study.spec import Cell, Experiment
from disc.types import DiscError

LOGS = "logs"  # within a sweep's directory: what its processes said
PAUSE = 0.5  # seconds between looks at the processes
PATIENCE = 300.0  # seconds for a stopped process to finish its iteration and save


class Status(NamedTuple):
    """Where a cell stands."""

    cell: Cell
    begun: bool  # there is a run directory
    rows: list[log.Row]  # the last of its record
    saved: int | None = None  # step of its newest checkpoint; None if there is none

    @property
    def step(self) -> int:
        """Environment steps that are recorded."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def done(self) -> bool:
        """Whether all its steps are, and saved too unless only its record was kept."""
        saved = self.step if self.saved is None else self.saved
        return min(self.step, saved) >= self.cell.steps


def status(root: Path, cell: Cell) -> Status:
    """Look at a cell's directory.

    Raises:
        DiscError: it holds a run with other options, or no run.
    """
    path = root / cell.path
    if not (path / "config.json").exists():
        if path.exists() and (
            not path.is_dir() or {*path.iterdir()} - {*directory.leftovers(path)}
        ):
            raise DiscError(f"{path}: holds something that is no run; choose another --out.")
        return Status(cell, False, [])
    other = cell.differences(directory.read_config(path))
    if other:
        raise DiscError(f"{path}: holds another run ({'; '.join(other)}); choose another --out.")
    names = [file.stem for file in (path / "checkpoints").glob("step_*.safetensors")]
    steps = [name.removeprefix("step_") for name in names]
    saved = max((int(step) for step in steps if step.isdecimal()), default=None)
    return Status(cell, True, log.tail(path / "progress.csv"), saved)


def cli_args(root: Path, found: Status) -> list[str]:
    """The arguments of `disc` that start or resume a cell."""
    if not found.begun:
        return found.cell.command(root)
    path, steps = root / found.cell.path, str(found.cell.steps)
    env = Maker(found.cell.task, found.cell.arm.env_kwargs).cli_args
    return ["resume", str(path), "--steps", steps, "--threads", "1", *env]


class Job(Protocol):
    """A cell that runs somewhere."""

    def poll(self) -> int | None:
        """None while it runs, then its exit status."""
        ...

    def rows(self) -> list[log.Row]:
        """The last rows of its record."""
        ...

    def stop(self, now: bool = False) -> None:
        """Ask it to save and stop, or end it now."""
        ...

    def said(self) -> str:
        """The last thing it said."""
        ...


class Backend(Protocol):
    """Where cells run."""

    def slots(self) -> int:
        """How many may run at the same time."""
        ...

    def start(self, root: Path, found: Status) -> Job:
        """Start a cell, or go on with it."""
        ...

    def close(self, root: Path) -> None:
        """Leave nothing behind."""
        ...


@dataclass
class Board:
    """Where a sweep stands, for whoever shows it."""

    total: int
    done: list[Status] = field(default_factory=list)
    running: list[tuple[Status, Job, float]] = field(default_factory=list)  # and since when
    waiting: list[Status] = field(default_factory=list)
    failed: dict[Cell, str] = field(default_factory=dict)
    stopping: bool = False


def look(root: Path, cells: Iterable[Cell]) -> list[Status]:
    """The status of every cell, each directory once."""
    unique = {cell.path: cell for cell in cells}
    return [status(root, cell) for cell in unique.values()]


def run(
    root: Path,
    found: list[Status],
    backend: Backend,
    retries: int,
    show: Callable[[Board], None],
) -> Board:
    """Run all cells that are not done.

    A run that fails is tried again from its last checkpoint; one that fails for good is reported
    and the others go on.

    Args:
        root: where run directories are made.
        found: the cells.
        backend: where they run.
        retries: how often a cell may fail before it is given up.
        show: called with where the sweep stands, again and again.

    Raises:
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once all runs are saved; with a text if some
            could not be.
    """
    board = Board(len(found), [x for x in found if x.done], [], [x for x in found if not x.done])
    tries: dict[Cell, int] = {}
    with _terminable():
        try:
            while board.waiting or board.running:
                _start(root, board, backend)
                show(board)
                time.sleep(PAUSE)
                _collect(root, board, tries, retries)
            show(board)
        except KeyboardInterrupt:
            board.stopping = True
            show(board)
            if ended := _stop([job for _, job, _ in board.running]):
                raise KeyboardInterrupt(f"{ended} could not save") from None
            raise
        except BaseException:  # a mistake of ours costs nobody a run
            _stop([job for _, job, _ in board.running])
            raise
        finally:
            backend.close(root)
    return board


def _start(root: Path, board: Board, backend: Backend) -> None:
    """Start what waits, as far as there is room."""
    while board.waiting and len(board.running) < backend.slots():
        cell = board.waiting.pop(0).cell
        try:
            here = status(root, cell)
            if here.done:  # by another sweep, since
                board.done.append(here)
                continue
            for left in directory.leftovers(root / cell.path):
                left.unlink(missing_ok=True)
            board.running.append((here, backend.start(root, here), time.monotonic()))
        except (DiscError, OSError) as error:
            board.failed[cell] = str(error)


def _collect(root: Path, board: Board, tries: dict[Cell, int], retries: int) -> None:
    """Take the jobs that ended off the board."""
    for entry in list(board.running):
        before, job, _ = entry
        code, cell = job.poll(), before.cell
        if code is None:
            continue
        board.running.remove(entry)
        try:
            now = status(root, cell)
        except DiscError as error:
            board.failed[cell] = str(error)
            continue
        if now.done and (code == 0 or now.saved is not None):
            board.done.append(now)
        elif tries.get(cell, 0) < retries:
            tries[cell] = tries.get(cell, 0) + 1
            board.waiting.insert(0, now)
        else:
            board.failed[cell] = _reason(job, code)


def _reason(job: Job, code: int) -> str:
    """Why a job failed: what it said last, unless it had no time to say anything."""
    if code < 0:
        return f"ended by signal {-code} ({signal.strsignal(-code)})"
    return job.said() or f"ended with status {code}"


def _stop(jobs: list[Job]) -> int:
    """Let all save and stop; end those that take too long, or all after a second Ctrl-C.

    Returns:
        How many had to be ended.
    """
    limit, asked, ended = time.monotonic() + PATIENCE, False, set[int]()
    running = jobs
    while True:
        try:
            running = [job for job in jobs if job.poll() is None]
            if not running:
                return len(ended)
            for job in running if not asked else []:
                job.stop()
            asked = True
            time.sleep(PAUSE / 5)
            now = time.monotonic() > limit
        except KeyboardInterrupt:
            now = True
        if now:
            late = [job for job in running if job.poll() is None]
            for job in late:
                job.stop(now=True)
            ended |= {id(job) for job in late}
            limit = time.monotonic() + PATIENCE


class _terminable:
    """SIGTERM means the same as Ctrl-C."""

    def __enter__(self) -> None:
        self.before = signal.signal(signal.SIGTERM, self._raise)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self.before)

    def _raise(self, *_: object) -> None:
        raise KeyboardInterrupt


def write_down(root: Path, experiment: Experiment) -> None:
    """Put the experiment beside its runs, where `disc report` finds it.

    Raises:
        DiscError: nothing can be written there.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        storage.write_text(root / f"{experiment.name}.json", experiment.as_json())
    except OSError as error:
        raise DiscError(f"{root}: can't be written ({error}).") from error
