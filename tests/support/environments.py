"""Probe environments with known values and actions, and faulty environments."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

BOX = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)


class Probe(gym.Env[Any, Any]):
    """One-dimensional observations and actions; subclasses define the steps."""

    observation_space: ClassVar[Any] = BOX
    action_space: ClassVar[Any] = BOX
    time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.state = self.first()
        return self.state, {}

    def first(self) -> Any:
        return np.zeros(1, np.float32)


class One(Probe):
    """Reward 1 in one step: V = 1."""

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, True, False, {}


class Unbounded(One):
    """Actions without bounds."""

    action_space: ClassVar[Any] = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Counter(Probe):
    """The observation is the time; episodes terminate at 3 or, every second one, are cut at 4."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    episode = -1

    def reset(self, **options: Any) -> Any:
        self.episode += 1
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self.time += 1
        cut = self.episode % 2 == 1
        done, late = self.time == 3 and not cut, self.time == 4 and cut
        return np.float32([self.time]), float(self.time), done, late, {}


class Signal(Probe):
    """The observation, ±1, is the reward of one step: V(s) = s."""

    def first(self) -> Any:
        return np.float32([self.np_random.choice([-1.0, 1.0])])

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), float(self.state[0]), True, False, {}


class Delay(Probe):
    """Two steps, reward 1 at the second: V(1) = 1, V(0) = γ."""

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.ones(1, np.float32), float(self.time == 2), self.time == 2, False, {}


class Follow(Signal):
    """Reward −(a − s/2)² in one step, with s = ±1: the best action is s/2."""

    def step(self, action: Any) -> Any:
        reward = -((float(action[0]) - 0.5 * float(self.state[0])) ** 2)
        return np.zeros(1, np.float32), reward, True, False, {}


class Cycle(Probe):
    """Constant reward 1, cut after five steps by a time limit: V = 1/(1 − γ)."""

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.zeros(1, np.float32), 1.0, False, self.time == 5, {}


class Wide(gym.Env[Any, Any]):
    """Matrix observations, matrix bounded actions, random ends of both kinds."""

    observation_space: ClassVar[Any] = gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
    action_space: ClassVar[Any] = gym.spaces.Box(-0.5, 0.5, (2, 2), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.standard_normal((2, 3)), {}

    def step(self, action: Any) -> Any:
        assert action.shape == (2, 2)
        end = self.np_random.random()
        observation = self.np_random.standard_normal((2, 3)) + 0.1 * float(np.sum(action))
        return observation, float(np.mean(observation)), end < 0.02, end > 0.97, {}


SPACES: dict[str, Any] = {
    "discrete": gym.spaces.Discrete(3, start=-1),
    "multi": gym.spaces.MultiDiscrete([[3, 2], [4, 2]], start=[[-1, 0], [10, 5]]),
    "binary": gym.spaces.MultiBinary((2, 2)),
    "even": gym.spaces.MultiDiscrete([3, 3], dtype=np.int32),
}


class Choosing(Wide):
    """Wide, with discrete actions; raises if an action is not exactly of its space's type."""

    def __init__(self, space: str = "multi") -> None:
        self.action_space = SPACES[space]

    def step(self, action: Any) -> Any:
        space = self.action_space
        assert space.contains(action), action
        if isinstance(space, gym.spaces.Discrete):
            assert type(action) is int
        else:
            assert (action.shape, action.dtype) == (space.shape, space.dtype)
        end = self.np_random.random()
        observation = self.np_random.standard_normal((2, 3)) + 0.1 * float(np.sum(action))
        return observation, float(np.mean(observation)), end < 0.02, end > 0.97, {}


class Pick(Probe):
    """Reward of one step: the share of dimensions with the best choice, always the same."""

    action_space: ClassVar[Any] = gym.spaces.MultiDiscrete([3, 4, 2], start=[-1, 10, 0])
    best = ((1, 11, 0), (1, 11, 0))  # for s = −1 and s = 1

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        right = np.equal(action, self.best[int(self.state[0] > 0.0)])
        return np.zeros(1, np.float32), float(np.mean(right)), True, False, {}


class PickFollow(Pick):
    """The best choice of two dimensions depends on the observation, ±1."""

    best = ((1, 11, 0), (-1, 11, 1))

    def first(self) -> Any:
        return np.float32([self.np_random.choice([-1.0, 1.0])])


class Nested(Wide):
    """`Wide` with its six numbers as a dict of a tuple and a category."""

    observation_space: ClassVar[Any] = gym.spaces.Dict(
        {
            "arm": gym.spaces.Tuple(
                (gym.spaces.Box(-np.inf, np.inf, (1, 2)), gym.spaces.MultiBinary(2))
            ),
            "gear": gym.spaces.Discrete(2, start=1),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        return self.nested(observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return self.nested(observation), *rest

    def nested(self, x: Any) -> dict[str, Any]:
        arm = (np.float32(x[:1, :2]), np.int8(x[1, :2] > 0.0))
        return {"gear": int(x[0, 2] > 0.0) + 1, "arm": arm}


def nested() -> Nested:
    return Nested()


class Bad(Probe):
    """Has the given fault from step `at` on, counted over all episodes and instances."""

    total = 0

    def __init__(self, fault: str = "raise", at: int = 700) -> None:
        self.fault, self.at = fault, at

    def step(self, action: Any) -> Any:
        self.time += 1
        Bad.total += 1
        observation, reward = np.zeros(1, np.float32), 1.0
        if Bad.total >= self.at:
            if self.fault == "raise":
                raise RuntimeError("the motor is on fire")
            if self.fault == "nan-observation":
                observation = np.full(1, np.nan, np.float32)
            if self.fault == "inf-reward":
                reward = np.inf
            if self.fault == "shape":
                observation = np.zeros(3, np.float32)
        return observation, reward, False, self.time == 50, {}


def wide() -> Wide:
    return Wide()


def choosing(space: str = "multi") -> Choosing:
    return Choosing(space)


def bad(fault: str = "raise", at: int = 700) -> Bad:
    return Bad(fault, at)


def nothing() -> int:
    return 3


class Letters(Probe):
    """Actions of text."""

    action_space: ClassVar[Any] = gym.spaces.Text(3)


class Whole(Probe):
    """Whole numbers within bounds."""

    action_space: ClassVar[Any] = gym.spaces.Box(0, 9, (2,), np.int64)


class Crowded(Probe):
    """Too many choices."""

    action_space: ClassVar[Any] = gym.spaces.MultiDiscrete([1_000_000, 2])


class Image(Probe):
    """Image observations."""

    observation_space: ClassVar[Any] = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)


class Written(Probe):
    """Observations with text."""

    observation_space: ClassVar[Any] = gym.spaces.Dict({"a": BOX, "note": gym.spaces.Text(5)})


class Camera(Probe):
    """Observations with an image in an entry, of floats."""

    observation_space: ClassVar[Any] = gym.spaces.Dict(
        {"a": BOX, "eye": gym.spaces.Box(0.0, 1.0, (40, 40, 3))}
    )
