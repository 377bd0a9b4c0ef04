"""Environments: making them, checking them, and the paper's eight tasks by their short names."""

from __future__ import annotations

import copy
import importlib
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from disc import seeding
from disc.types import DiscError, Floats, Spec

Source = str | gym.Env[Any, Any] | Callable[..., gym.Env[Any, Any]]


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


@dataclass
class Maker:
    """Makes environments of one kind.

    Args:
        source: a task's short name, a Gymnasium id, `package.module:factory`, an environment, or
            a function that makes one.
        kwargs: for `gymnasium.make` or the function.
    """

    source: Source
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_file(cls, path: Any, recipe: Any, kwargs: Any) -> Maker:
        """What a file names, if making it runs none of the file's code: a registered id.

        Raises:
            DiscError: it names a function to import, which a stranger may have chosen.
        """
        if not isinstance(recipe, str):
            raise DiscError(f"{path}: its environment was made in Python; name one with env.")
        if ":" in recipe or not isinstance(kwargs, dict):
            raise DiscError(
                f"{path}: says its environment is made by {recipe!r}; if you trust that, name it "
                "with env."
            )
        return cls(recipe, kwargs)

    @property
    def single(self) -> bool:
        """Whether the source is one environment, which is there only once."""
        return isinstance(self.source, gym.Env)

    @property
    def name(self) -> str:
        """What to call the environment in messages and files."""
        if isinstance(self.source, str):
            return TASKS[self.source].id if self.source in TASKS else self.source
        if isinstance(self.source, gym.Env):
            spec = self.source.spec
            return spec.id if spec else type(self.source.unwrapped).__name__
        return getattr(self.source, "__name__", type(self.source).__name__)

    @property
    def recipe(self) -> str | None:
        """How another process can make it again; None for objects and functions."""
        return self.name if isinstance(self.source, str) else None

    def make(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """A new environment.

        Raises:
            DiscError: there is no such environment, it can't be imported, or it can't be copied.
        """
        kwargs = {**self.kwargs, **({"render_mode": render_mode} if render_mode else {})}
        if isinstance(self.source, str):
            factory = _factory(self.source)
            return _call(factory, self.name, kwargs) if factory else _make(self.name, kwargs)
        if not isinstance(self.source, gym.Env):
            if not callable(self.source):
                raise DiscError(
                    f"{self.name}: is a {type(self.source).__name__}, and a gymnasium.Env, its id "
                    "or a function that makes one is needed; num_envs gives several."
                )
            return _call(self.source, self.name, kwargs)
        if self.source.spec is not None:
            with suppress(DiscError):  # a wrapper may not say how it was made
                return _make(self.source.spec, kwargs)
        try:
            return copy.deepcopy(self.source)
        except Exception as error:
            raise DiscError(
                f"{self.name}: a second environment is needed and this one can't be copied "
                f"({said(error)}); pass a function that makes one instead."
            ) from error


def _factory(source: str) -> Callable[..., gym.Env[Any, Any]] | None:
    """The function behind `package.module:factory`; None if `source` is a Gymnasium id."""
    module, colon, name = source.partition(":")
    if not colon or re.search(r"-v\d+$", name):
        return None
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # it may lie in the current folder
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise DiscError(f"{source}: can't be imported ({said(error)}).") from error


def _call(
    factory: Callable[..., gym.Env[Any, Any]], name: str, kwargs: Mapping[str, Any]
) -> gym.Env[Any, Any]:
    try:
        env = factory(**kwargs)
    except Exception as error:
        raise DiscError(f"{name}: making the environment failed ({said(error)}).") from error
    if not isinstance(env, gym.Env):
        raise DiscError(f"{name}: made a {type(env).__name__}, not a gymnasium.Env.")
    return env


def _make(id: Any, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    _redirect_mujoco_warnings()
    try:
        return gym.make(id, disable_env_checker=True, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        raise DiscError(
            f"{id}: a package it needs is missing ({said(error)}); install it and try again."
        ) from error
    except (gym.error.Error, ImportError) as error:
        raise DiscError(
            f"{id}: no such environment ({said(error)}); `disc list` shows the paper's tasks, and "
            "any Gymnasium id or package.module:factory works too."
        ) from error
    except Exception as error:
        raise DiscError(f"{id}: making the environment failed ({said(error)}).") from error


def _redirect_mujoco_warnings() -> None:
    """Let MuJoCo warn by `logging`, not by a MUJOCO_LOG.TXT in whatever folder one is in."""
    with suppress(ImportError):
        import mujoco

        mujoco.set_mju_user_warning(logging.getLogger("disc.mujoco").info)


def said(error: BaseException) -> str:
    """The first line of what an error says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def describe(env: gym.Env[Any, Any], name: str) -> Spec:
    """The environment's sizes and bounds.

    Raises:
        DiscError: its spaces are not Box, with what to do about it.
    """
    action, observation = env.action_space, env.observation_space
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
    observation: Any = None
    episode_return: float = 0.0
    episode_length: int = 0
    name: tuple[int, int, int] = (0, 0, 0)  # step of the last seeded reset, lane, episodes since

    def start(self, seed: int | None = None) -> None:
        """Start an episode."""
        self.observation, _ = self.env.reset(seed=seed)
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
        self.lanes = [Lane(make()) for _ in range(num_envs)]
        self.spec = describe(self.lanes[0].env, maker.name)
        self.pace = Pace()
        self.taken: list[Floats] = []  # (E, T, D) each: actions since the last reset

    def reset(self, seed: int, step: int) -> None:
        """Start all anew, with seeds that derive from the run's seed and the step.

        Used environments are replaced by new ones, as a reset may not clear all that a physics
        engine remembers (Box2D's does not), and a resumed run has new ones.
        """
        for e, lane in enumerate(self.lanes):
            if self.used and not self.maker.single:
                lane.env.close()
                lane.env = self.maker.make()
            own = seeding.environment_seed(seed, seeding.ENVIRONMENTS, step, e)
            lane.name = (step, e, 0)
            try:
                lane.start(own)
            except Exception as error:
                raise DiscError(
                    f"{self.name}: the environment raised when reset at step {step} "
                    f"({said(error)})."
                ) from error
        self.taken, self.used = [], True

    def retrace(self, actions: Floats, bound: Callable[[Floats], Floats]) -> None:
        """Take recorded actions, (E, T, D), from a reset on: brings back the same episodes."""
        try:
            for lane, taken in zip(self.lanes, actions, strict=True):
                for action in taken:
                    result = lane.env.step(bound(action))
                    lane.observation, reward, terminated, truncated, _ = result
                    lane.episode_return += float(reward)
                    lane.episode_length += 1
                    if terminated or truncated:
                        lane.start()
        except Exception as error:
            raise DiscError(
                f"{self.name}: the environment raised when its episode was brought back "
                f"({said(error)})."
            ) from error
        self.taken = [actions] if actions.shape[1] else []

    def where(self) -> Floats:
        """The observations the environments stand at, (E, S)."""
        rows = [np.asarray(lane.observation, np.float32).reshape(-1) for lane in self.lanes]
        return np.stack(rows)

    def close(self) -> None:
        """Close all."""
        for lane in self.lanes:
            lane.env.close()
