"""Environments and policies for workers; imports nothing that a worker must not import."""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from disc.envs.pool import Environments
from disc.envs.rollout import collect
from disc.policy.policies import Gaussian
from disc.types import Rollout, Spec
from tests.support.environments import Wide

HEAVY = ("jax", "jaxlib", "rich", "tyro", "matplotlib", "disc.learning", "disc.algos")


class Mortal(Wide):
    """Kills its process at a step; only once if `once` names a file to leave."""

    def __init__(self, at: int, once: str = "") -> None:
        self.at, self.once, self.total = at, once, 0

    def step(self, action: Any) -> Any:
        self.total += 1
        if self.total == self.at and not (self.once and os.path.exists(self.once)):
            if self.once:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Unseeded(Wide):
    """Ignores its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None)


class Telling(Wide):
    """The reward is the number of modules that a worker should not have imported."""

    def step(self, action: Any) -> Any:
        heavy = sum(name in sys.modules for name in HEAVY)
        observation, _, *rest = super().step(action)
        return observation, float(heavy), *rest


class Slow(Wide):
    """Every step takes a while."""

    def step(self, action: Any) -> Any:
        time.sleep(0.01)
        return super().step(action)


def mortal(at: int = 10**9, once: str = "") -> Mortal:
    return Mortal(at, once)


def telling() -> Telling:
    return Telling()


def policy(spec: Spec) -> Gaussian:
    """A small random policy."""
    rng, size, dimensions = np.random.default_rng(0), spec.observation_size, spec.action_size
    sizes = (size, 8, dimensions)

    def draw(*shape: int) -> Any:
        return 0.1 * rng.standard_normal(shape, np.float32)

    return Gaussian(
        weights=tuple(draw(a, b) for a, b in pairwise(sizes)),
        biases=tuple(draw(b) for b in sizes[1:]),
        observation_mean=draw(size),
        observation_inverse_std=np.ones(size, np.float32),
        observation_shape=spec.observation_shape,
        action_low=spec.action_low,
        action_high=spec.action_high,
        action_shape=spec.action_shape,
        log_std=np.zeros(dimensions, np.float32),
    )


def batch(env: Environments, iteration: int, threads: int = 2, n: int = 96) -> Rollout:
    """A rollout with a small random policy."""
    state = SimpleNamespace(seed=5, iteration=iteration, step=n * iteration)
    return collect(env, lambda _: policy(env.spec), state, n, threads)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has just ended
        if int(parent) == pid and state != "Z":
            found.append(int(path.parent.name))
    return found


def running(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
