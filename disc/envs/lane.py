"""Some environments of a run and their episodes in progress; works in any process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from disc import seeding
from disc.envs import contract, spaces
from disc.envs.contract import BadReset, Misbehaved
from disc.envs.factory import Maker
from disc.policy.layout import Layout
from disc.types import Floats, Spec


@dataclass
class Lane:
    """One environment and its episode in progress."""

    env: gym.Env[Any, Any]
    layout: Layout  # of an observation
    observation: Any = None  # an array as returned, or (S,) if it was nested
    episode_return: float = 0.0
    episode_length: int = 0
    name: tuple[int, int, int] = (0, 0, 0)  # step of the last seeded reset, lane, episodes since

    def start(self, seed: int | None = None) -> None:
        """Start an episode; may raise `BadReset`."""
        self.observation = contract.reset(self.env, self.layout, seed)
        self.episode_return, self.episode_length = 0.0, 0
        step, lane, episodes = self.name
        self.name = (step, lane, episodes + 1)

    def step(self, action: Any) -> None:
        """Step the environment, and start the next episode where this one ends."""
        self.observation, reward, *ends = contract.step(self.env, action, self.layout)
        self.episode_return += reward
        self.episode_length += 1
        if any(ends):
            self.start()


class Lanes:
    """Consecutive environments of a run, in this process.

    Args:
        maker: makes them.
        spec: their sizes and bounds.
        indices: which environments of the run they are.
        envs: the environments, if they exist already.
    """

    def __init__(
        self,
        maker: Maker,
        spec: Spec,
        indices: Sequence[int],
        envs: Sequence[gym.Env[Any, Any]] = (),
    ) -> None:
        self.maker, self.name, self.spec, self.indices = maker, maker.name, spec, indices
        made = envs or [maker.make() for _ in indices]
        self.layout = spaces.observation_layout(made[0], maker.name)
        self.lanes = [Lane(env, self.layout) for env in made]
        self.used = False

    def reset(self, seed: int, step: int) -> None:
        """Reset all, with seeds that derive from the run's seed and the step.

        Used environments are replaced with new ones, because a reset may not clear all state of a
        physics engine (Box2D's does not), and a resumed run has new ones.
        """
        for e, lane in zip(self.indices, self.lanes, strict=True):
            if self.used and not self.maker.single:
                contract.close(lane.env, self.name)
                lane.env = self.maker.another(f"at step {step}")
            own = seeding.environment_seed(seed, seeding.ENVIRONMENTS, step, e)
            lane.name = (step, e, 0)
            try:
                lane.start(own)
            except BadReset as error:
                raise contract.error(self.name, error.at(f"at step {step}")) from error
        self.used = True

    def replay(self, actions: Floats, bound: Callable[[Floats], Any]) -> None:
        """Repeat recorded actions, (lanes, T, D), after a reset: restores the same episodes."""
        for lane, own in zip(self.lanes, actions, strict=True):
            for t, action in enumerate(own, 1):
                try:
                    lane.step(bound(action.copy()))
                except Misbehaved as error:
                    when = "after" if isinstance(error, BadReset) else "at"
                    when = f"{when} step {t} of {len(own)} that restore the episode"
                    raise contract.error(self.name, error.at(when)) from error

    def observations(self) -> Floats:
        """The current observations, (lanes, S)."""
        rows = [np.asarray(lane.observation, np.float32).reshape(-1) for lane in self.lanes]
        return np.stack(rows)

    def close(self) -> None:
        """Close all."""
        for lane in self.lanes:
            contract.close(lane.env, self.name)
