"""The environments of a run: their sizes and bounds, and the episodes under way in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from disc import seeding
from disc.envs import contract
from disc.envs.contract import RAISED, Misbehaved
from disc.envs.factory import Maker, said
from disc.types import DiscError, Floats, Spec


def describe(env: gym.Env[Any, Any], name: str) -> Spec:
    """The environment's sizes and bounds.

    Raises:
        DiscError: its spaces are not Box, with what to do about it.
    """
    action, observation = (getattr(env, f"{x}_space", None) for x in ("action", "observation"))
    if not isinstance(action, gym.spaces.Box) or action.dtype.kind != "f":
        kind = type(action).__name__ if not isinstance(action, gym.spaces.Box) else "integer Box"
        raise DiscError(
            f"{name}: has {kind} actions, and these algorithms need continuous (float Box) ones; "
            "choose or wrap an environment with such actions."
        )
    if not isinstance(observation, gym.spaces.Box):
        raise DiscError(
            f"{name}: has {type(observation).__name__} observations, and Box ones are needed; wrap "
            "it in gymnasium.wrappers.FlattenObservation."
        )
    if observation.dtype == np.uint8 and len(observation.shape) >= 2:
        raise DiscError(
            f"{name}: has image observations of shape {observation.shape}, and these networks take "
            "vectors; wrap it so that it returns features or its state."
        )
    size, dimensions = int(np.prod(observation.shape)), int(np.prod(action.shape))
    if size == 0 or dimensions == 0:
        raise DiscError(f"{name}: its observations or actions are empty.")
    return Spec(
        observation_size=size,
        action_size=dimensions,
        observation_shape=tuple(observation.shape),
        action_shape=tuple(action.shape),
        action_low=-_within(-action.low.reshape(-1)),
        action_high=_within(action.high.reshape(-1)),
    )


def _within(high: np.ndarray[Any, Any]) -> Floats:
    """Upper bounds in single precision, rounded inwards, so that the space contains them."""
    rounded = high.astype(np.float32)
    down = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded.astype(high.dtype) > high, down, rounded)


@dataclass
class Lane:
    """One environment and the episode under way in it."""

    env: gym.Env[Any, Any]
    shape: tuple[int, ...]  # of an observation
    observation: Any = None
    episode_return: float = 0.0
    episode_length: int = 0
    name: tuple[int, int, int] = (0, 0, 0)  # step of the last seeded reset, lane, episodes since

    def start(self, seed: int | None = None) -> None:
        """Start an episode; `Misbehaved` says what went wrong with that."""
        self.observation = contract.begin(self.env, self.shape, seed)
        self.episode_return, self.episode_length = 0.0, 0
        step, lane, episodes = self.name
        self.name = (step, lane, episodes + 1)


class Pace:
    """Whether stepping environments side by side is faster, by trying both.

    Threads help where the physics, which releases Python's lock, outweighs Python itself: on
    Humanoid but not on HalfCheetah (docs/performance.md).
    """

    def __init__(self) -> None:
        self.seconds: dict[bool, float] = {}  # of a step, side by side or one after the other

    def faster(self) -> bool:
        """True if side by side is, or has not been tried."""
        if len(self.seconds) < 2:
            return not self.seconds.get(True)
        return self.seconds[True] < self.seconds[False]

    def note(self, side_by_side: bool, seconds: float) -> None:
        """Remember how long a step took, the best of all tries."""
        self.seconds[side_by_side] = min(seconds, self.seconds.get(side_by_side, seconds))


LOOSE = 1000
"""Arrays of actions that are kept apart: one of a single step is ten times what is in it."""


class Environments:
    """The E environments of a run, and all that is needed to bring them back to where they are.

    Args:
        maker: makes them.
        num_envs: E.
    """

    def __init__(self, maker: Maker, num_envs: int) -> None:
        if num_envs > 1 and maker.single:
            raise DiscError(
                f"{maker.name}: num_envs is {num_envs}, so pass a function that makes the "
                "environment, not one environment."
            )
        self.maker, self.name, self.used = maker, maker.name, False
        make: Any = (lambda: maker.source) if maker.single else maker.make
        made = [make() for _ in range(num_envs)]
        self.spec = describe(made[0], maker.name)
        self.lanes = [Lane(env, self.spec.observation_shape) for env in made]
        self.pace = Pace()
        self.actions_since_reset: list[Floats] = []  # (E, T, D) each: actions since the last reset

    def reset(self, seed: int, step: int) -> None:
        """Start all anew, with seeds that derive from the run's seed and the step.

        Used environments are replaced by new ones, as a reset may not clear all that a physics
        engine remembers (Box2D's does not), and a resumed run has new ones.
        """
        for e, lane in enumerate(self.lanes):
            if self.used and not self.maker.single:
                contract.shut(lane.env, self.name)
                lane.env = another(self.maker, f"at step {step}")
            own = seeding.environment_seed(seed, seeding.ENVIRONMENTS, step, e)
            lane.name = (step, e, 0)
            try:
                lane.start(own)
            except Misbehaved as error:
                raise contract.error(self.name, f"the reset at step {step} {error}") from error
        self.actions_since_reset, self.used = [], True

    def keep(self, actions: Floats) -> None:
        """Remember that these actions, (E, T, D), were taken since the last reset."""
        self.actions_since_reset.append(actions)
        if len(self.actions_since_reset) > LOOSE:
            self.actions_since_reset = [np.concatenate(self.actions_since_reset, axis=1)]

    def replay(self, actions: Floats, bound: Callable[[Floats], Floats]) -> None:
        """Take recorded actions, (E, T, D), from a reset on: brings back the same episodes."""
        for lane, own in zip(self.lanes, actions, strict=True):
            for t, action in enumerate(own, 1):
                where = f"{t} of {len(own)} that bring back the episode"
                self._retake(lane, bound(action.copy()), where)
        self.actions_since_reset = [actions] if actions.shape[1] else []

    def _retake(self, lane: Lane, action: Floats, where: str) -> None:
        result: Any = contract.NOTHING
        try:
            result = lane.env.step(action)
            lane.observation, reward, terminated, truncated, _ = result
            lane.episode_return += contract.number(reward)
            lane.episode_length += 1
            if terminated or truncated:
                lane.start()
        except RAISED as error:
            what = contract.blame(error, result, lane.shape, where, where)
            raise contract.error(self.name, what) from error

    def observations(self) -> Floats:
        """The observations the environments stand at, (E, S)."""
        rows = [np.asarray(lane.observation, np.float32).reshape(-1) for lane in self.lanes]
        return np.stack(rows)

    def close(self) -> None:
        """Close all."""
        for lane in self.lanes:
            contract.shut(lane.env, self.name)


def another(maker: Maker, when: str) -> gym.Env[Any, Any]:
    """One more environment, in the course of a run.

    Raises:
        DiscError: it can't be made; says when and why.
    """
    try:
        return maker.make()
    except DiscError as error:
        if maker.single:
            raise
        what = f"a new environment was needed {when}, and making it failed"
        cause = error.__cause__ or error
        raise contract.error(maker.name, f"{what} ({said(cause)})") from error


@contextmanager
def borrowed(maker: Maker, when: str | None = None) -> Iterator[gym.Env[Any, Any]]:
    """An environment for a while; `when` in the course of a run says so."""
    env = another(maker, when) if when else maker.make()
    try:
        yield env
    finally:
        contract.shut(env, maker.name)
