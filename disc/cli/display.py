"""Standard output and error, and the progress of a sweep: a live table, or lines in a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from disc.run import log, terminal
from disc.study.spec import Cell
from disc.study.sweep import Board, Status

SECONDS_BETWEEN_LINES = 30.0
out = Console(emoji=False, highlight=False, soft_wrap=True)
err = terminal.Speaker(soft_wrap=True)
live = terminal.Speaker()  # wraps lines, as a live table must


def tell(text: str) -> None:
    """Print a line to standard error, above a live table."""
    live.print(text, markup=False, soft_wrap=True)


class Display:
    """Shows a `Board`; use it as a context manager and call it."""

    def __init__(self, console: Console) -> None:
        self.console, self.spoken = console, 0.0
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self.known: set[Cell] = set()
        self.stopping = False

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, board: Board) -> None:
        """Show the sweep's progress."""
        for cell, reason in board.failed.items():
            if cell not in self.known:
                self.known.add(cell)
                self.say(f"{cell.path} failed: {reason}")
        if board.stopping and not self.stopping:
            self.stopping = True
            self.say("Saving all runs, then stopping; press Ctrl-C again to stop at once …")
        if self.live is not None:
            self.live.update(table(board), refresh=True)
        elif time.monotonic() - self.spoken > SECONDS_BETWEEN_LINES or not board.running:
            self.spoken = time.monotonic()
            self.say(line(board))

    def say(self, text: str) -> None:
        """Print a line, above the table if there is one."""
        self.console.print(text, markup=False, soft_wrap=True)


def table(board: Board) -> Group:
    """The running runs: progress, last evaluation, speed and time left."""
    shown = _runs("steps", "", "return", "steps/s", "left")
    for status, job, since in board.running:
        rows, cell = job.rows(), status.cell
        step = _step(status, rows)
        rate = _rate(rows, step, status.step, since)
        shown.add_row(
            Text(str(cell.path)),
            f"{step:,}/{cell.steps:,}",
            f"{100 * min(1.0, step / cell.steps):.0f} %",
            _last(rows, "eval/return") or _last(rows, "train/return") or "…",
            f"{rate:,.0f}" if rate else "…",
            terminal.duration(_ahead(cell, step) / rate) if rate else "…",
        )
    return Group(Text(line(board)), shown)


def _runs(*columns: str) -> Table:
    """An empty table of runs with columns of numbers."""
    table = Table(box=None)
    table.add_column("run", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def line(board: Board) -> str:
    """Counts and the total time left, as one line."""
    counts = board.note or f"{len(board.done)} of {board.total} runs done"
    parts = [counts, f"{len(board.running)} running"]
    parts += [f"{len(board.waiting)} waiting"] if board.waiting else []
    parts += [f"{len(board.failed)} failed"] if board.failed else []
    left = None if board.note else seconds_left(board)
    parts += [f"about {terminal.duration(left)} left"] if left else []
    return " · ".join(parts)


def seconds_left(board: Board) -> float | None:
    """Estimate from the speeds of running and finished runs, if known."""
    running = [(status, job.rows()) for status, job, _ in board.running]
    speeds: dict[tuple[str, str], float] = {}  # steps per second
    for status, rows in [*((status, status.rows) for status in board.done), *running]:
        if rows and rows[-1].get("time/elapsed"):
            speeds[status.cell.kind] = rows[-1]["step"] / rows[-1]["time/elapsed"]
    ahead = [(status.cell, status.step) for status in board.waiting]
    ahead += [(status.cell, _step(status, rows)) for status, rows in running]
    if not speeds or not board.running:
        return None
    usual = len(speeds) / sum(1.0 / speed for speed in speeds.values())
    work = sum(_ahead(cell, step) / speeds.get(cell.kind, usual) for cell, step in ahead)
    return work / len(board.running)


def _step(status: Status, rows: list[log.Row]) -> int:
    return int(rows[-1]["step"]) if rows else status.step


def _ahead(cell: Cell, step: int) -> int:
    """Steps left, at least 0: the last iteration may exceed the planned steps."""
    return max(0, cell.steps - step)


def _rate(rows: list[log.Row], step: int, before: int, since: float) -> float:
    """Steps per second over the last rows, or since the start; the first row may be partial."""
    rows = rows[1:] if len(rows) > 2 else rows
    if len(rows) > 1:
        spent = rows[-1].get("time/elapsed", 0.0) - rows[0].get("time/elapsed", 0.0)
        return (rows[-1]["step"] - rows[0]["step"]) / spent if spent > 0.0 else 0.0
    return max(0.0, (step - before) / max(1e-3, time.monotonic() - since))


def _last(rows: list[log.Row], name: str) -> str:
    values = [row[name] for row in rows if name in row]
    return f"{values[-1]:,.1f}" if values else ""


def plan(found: list[Status], seconds: Mapping[Cell, float | None], jobs: int) -> Group:
    """A sweep's runs, their progress, and the time the rest will take."""
    done = sum(status.done for status in found)
    known = [x for x in seconds.values() if x is not None]
    ends = [0.0] * jobs
    for own in known:  # a run starts when a slot becomes free
        ends[ends.index(min(ends))] += own
    title = f"{len(found)} runs, {done} done, {len(found) - done} to do"
    if known:
        title += f": about {max(ends) / 3600:,.2f} h with {jobs} at a time"
    if len(known) < len(seconds):
        title += f", not counting {len(seconds) - len(known)} that could not be estimated"
    shown = _runs("steps", "done", "hours")
    for status in found:
        cost = seconds.get(status.cell)
        hours = "" if status.done else "?" if cost is None else f"{cost / 3600:.2f}"
        share = "yes" if status.done else f"{100 * min(1.0, status.step / status.cell.steps):.0f} %"
        shown.add_row(Text(str(status.cell.path)), f"{status.cell.steps:,}", share, hours)
    return Group(Text(title), shown)
