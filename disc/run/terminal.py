"""Standard error, and the progress of a run on it."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from disc.types import Metrics


class Speaker(Console):
    """Standard error. If it is closed (`| tee` has ended, the terminal was closed), training
    continues silently.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(stderr=True, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> None:
        """Discard all further output, including that of other code."""
        self.quiet = True
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError:
            self.on_broken_pipe()


def make_console(show: bool) -> Console:
    """Standard error, or nothing."""
    return Speaker(quiet=not show, soft_wrap=True)


class Reporter:
    """A progress bar on a terminal, plain lines elsewhere.

    Args:
        title: the name of the run.
        total: the run's steps.
        show: False shows nothing.
        console: standard error by default.
    """

    SECONDS_BETWEEN_LINES = 10.0

    def __init__(
        self, title: str, total: int, show: bool = True, console: Console | None = None
    ) -> None:
        self.console = console or make_console(show)
        self.title, self.total = title, total
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.started: tuple[float, int] | None = None  # after the first iteration, which compiles
        self.spoken = -math.inf
        self.returns = {"return": "", "eval": ""}
        if self.console.is_terminal and show:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                console=self.console,
            )
            self.task = self.bar.add_task(title, total=total, text="compiling …")
            self.bar.start()

    def update(self, step: int, metrics: Metrics) -> None:
        """Show the progress."""
        for label, name in (("return", "train/return"), ("eval", "eval/return")):
            if not math.isnan(metrics.get(name, math.nan)):
                self.returns[label] = f"{label} {metrics[name]:,.1f}"
        now = time.monotonic()
        if self.started is None:
            self.started = (now, step)
        seconds, steps = now - self.started[0], step - self.started[1]
        rate = steps / seconds if seconds > 0 else 0.0
        left = duration((self.total - step) / rate) if rate and step < self.total else "0:00"
        parts = [f"{step:,}/{self.total:,} steps"]
        if rate:
            parts += [f"{rate:,.0f} steps/s", f"{left} left"]
        text = " · ".join([*parts, *filter(None, self.returns.values())])
        if self.bar is not None:
            self.bar.update(self.task, completed=min(step, self.total), text=text)
        elif now - self.spoken > self.SECONDS_BETWEEN_LINES or step >= self.total:
            self.spoken = now
            self.say(f"{self.title}: {text}")

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False)

    def close(self) -> None:
        """Stop the progress bar."""
        if self.bar is not None:
            self.bar.stop()


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
