"""What an environment must do. Every reset and every step of the package goes through here."""

from __future__ import annotations

import logging
import math
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np

from disc.types import DiscError

RAISED = (Exception, SystemExit)
"""What an environment may raise; a game exits when its window is closed."""
FIX = "fix the environment (`disc check` tries it)"
RESUME = ", then resume from the last checkpoint with `disc resume`"
TOO_LARGE = "the weights of the policy are too large: train with a smaller step size"
STEP = "observation, reward, terminated, truncated, info"
LARGEST = float(np.finfo(np.float32).max)


class Misbehaved(Exception):
    """An environment broke the contract. `{at}` in the message stands for the step."""

    def at(self, when: str) -> str:
        """The message with the step: `at step 7`, or `after step 7` of a reset."""
        return str(self).replace("{at}", when)


class BadReset(Misbehaved):
    """It did so in a reset."""


def error(name: str, what: str, running: bool = True) -> DiscError:
    """The message with the environment's name and the remedy; `running` if a run is affected."""
    return DiscError(f"{name}: {what}; {FIX}{RESUME if running else ''}.")


def reset(env: gym.Env[Any, Any], shape: tuple[int, ...], seed: int | None = None) -> Any:
    """Reset an environment and check its first observation.

    Raises:
        BadReset: it raised, or returned something else than (observation, info).
    """
    try:
        result = env.reset(seed=seed)
    except RAISED as raised:
        raise BadReset(f"the reset {{at}} raised ({summary(raised)})") from raised
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise BadReset(
            f"the reset {{at}} returned {_named(result)}, and (observation, info) is needed"
        )
    if what := _wrong(result[0], shape):
        raise BadReset(f"the reset {{at}} gave an observation that {what}")
    return result[0]


def step(
    env: gym.Env[Any, Any], action: Any, shape: tuple[int, ...]
) -> tuple[Any, float, bool, bool]:
    """Step an environment: observation, reward, terminated, truncated.

    Everything is checked but whether the observation is finite, which costs more than the rest:
    callers check many at once with `first_nonfinite`.

    Raises:
        Misbehaved: it raised, or returned something else.
    """
    try:
        result = env.step(action)
    except RAISED as raised:
        raise Misbehaved(f"the environment raised {{at}} ({summary(raised)})") from raised
    try:
        observation, reward, terminated, truncated, _ = result
        x = observation if type(observation) is np.ndarray else np.asarray(observation)
        if type(reward) is not float:
            reward = number(reward)
        fits = x.shape == shape or x.size == math.prod(shape)
        if fits and x.dtype.kind in "fiub" and abs(reward) <= LARGEST:
            return observation, reward, bool(terminated), bool(truncated)
    except Exception:
        pass  # `_fault` finds out what it was
    raise Misbehaved(_fault(result, shape))


def number(reward: Any) -> float:
    """A reward as a float: any single number, in an array or not.

    Raises:
        TypeError, ValueError: it is not one.
    """
    value = reward.item() if hasattr(reward, "item") else reward
    if isinstance(value, str | bytes):
        raise TypeError("text is not a number")
    return float(value)


def first_nonfinite(observations: Any) -> tuple[int, str] | None:
    """The first row of observations (T, S) with a NaN or an infinity, and what is wrong with it."""
    finite = np.abs(observations) <= LARGEST
    if finite.all():
        return None
    row = int(np.argmin(finite.all(axis=1)))
    return row, f"the observation {{at}} {_not_finite(observations[row])}"


def _fault(result: Any, shape: tuple[int, ...]) -> str:
    """What is wrong with the result of a step."""
    if not isinstance(result, tuple | list) or len(result) != 5:
        return f"the environment returned {_named(result)} {{at}}, and five are needed: {STEP}"
    observation, reward, *ends, _ = result
    if what := _wrong(observation, shape):
        return f"the observation {{at}} {what}"
    try:
        value = number(reward)
    except Exception:
        return f"the reward {{at}} is {_named(reward)}, not one number"
    if not abs(value) <= LARGEST:
        return f"the reward {{at}} {_not_finite(value)}"
    for name, end in zip(("terminated", "truncated"), ends, strict=True):
        try:
            bool(end)
        except Exception:
            return f"{name} {{at}} is {_named(end)}, not True or False"
    return "the environment returned something {at} that can't be read"


def _wrong(observation: Any, shape: tuple[int, ...]) -> str | None:
    """What is wrong with an observation. Its shape may differ, but not its size."""
    try:
        x = np.asarray(observation)
    except Exception:
        x = np.asarray(None)
    if x.dtype.kind not in "fiub":
        return f"is {_named(observation)}, not an array of numbers"
    if x.size != math.prod(shape):
        return f"has shape {x.shape}, not {shape}"
    if not (np.abs(x) <= LARGEST).all():
        return _not_finite(x)
    return None


def _not_finite(values: Any) -> str:
    flat = np.asarray(values, np.float64).reshape(-1)
    i = int(np.argmin(np.abs(flat) <= LARGEST))
    which = f"number {i} is " if np.ndim(values) else "it is "
    value = "NaN" if np.isnan(flat[i]) else "infinite, or beyond single precision"
    return f"is not finite ({which}{value})"


def close(env: gym.Env[Any, Any], name: str) -> None:
    """Close an environment; if that raises, only warn."""
    try:
        env.close()
    except RAISED as raised:
        _warn_once(f"{name}: closing the environment raised ({summary(raised)}); ignored.")


@cache
def _warn_once(text: str) -> None:
    logging.getLogger("disc").warning(text)


def summary(error: BaseException) -> str:
    """The type and the first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _named(value: Any) -> str:
    """What a value is, in a few words."""
    if value is None or isinstance(value, str | bytes | int | float):
        return repr(value)[:50]
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"a {type(value).__name__}"
