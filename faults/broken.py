"""Environments that misbehave: `disc train faults.broken:StepRaises`.

Each does one thing wrong, from step `at` on, counted over all environments of this process; the
docstring mentions if it is wrong from the start. `Sound` works correctly and stands for the fixed
environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

LENGTH = 20  # steps of an episode


class Sound(gym.Env[Any, Any]):
    """Three numbers that two actions move; the reward is higher near 0."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    taken: ClassVar[int] = 0  # steps in all
    made: ClassVar[int] = 0  # environments in all

    def __init__(self, at: int = 100) -> None:
        self.at, self.time = at, 0
        self.state = np.zeros(3, np.float32)
        Sound.made += 1
        self.number = Sound.made

    @property
    def late(self) -> bool:
        """Whether step `at` has been reached."""
        return Sound.taken >= self.at

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.state = 0, self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return self.state.copy(), {}

    def step(self, action: Any) -> Any:
        Sound.taken += 1
        self.time += 1
        drift = np.array([action[0], action[1], 0.1], np.float32)
        self.state = np.clip(self.state + 0.1 * drift, -10.0, 10.0).astype(np.float32)
        observation, reward = self.state.copy(), -float(np.abs(self.state).mean())
        if self.late:
            observation, reward = self.observed(observation), self.rewarded(reward)
        return observation, reward, False, self.time == LENGTH, {}

    def observed(self, observation: Any) -> Any:
        """The observation from step `at` on."""
        return observation

    def rewarded(self, reward: float) -> Any:
        """The reward from step `at` on."""
        return reward


def restart() -> None:
    """Count from 0 again."""
    Sound.taken = Sound.made = 0


# Exceptions


class StepRaises(Sound):
    def step(self, action: Any) -> Any:
        if Sound.taken + 1 >= self.at:
            raise RuntimeError("the motor is on fire\nand so is the cable")
        return super().step(action)


class StepExits(Sound):
    """Like a game whose window was closed."""

    def step(self, action: Any) -> Any:
        if Sound.taken + 1 >= self.at:
            raise SystemExit(0)
        return super().step(action)


class ActionsChecked(Sound):
    """Raises for actions beyond the bounds, from the start."""

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), "the action is out of bounds"
        return super().step(action)


class FirstResetRaises(Sound):
    """From the start."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise RuntimeError("no robot is plugged in")


class LaterResetRaises(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.late:
            raise RuntimeError("the robot fell off its table")
        return super().reset(seed=seed, options=options)


class CloseRaises(Sound):
    """From the start."""

    def close(self) -> None:
        raise RuntimeError("the door is stuck")


class MadeOnce(Sound):
    """A second one can't be made."""

    def __init__(self, at: int = 100) -> None:
        if Sound.made:
            raise ConnectionError("the port is in use")
        super().__init__(at)


class Judged(Sound):
    """Misbehaves only in evaluations, whose episodes are all seeded."""

    seeded = 0

    @property
    def late(self) -> bool:
        return self.seeded > 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeded += seed is not None
        return super().reset(seed=seed, options=options)


class EvaluationRaises(Judged):
    def observed(self, observation: Any) -> Any:
        raise RuntimeError("this is not the arena I know")


# Another interface


class OldStep(Sound):
    """Gym before 0.26: (observation, reward, done, info)."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return (observation, reward, terminated or truncated, info) if self.late else (
            observation, reward, terminated, truncated, info)  # fmt: skip


class OldReset(Sound):
    """Gym before 0.26: the observation alone, from the start."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options=options)[0]


class OldPair(OldReset):
    """The same with two numbers, which looks like (observation, info)."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options=options)[:2]


class OldSeed(Sound):
    """Gym before 0.26: no seed, from the start."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class StepNone(Sound):
    def step(self, action: Any) -> Any:
        return None if Sound.taken + 1 >= self.at else super().step(action)


class NoSpaces(gym.Env[Any, Any]):
    """Has no observation and action spaces."""


# Observations

Value = Callable[[Any, Any], Any]  # (environment, correct value) → returned value


def observing(value: Value, kind: type[Sound] = Sound) -> type[Sound]:
    """An environment that returns these observations from step `at` on."""
    return type("Observing", (kind,), {"observed": value})


def rewarding(value: Value, kind: type[Sound] = Sound) -> type[Sound]:
    """An environment that returns these rewards from step `at` on."""
    return type("Rewarding", (kind,), {"rewarded": value})


ObservationNaN = observing(lambda _, x: x * [1.0, np.nan, 1.0])
ObservationInf = observing(lambda _, x: np.add(x, [0.0, 0.0, np.inf]))
ObservationHuge = observing(lambda _, x: x + np.float64(1e300))  # finite in double precision
FinalNaN = observing(lambda env, x: x * np.nan if env.time == LENGTH else x)
Bigger = observing(lambda _, x: np.append(x, x[:1]))
Smaller = observing(lambda _, x: x[:2])
FinalSmaller = observing(lambda env, x: x[:2] if env.time == LENGTH else x)
ObservationScalar = observing(lambda _, x: float(x[0]))  # could be broadcast to all three
ObservationOne = observing(lambda _, x: x[:1])
ObservationEmpty = observing(lambda _, x: x[:0])
ObservationText = observing(lambda _, x: np.array(["left", "right", "ahead"]))
ObservationDict = observing(lambda _, x: {"position": x})
ObservationNone = observing(lambda _, x: None)
ObservationRagged = observing(lambda _, x: [[1.0, 2.0], 3.0])
Column = observing(lambda _, x: x[:, None])
Double = observing(lambda _, x: x.astype(np.float64))
Whole = observing(lambda _, x: x.astype(np.int64))
Truths = observing(lambda _, x: x > 0.0)
Listed = observing(lambda _, x: x.tolist())
Outside = observing(lambda _, x: 100.0 * x)  # of its space
EvaluationNaN = observing(lambda _, x: x * np.nan, Judged)
EvaluationInf = observing(lambda _, x: x + np.inf, Judged)  # hidden by the normaliser's clipping
EvaluationScalar = observing(lambda _, x: x[0], Judged)


class ResetNaN(Sound):
    """NaN only in an episode's first observation."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return (observation * np.nan if self.late else observation), info


class Reused(Sound):
    """Returns the same array, overwritten at every step and reset, from the start."""

    def __init__(self, at: int = 100) -> None:
        super().__init__(at)
        self.buffer = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.buffer[:], info = super().reset(seed=seed, options=options)
        return self.buffer, info

    def step(self, action: Any) -> Any:
        self.buffer[:], *rest = super().step(action)
        return self.buffer, *rest


class ActionSpoiled(Sound):
    """Overwrites the action passed to it, from the start."""

    def step(self, action: Any) -> Any:
        action *= 0.5
        return super().step(action)


# Rewards

RewardNaN = rewarding(lambda _, x: np.nan)
RewardInf = rewarding(lambda _, x: -np.inf)
RewardHuge = rewarding(lambda _, x: 1e300)  # finite in double precision
RewardPair = rewarding(lambda _, x: np.array([x, x]))
RewardNone = rewarding(lambda _, x: None)
RewardText = rewarding(lambda _, x: "1.0")
RewardArray = rewarding(lambda _, x: np.array([x]))
RewardScalarArray = rewarding(lambda _, x: np.array(x, np.float32))
RewardWhole = rewarding(lambda _, x: np.int64(x))
RewardEnormous = rewarding(lambda _, x: 1e38 * np.sign(x))  # finite, unlike its square
RewardMillion = rewarding(lambda _, x: 1e6 * x)
EvaluationRewardNaN = rewarding(lambda _, x: np.nan, Judged)


# Ends


def ending(flag: Value) -> type[Sound]:
    """An environment that returns this as terminated and truncated."""

    class Ending(Sound):
        def step(self, action: Any) -> Any:
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, flag(self, False), flag(self, truncated), info

    return Ending


EndNumpy = ending(lambda _, end: np.bool_(end))
EndArray = ending(lambda _, end: np.array(end))
EndOne = ending(lambda _, end: np.array([end]))
EndNone = ending(lambda _, end: True if end else None)
EndPair = ending(lambda env, end: np.array([end, end]) if env.late else end)


class Endless(Sound):
    """Never ends."""

    def step(self, action: Any) -> Any:
        observation, reward, *_ = super().step(action)
        return observation, reward, False, False, {}


class Bandit(Sound):
    """Ends at the first step."""

    def step(self, action: Any) -> Any:
        observation, reward, *_ = super().step(action)
        return observation, reward, True, False, {}


# The rest


class Unseeded(Sound):
    """Ignores its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None, options=options)


class Talkative(Sound):
    """Returns a large info."""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, {f"sensor {i}": np.zeros(1_000) for i in range(1_000)}
