"""Environments with steps of a given cost, for `benchmarks.workers_scale`.

Worker processes import this module, so it imports little.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np


class Slow(gym.Env[Any, Any]):
    """16 observations and 4 actions; subclasses say what a step does."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (16,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(16, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.work()
        return np.zeros(16, np.float32), 0.0, False, self.time == 1000, {}

    def work(self) -> None:
        raise NotImplementedError


class Busy(Slow):
    """Computes in Python: a fixed number of turns of a loop, which hold Python's lock."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def work(self) -> None:
        turn(self.turns)


class Waiting(Slow):
    """Waits, as for hardware or another program."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def work(self) -> None:
        time.sleep(self.seconds)


def turn(turns: int) -> int:
    """A loop in Python."""
    total = 0
    for number in range(turns):
        total += number & 3
    return total


def turns_in(seconds: float) -> int:
    """How many turns of the loop fit into this time on this machine, at best."""
    times = []
    for _ in range(20):
        clock = time.perf_counter()
        turn(20_000)
        times.append(time.perf_counter() - clock)
    return round(20_000 * seconds / min(times))
