"""Finds the fastest way to step several environments by trying each way."""

from __future__ import annotations

from collections import Counter
from typing import Literal

Way = Literal["one after the other", "in threads", "in processes"]
IN_TURN: Way = "one after the other"
IN_THREADS: Way = "in threads"
IN_PROCESSES: Way = "in processes"

ENOUGH = 256
"""Steps after which a way has been tried."""
SHORT = 1e-3
"""A batch that takes fewer seconds is not worth handing to threads or processes."""
START = 10.0
"""Seconds that processes must save in a run to be tried; starting them takes one or two."""
WAITING = 0.5
"""An environment that computes for less than this share of its time waits for something else."""


class Pace:
    """Chooses among the ways by their time per step; results do not depend on it.

    Threads help where an environment waits, or where its physics, which releases Python's lock,
    outweighs Python itself: on Humanoid but not on HalfCheetah (docs/performance.md). Processes
    help everywhere, but take time to start, so they are tried only in a run that is long enough.

    Args:
        count: E.
        processes: whether processes may be used.
    """

    def __init__(self, count: int, processes: bool) -> None:
        self.count, self.processes = count, processes
        self.seconds: dict[Way, float] = {}  # the least per step
        self.batches: Counter[Way] = Counter()
        self.steps: Counter[Way] = Counter()
        self.waits = False
        self.chosen: Way | None = None

    def way(self, steps: int, threads: int, remaining: int = 0, since: int = 0) -> Way:
        """How to collect the next batch.

        Args:
            steps: N of the batch.
            threads: cores that may be used.
            remaining: steps until the end of the run.
            since: steps since the last reset; processes must repeat them first.
        """
        if self.chosen is None:
            self.chosen = self._chosen(steps, threads, remaining, since)
        return self.chosen or self._untried()

    def _chosen(self, steps: int, threads: int, remaining: int, since: int) -> Way | None:
        if self.count == 1 or threads == 1:
            return IN_TURN
        if not self._tried(IN_TURN):
            return None
        alone = self.seconds[IN_TURN]
        if alone * steps < SHORT:
            return IN_TURN
        if not self._tried(IN_THREADS):
            return None
        gain = min(self.seconds.values()) - alone / self.parallel(threads)
        worthwhile = gain * remaining > START + alone * since
        trying = self.processes and (worthwhile or self.batches[IN_PROCESSES] > 0)
        if trying and not self._tried(IN_PROCESSES):
            return None
        return min(self.seconds, key=lambda way: self.seconds[way])

    def _tried(self, way: Way) -> bool:
        least = 2 if way == IN_PROCESSES else 1  # the first batch of a process imports modules
        return self.batches[way] >= least and self.steps[way] >= ENOUGH

    def _untried(self) -> Way:
        ways = (IN_TURN, IN_THREADS, IN_PROCESSES)
        return next(way for way in ways if not self._tried(way))

    def parallel(self, threads: int) -> int:
        """How many environments can be stepped in parallel."""
        return self.count if self.waits else min(self.count, threads)

    def note(self, way: Way, steps: int, seconds: float, computing: float = 0.0) -> None:
        """Record the time of a batch, and how much of it this thread spent computing."""
        self.batches[way] += 1
        self.steps[way] += steps
        least = self.seconds.get(way, seconds / steps)
        self.seconds[way] = min(seconds / steps, least)
        if way == IN_TURN:
            self.waits = computing < WAITING * seconds

    def rule_out_processes(self) -> None:
        """Processes can't be used after all."""
        self.processes = False
        self.seconds.pop(IN_PROCESSES, None)

    def summary(self) -> str | None:
        """The choice in one line; None if there was nothing to choose."""
        if self.chosen is None or len(self.seconds) < 2:
            return None
        times = self.seconds[IN_TURN] / self.seconds[self.chosen]
        compared = f", {times:.1f} times as fast as one after the other" if times > 1.0 else ""
        return (
            f"{self.count} environments are stepped {self.chosen}{compared} (found by a trial; "
            "--workers sets it)."
        )
