"""Rollouts without an environment, and an actor for rollouts with one."""

from __future__ import annotations

from typing import Any

import numpy as np

from disc.types import Rollout, Spec


def spec(s: int, d: int) -> Spec:
    """Observations of size s, and actions of size d within ±1."""
    return Spec(s, d, (s,), (d,), np.full(d, -1.0, np.float32), np.full(d, 1.0, np.float32))


class Actor:
    """The mean is ten times the observation, (1,)."""

    log_std = np.float32([-1.0])

    def noise(self, rng: Any, count: int) -> Any:
        return rng.standard_normal((count, 1), np.float32)

    def __call__(self, observation: Any, noise: Any) -> Any:
        mean = 10.0 * observation
        return mean + noise, mean

    def episode(self, *name: int) -> Actor:
        return self

    def bound(self, action: Any) -> Any:
        return action


def rollout_of(columns: dict[str, Any]) -> Rollout:
    """With these columns; by default in one piece, without policy or finished episodes."""
    steps, dimensions = columns["action"].shape
    nothing, lost = np.zeros(0, np.float32), np.full((steps, dimensions), np.nan, np.float32)
    rest = {
        "mean": lost,
        "log_std": np.full(dimensions, np.nan, np.float32),
        "border": np.arange(steps) == steps - 1,
        "returns": nothing,
        "lengths": nothing,
    }
    return Rollout(**{**rest, **columns})


def own_rollout(
    acting: Any, spec: Spec, steps: int, seed: int, center: float = 0.0, spread: float = 1.0
) -> Rollout:
    """Of a policy on random observations with this mean and deviation."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((2, steps, spec.observation_size)).astype(np.float32)
    x, following = center + spread * noise
    pairs = [acting(row, rng.standard_normal(spec.action_size).astype(np.float32)) for row in x]
    action, mean = (np.stack(column) for column in zip(*pairs, strict=True))
    reward, ends = rng.standard_normal(steps).astype(np.float32), rng.random((2, steps)) < 0.1
    border, none = np.arange(steps) == steps - 1, np.zeros(0, np.float32)
    facts = (x, action, mean, acting.log_std, reward, following, *ends, border, none, none)
    return Rollout(*facts)


def walk(rng: np.random.Generator, here: Any, steps: int, d: int, reset: float) -> Any:
    """Columns of `steps` steps from one observation, and the observation after them.

    A share `reset` of the steps ends an episode, for each of the two reasons.
    """
    names = ("observation", "next_observation", "action", "reward", "terminated", "truncated")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(steps):
        following, ends = np.float32(rng.standard_normal(len(here))), rng.random(2) < reset
        action, reward = np.float32(rng.standard_normal(d)), np.float32(rng.random())
        row = (here, following, action, reward, *ends)
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
        # A reset that shares an entry with the last observation is still a jump.
        start = np.append(np.float32(rng.standard_normal(len(here) - 1)), following[-1])
        here = start if np.any(ends) else following
    return {name: np.array(column) for name, column in rows.items()}, here
