"""The paper's eight tasks by their short names."""

from __future__ import annotations

from typing import NamedTuple

GRID = 4_000
"""Steps between evaluations in the paper's tables."""


class Task(NamedTuple):
    """One of the paper's tasks: today's environment, and its size then and now."""

    id: str
    steps: int  # of the paper's runs
    observation_size: int
    action_size: int
    paper_observation_size: int
    eval_every: int = GRID  # steps between evaluations in studies


# The paper's grid, except on tasks of many steps whose simulation is slow: there, ten episodes
# after every 4,000 steps would take most of the time. Rarer ones tend to lower a maximum over time.
TASKS = {
    "ant": Task("Ant-v5", 3_000_000, 105, 8, 111, 20_000),
    "bipedal-walker": Task("BipedalWalker-v3", 3_000_000, 24, 4, 24, 20_000),
    "bipedal-walker-hardcore": Task("BipedalWalkerHardcore-v3", 3_000_000, 24, 4, 24, 20_000),
    "half-cheetah": Task("HalfCheetah-v5", 3_000_000, 17, 6, 17),
    "hopper": Task("Hopper-v5", 1_000_000, 11, 3, 11),
    "humanoid": Task("Humanoid-v5", 10_000_000, 348, 17, 376, 50_000),
    "humanoid-standup": Task("HumanoidStandup-v5", 10_000_000, 348, 17, 376, 50_000),
    "walker2d": Task("Walker2d-v5", 1_000_000, 17, 6, 17),
}
