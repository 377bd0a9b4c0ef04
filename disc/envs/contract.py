"""The contract of an environment: checks every reset and every step in the package."""

from __future__ import annotations

import logging
import traceback
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np

from disc.policy.layout import Layout, LayoutError, value_summary
from disc.policy.policies import FLOAT_MAX
from disc.types import DiscError

RAISED = (Exception, SystemExit)
"""Exceptions that an environment may raise; a game exits when its window is closed."""
FIX = "fix the environment (`disc check` tries it)"
RESUME = ", then resume from the last checkpoint with `disc resume`"
TOO_LARGE = "the weights of the policy are too large: train with a smaller step size"
STEP = "observation, reward, terminated, truncated, info"
UNREADABLE = "the environment returned something {at} that can't be read"


class Misbehaved(Exception):
    """An environment broke the contract. `{at}` in the message stands for the step."""

    def at(self, when: str) -> str:
        """The message with the step: `at step 7`, or `after step 7` of a reset."""
        return str(self).replace("{at}", when)


class BadReset(Misbehaved):
    """An environment broke the contract in a reset."""


def error(name: str, what: str, running: bool = True) -> DiscError:
    """The message with the environment's name and the remedy; `running` if a run is affected."""
    return DiscError(f"{name}: {what}; {FIX}{RESUME if running else ''}.")


def reset(env: gym.Env[Any, Any], layout: Layout, seed: int | None = None) -> Any:
    """Reset an environment and check its first observation.

    Returns:
        The observation: unchanged if it is an array of numbers, otherwise flat, (S,).

    Raises:
        BadReset: it raised, or returned anything other than (observation, info).
    """
    try:
        result = env.reset(seed=seed)
    except RAISED as raised:
        raise BadReset(f"the reset {{at}} raised ({summary(raised)})") from raised
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise BadReset(
            f"the reset {{at}} returned {value_summary(result)}, but (observation, info) is needed"
        )
    observation = result[0]
    try:
        if not layout.plain:
            observation = layout.flatten(observation)
        _check(observation, layout)
    except LayoutError as error:
        whose = f"whose entry {error.entry}" if error.entry else "that"
        raise BadReset(f"the reset {{at}} gave an observation {whose} {error.what}") from error
    return observation


def step(env: gym.Env[Any, Any], action: Any, layout: Layout) -> tuple[Any, float, bool, bool]:
    """Step an environment: observation, reward, terminated, truncated.

    The observation is returned unchanged if it is an array of numbers, otherwise flat, (S,).

    Everything is checked except whether the observation is finite, which costs more than the rest:
    callers check many at once with `first_nonfinite`.

    Raises:
        Misbehaved: it raised, or returned something invalid.
    """
    try:
        result = env.step(action)
    except RAISED as raised:
        raise Misbehaved(f"the environment raised {{at}} ({summary(raised)})") from raised
    try:
        observation, reward, terminated, truncated, _ = result
        if not layout.plain:
            observation = layout.flatten(observation)
        x = observation if type(observation) is np.ndarray else np.asarray(observation)
        reward = float(reward) if isinstance(reward, float) else number(reward)  # np.float64 is one
        fits = x.shape == layout.shape or x.size == layout.size
        if fits and x.dtype.kind in "fiub" and abs(reward) <= FLOAT_MAX:
            return observation, reward, bool(terminated), bool(truncated)
    except Exception:
        pass  # `_fault` finds the cause
    raise Misbehaved(_fault(result, layout) or UNREADABLE)


def number(reward: Any) -> float:
    """A reward as a float: any single number, in an array or not.

    Raises:
        TypeError, ValueError: it is not a single number.
    """
    value = reward.item() if hasattr(reward, "item") else reward
    if isinstance(value, str | bytes):
        raise TypeError("text is not a number")
    return float(value)


def first_nonfinite(observations: Any, layout: Layout) -> tuple[int, str] | None:
    """The first row of observations (T, S) with a NaN or an infinity, and what is wrong with it."""
    finite = np.abs(observations) <= FLOAT_MAX
    if finite.all():
        return None
    row = int(np.argmin(finite.all(axis=1)))
    return row, f"the observation {{at}} {_not_finite(observations[row], layout)}"


def _fault(result: Any, layout: Layout) -> str | None:
    """What is wrong with the result of a step, if it can be found."""
    if not isinstance(result, tuple | list) or len(result) != 5:
        return (
            f"the environment returned {value_summary(result)} {{at}}, but five are needed: {STEP}"
        )
    observation, reward, *ends, _ = result
    try:
        _check(observation if layout.plain else layout.flatten(observation), layout)
    except LayoutError as error:
        return f"{error.subject} {{at}} {error.what}"
    try:
        value = number(reward)
    except Exception:
        return f"the reward {{at}} is {value_summary(reward)}, not one number"
    if not abs(value) <= FLOAT_MAX:
        return f"the reward {{at}} {_not_finite(value)}"
    for name, end in zip(("terminated", "truncated"), ends, strict=True):
        try:
            bool(end)
        except Exception:
            return f"{name} {{at}} is {value_summary(end)}, not True or False"
    return None


def _check(observation: Any, layout: Layout) -> None:
    """Raise a `LayoutError` for an invalid observation; its shape may differ, but not its size."""
    try:
        x = np.asarray(observation)
    except Exception:
        x = np.asarray(None)
    if x.dtype.kind not in "fiub":
        raise LayoutError(f"is {value_summary(observation)}, not an array of numbers")
    if x.size != layout.size:
        raise LayoutError(f"has shape {x.shape}, not {layout.shape}")
    if not (np.abs(x) <= FLOAT_MAX).all():
        raise LayoutError(_not_finite(x, layout))


def _not_finite(values: Any, layout: Layout | None = None) -> str:
    """Describe a reward that is not finite, or the first such number of an observation, (S,)."""
    flat = np.asarray(values, np.float64).reshape(-1)
    i = int(np.argmin(np.abs(flat) <= FLOAT_MAX))
    which = layout.names()[i] if layout is not None else "it"
    value = "NaN" if np.isnan(flat[i]) else "infinite, or beyond single precision"
    return f"is not finite ({which} is {value})"


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
    """The type and the first line of an error, or where it was raised if it has no text."""
    lines = str(error).strip().splitlines()
    if lines:
        return f"{type(error).__name__}: {lines[0]}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def reset_vector(
    env: Any, layout: Layout, seed: Any = None, options: dict[str, Any] | None = None
) -> Any:
    """Reset a vector of E environments; returns their observations, (E, S).

    Raises:
        BadReset: it raised, or returned anything other than (observations, info).
    """
    try:
        result = env.reset(seed=seed, options=options)
    except RAISED as raised:
        raise BadReset(f"the reset {{at}} raised ({summary(raised)})") from raised
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise BadReset(
            f"the reset {{at}} returned {value_summary(result)}, but (observations, info) is needed"
        )
    try:
        _check(result[0], Layout.box((env.num_envs, *layout.shape)))
    except LayoutError as error:
        raise BadReset(
            f"the reset {{at}} gave an array of observations that {error.what}"
        ) from error
    return np.asarray(result[0]).reshape(env.num_envs, -1)


def step_vector(env: Any, actions: Any, layout: Layout) -> tuple[Any, Any, Any, Any, Any]:
    """Step a vector of E environments: observations, rewards, terminated, truncated, info.

    As in `step`, whether observations are finite is left to the caller.

    Raises:
        Misbehaved: it raised, or returned something invalid.
    """
    try:
        result = env.step(actions)
    except RAISED as raised:
        raise Misbehaved(f"the environment raised {{at}} ({summary(raised)})") from raised
    if not isinstance(result, tuple | list) or len(result) != 5:
        raise Misbehaved(_fault(result, layout) or UNREADABLE)
    count, info = env.num_envs, result[4]
    try:
        observations, rewards, terminated, truncated = map(np.asarray, result[:4])
        fits = observations.shape == (count, *layout.shape) and observations.dtype.kind in "fiub"
        ends = terminated.shape == truncated.shape == rewards.shape == (count,)
        if fits and ends and (np.abs(rewards) <= FLOAT_MAX).all():
            return observations.reshape(count, -1), rewards, terminated, truncated, info
    except Exception:
        pass  # the loop below finds the cause
    for e in range(count):
        try:
            own = (*(values[e] for values in result[:4]), {})
        except Exception:
            break
        if what := _fault(own, layout):
            raise Misbehaved(f"{what} in environment {e}")
    raise Misbehaved(f"the environment returned something {{at}} that is not {count} of {STEP}")
