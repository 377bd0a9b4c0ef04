"""The environments of a run: their sizes and bounds, and the episodes in progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from disc import seeding
from disc.envs import contract
from disc.envs.contract import BadReset, Misbehaved
from disc.envs.factory import Maker
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
    """One environment and its episode in progress."""

    env: gym.Env[Any, Any]
    shape: tuple[int, ...]  # of an observation
    observation: Any = None
    episode_return: float = 0.0
    episode_length: int = 0
    name: tuple[int, int, int] = (0, 0, 0)  # step of the last seeded reset, lane, episodes since

    def start(self, seed: int | None = None) -> None:
        """Start an episode; may raise `BadReset`."""
        self.observation = contract.reset(self.env, self.shape, seed)
        self.episode_return, self.episode_length = 0.0, 0
        step, lane, episodes = self.name
        self.name = (step, lane, episodes + 1)

    def step(self, action: Floats) -> None:
        """Step the environment, and start the next episode where this one ends."""
        self.observation, reward, *ends = contract.step(self.env, action, self.shape)
        self.episode_return += reward
        self.episode_length += 1
        if any(ends):
            self.start()


class Pace:
    """Whether stepping environments in threads is faster, by trying both.

    Threads help where the physics, which releases Python's lock, outweighs Python itself: on
    Humanoid but not on HalfCheetah (docs/performance.md).
    """

    def __init__(self) -> None:
        self.seconds: dict[bool, float] = {}  # per step, in threads or one after the other

    def faster(self) -> bool:
        """True if threads are faster, or have not been tried."""
        if len(self.seconds) < 2:
            return not self.seconds.get(True)
        return self.seconds[True] < self.seconds[False]

    def note(self, side_by_side: bool, seconds: float) -> None:
        """Note the time of a step; the least counts."""
        self.seconds[side_by_side] = min(seconds, self.seconds.get(side_by_side, seconds))


LOOSE = 1000
"""Arrays of actions before they are joined: one of a single step takes ten times its contents."""


class Environments:
    """The E environments of a run, and the actions that restore their episodes.

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
        """Reset all, with seeds that derive from the run's seed and the step.

        Used environments are replaced by new ones, as a reset may not clear all that a physics
        engine remembers (Box2D's does not), and a resumed run has new ones.
        """
        for e, lane in enumerate(self.lanes):
            if self.used and not self.maker.single:
                contract.close(lane.env, self.name)
                lane.env = another(self.maker, f"at step {step}")
            own = seeding.environment_seed(seed, seeding.ENVIRONMENTS, step, e)
            lane.name = (step, e, 0)
            try:
                lane.start(own)
            except BadReset as error:
                raise contract.error(self.name, error.at(f"at step {step}")) from error
        self.actions_since_reset, self.used = [], True

    def keep(self, actions: Floats) -> None:
        """Remember that these actions, (E, T, D), were taken since the last reset."""
        self.actions_since_reset.append(actions)
        if len(self.actions_since_reset) > LOOSE:
            self.actions_since_reset = [np.concatenate(self.actions_since_reset, axis=1)]

    def replay(self, actions: Floats, bound: Callable[[Floats], Floats]) -> None:
        """Repeat recorded actions, (E, T, D), after a reset: restores the same episodes."""
        for lane, own in zip(self.lanes, actions, strict=True):
            for t, action in enumerate(own, 1):
                try:
                    lane.step(bound(action.copy()))
                except Misbehaved as error:
                    when = "after" if isinstance(error, BadReset) else "at"
                    where = f"{when} step {t} of {len(own)} that restore the episode"
                    raise contract.error(self.name, error.at(where)) from error
        self.actions_since_reset = [actions] if actions.shape[1] else []

    def observations(self) -> Floats:
        """The current observations, (E, S)."""
        rows = [np.asarray(lane.observation, np.float32).reshape(-1) for lane in self.lanes]
        return np.stack(rows)

    def close(self) -> None:
        """Close all."""
        for lane in self.lanes:
            contract.close(lane.env, self.name)


def another(maker: Maker, when: str) -> gym.Env[Any, Any]:
    """One more environment during a run.

    Raises:
        DiscError: it can't be made.
    """
    try:
        return maker.make()
    except DiscError as error:
        if maker.single:
            raise
        what = f"a new environment was needed {when}, and making it failed"
        cause = error.__cause__ or error
        raise contract.error(maker.name, f"{what} ({contract.summary(cause)})") from error


@contextmanager
def borrowed(maker: Maker, when: str | None = None) -> Iterator[gym.Env[Any, Any]]:
    """A new environment, closed at the end; `when` in a run it is needed, for messages."""
    env = another(maker, when) if when else maker.make()
    try:
        yield env
    finally:
        contract.close(env, maker.name)
