"""The paper's eight tasks by their short names."""

from __future__ import annotations

from typing import NamedTuple


class Task(NamedTuple):
    """One of the paper's tasks: today's environment, and its size then and now."""

    id: str
    steps: int  # of the paper's runs
    observation_size: int
    action_size: int
    paper_observation_size: int


TASKS = {
    "ant": Task("Ant-v5", 3_000_000, 105, 8, 111),
    "bipedal-walker": Task("BipedalWalker-v3", 3_000_000, 24, 4, 24),
    "bipedal-walker-hardcore": Task("BipedalWalkerHardcore-v3", 3_000_000, 24, 4, 24),
    "half-cheetah": Task("HalfCheetah-v5", 3_000_000, 17, 6, 17),
    "hopper": Task("Hopper-v5", 1_000_000, 11, 3, 11),
    "humanoid": Task("Humanoid-v5", 10_000_000, 348, 17, 376),
    "humanoid-standup": Task("HumanoidStandup-v5", 10_000_000, 348, 17, 376),
    "walker2d": Task("Walker2d-v5", 1_000_000, 17, 6, 17),
}
