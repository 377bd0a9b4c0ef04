"""Running the cells of an experiment that are not done yet, several in parallel.

Every cell is a run directory, started by `disc train` and resumed by `disc resume` in a separate
process, so that a sweep can be stopped and restarted at any time.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from disc import storage
from disc.algos import ALGORITHMS, check_actions
from disc.envs.factory import Maker
from disc.envs.spaces import describe
from disc.run import directory, log
from disc.run.config import awaits_end, read_config, stopped_early
from disc.study.spec import Cell, Experiment
from disc.types import DiscError

LOGS = "logs"  # within a sweep's directory: the output of its processes
PAUSE = 0.5  # seconds between checks of the processes
PATIENCE = 300.0  # seconds for a stopped process to finish its iteration and save


class Locked(DiscError):
    """A cell can't start because another sweep runs it."""


class Status(NamedTuple):
    """The state of a cell."""

    cell: Cell
    begun: bool  # the run directory exists
    rows: list[log.Row]  # the last rows of its record
    saved: int | None = None  # step of its newest checkpoint, if any
    early: bool = False  # its limits ended it before its last step
    awaits_end: bool = False  # its best policy is still to be evaluated again

    @property
    def step(self) -> int:
        """Recorded environment steps."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def done(self) -> bool:
        """Whether all its steps are recorded, and saved unless only the record was kept."""
        saved = self.step if self.saved is None else self.saved
        reached = min(self.step, saved) >= self.cell.steps
        return self.early or (reached and not self.awaits_end)


def check_environments(found: list[Status]) -> None:
    """Make each needed environment once, so that errors appear before any process starts.

    Raises:
        DiscError: it does not exist, is not supported, or has actions that an algorithm can't
            learn.
    """
    cells = [status.cell for status in found if not status.done]
    needed: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        needed.setdefault((cell.task, json.dumps(cell.arm.env_kwargs)), []).append(cell)
    for same in needed.values():
        maker = Maker(same[0].task, same[0].arm.env_kwargs)
        with maker.borrowed() as env:
            spec = describe(env, maker.name)
        for name in {cell.arm.algorithm for cell in same}:
            check_actions(ALGORITHMS[name], spec, maker.name)


def status(root: Path, cell: Cell) -> Status:
    """Read the state of a cell's directory.

    A run that has begun keeps its own `eval_every` and `eval_episodes`: unless evaluations can end
    it early, they do not change what it learns, and reports name the difference.

    Raises:
        DiscError: it contains a run with other options, or is not a run.
    """
    path = root / cell.path
    if not (path / "config.json").exists():
        if not directory.is_free(path):
            raise DiscError(f"{path}: is not a run directory; choose another --out.")
        return Status(cell, False, [])
    config = read_config(path)
    other = cell.differences(config)
    if not cell.limited:
        other = [text for text in other if not text.startswith("eval_")]
    if other:
        raise DiscError(f"{path}: is a different run ({'; '.join(other)}); choose another --out.")
    names = [file.stem for file in (path / "checkpoints").glob("step_*.safetensors")]
    steps = [name.removeprefix("step_") for name in names]
    saved = max((int(step) for step in steps if step.isdecimal()), default=None)
    own = config["plan"]["steps"] == cell.steps  # else it ends, or ended, at another length
    waits = own and awaits_end(config, saved or 0)
    early = stopped_early(config)
    return Status(cell, True, log.tail(path / "progress.csv"), saved, early, waits)


def cli_args(root: Path, found: Status) -> list[str]:
    """The arguments of `disc` that start or resume a cell."""
    if not found.begun:
        return found.cell.command(root)
    path, steps = root / found.cell.path, str(found.cell.steps)
    env = Maker(found.cell.task, found.cell.arm.env_kwargs).cli_args
    return ["resume", str(path), "--steps", steps, "--threads", "1", "--no-plots", *env]


class Job(Protocol):
    """A running cell."""

    def poll(self) -> int | None:
        """None while it runs, then its exit status."""
        ...

    def rows(self) -> list[log.Row]:
        """The last rows of its record."""
        ...

    def stop(self, now: bool = False) -> None:
        """Ask it to save and stop, or kill it now."""
        ...

    def last_output(self) -> str:
        """The last line of its output."""
        ...


class Backend(Protocol):
    """Where cells run."""

    def slots(self) -> int:
        """Maximum number of parallel jobs."""
        ...

    def start(self, root: Path, found: Status) -> Job:
        """Start or resume a cell."""
        ...

    def close(self, root: Path) -> None:
        """Clean up."""
        ...


@dataclass
class Board:
    """The progress of a sweep, for display."""

    total: int
    done: list[Status] = field(default_factory=list)
    running: list[tuple[Status, Job, float]] = field(default_factory=list)  # with start time
    waiting: list[Status] = field(default_factory=list)
    failed: dict[Cell, str] = field(default_factory=dict)  # with the reason
    locked: set[Cell] = field(default_factory=set)  # failed because another sweep ran them
    stopping: bool = False
    note: str = ""  # shown instead of the counts, if more runs will follow


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
    more: Callable[[Board], Iterable[Status]] = lambda board: (),
) -> Board:
    """Run all cells that are not done, and those that `more` adds.

    A failed run is retried from its last checkpoint. If it keeps failing it is reported, and the
    others continue.

    Args:
        root: directory of the run directories.
        found: the cells.
        backend: where they run.
        retries: how often a failed cell is retried.
        show: called repeatedly with the progress.
        more: called repeatedly with the progress; returns further cells. The sweep ends when there
            are none and all others have ended.

    Raises:
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once all runs are saved; with a message if
            some could not be saved.
    """
    board = Board(len(found), [x for x in found if x.done], [], [x for x in found if not x.done])
    tries: dict[Cell, int] = {}
    with _terminable():
        try:
            while _extend(board, more(board)) or board.running:
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
        except BaseException:  # after a bug, let all runs save
            _stop([job for _, job, _ in board.running])
            raise
        finally:
            backend.close(root)
    return board


def _extend(board: Board, new: Iterable[Status]) -> bool:
    """Add cells to the board; return whether any are waiting."""
    before = len(board.waiting)
    board.waiting += new
    board.total += len(board.waiting) - before
    return bool(board.waiting)


def _start(root: Path, board: Board, backend: Backend) -> None:
    """Start waiting cells while there are free slots."""
    while board.waiting and len(board.running) < backend.slots():
        cell = board.waiting.pop(0).cell
        try:
            here = status(root, cell)
            if here.done:  # meanwhile, by another sweep
                board.done.append(here)
                continue
            for left in directory.leftovers(root / cell.path):
                left.unlink(missing_ok=True)
            board.running.append((here, backend.start(root, here), time.monotonic()))
        except (DiscError, OSError) as error:
            board.failed[cell] = str(error)
            if isinstance(error, Locked):
                board.locked.add(cell)


def _collect(root: Path, board: Board, tries: dict[Cell, int], retries: int) -> None:
    """Remove finished jobs from the board."""
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
    """Why a job failed: its signal, its last output or its exit status."""
    if code < 0:
        return f"ended by signal {-code} ({signal.strsignal(-code)})"
    return job.last_output() or f"ended with status {code}"


def _stop(jobs: list[Job]) -> int:
    """Let all jobs save and stop; kill slow ones, or all after a second Ctrl-C.

    Returns:
        How many had to be killed.
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


@contextmanager
def _terminable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def write_down(root: Path, experiment: Experiment) -> None:
    """Write the experiment to the sweep's directory, for `disc report`.

    Raises:
        DiscError: the directory can't be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        storage.write_text(root / f"{experiment.name}.json", experiment.as_json())
    except OSError as error:
        raise DiscError(f"{root}: can't be written ({error}).") from error
