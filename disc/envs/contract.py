"""Environments that misbehave: what they did wrong, in words, and where a look costs nothing."""

from __future__ import annotations

import logging
import math
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np

from disc.envs.factory import said
from disc.types import DiscError

RAISED = (Exception, SystemExit)
"""What an environment may raise; a game exits when its window is closed."""
MEND = "mend the environment (`disc check` tries it)"
GO_ON = ", then go on from the last checkpoint with `disc resume`"
TOO_LARGE = "the weights of the policy are too large: train with a smaller step size"
STEP = "observation, reward, terminated, truncated, info"
NUMBERS = (float, int, np.number)  # rewards that need no second look
NOTHING = object()  # instead of what `step` returned, where it did not
LARGEST = float(np.finfo(np.float32).max)


class Misbehaved(Exception):
    """What a reset did wrong, to be told with the environment's name and the step."""


def error(name: str, what: str, running: bool = True) -> DiscError:
    """What an environment did wrong, with its name and what to do; `running` if a run did it."""
    return DiscError(f"{name}: {what}; {MEND}{GO_ON if running else ''}.")


def begin(env: gym.Env[Any, Any], shape: tuple[int, ...], seed: int | None = None) -> Any:
    """Reset an environment: the first observation, looked at here as no step returned it.

    Raises:
        Misbehaved: it raised, or returned something else.
    """
    try:
        result = env.reset(seed=seed)
    except RAISED as raised:
        raise Misbehaved(f"raised ({said(raised)})") from raised
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Misbehaved(f"returned {_named(result)}, and (observation, info) is needed")
    if what := wrong(result[0], shape):
        raise Misbehaved(f"gave an observation that {what}")
    return result[0]


def number(reward: Any) -> float:
    """A reward as a float: any one number, in an array or not.

    Raises:
        TypeError, ValueError: it is neither.
    """
    value = reward.item() if hasattr(reward, "item") else reward
    if isinstance(value, str | bytes):
        raise TypeError("text is no number")
    return float(value)


def blame(raised: BaseException, result: Any, shape: tuple[int, ...], newest: str, now: str) -> str:
    """What went wrong where a step, or what followed from it, raised.

    Args:
        raised: what was raised.
        result: what `step` returned last, or NOTHING.
        shape: of an observation.
        newest: the number of the step that returned it, and what else says when that was.
        now: the same of the step under way.
    """
    if isinstance(raised, Misbehaved):
        return f"the reset after step {newest} {raised}"
    what = None if result is NOTHING else fault(result, shape, f"at step {newest}")
    return what or f"the environment raised at step {now} ({said(raised)})"


def fault(result: Any, shape: tuple[int, ...], where: str) -> str | None:
    """What is wrong with what `step` returned; None if nothing is.

    Args:
        result: what it returned.
        shape: of an observation.
        where: the step, in words.
    """
    if not isinstance(result, tuple | list) or len(result) != 5:
        return f"the environment returned {_named(result)} {where}, and five are needed: {STEP}"
    observation, reward, *ends, _ = result
    if what := wrong(observation, shape):
        return f"the observation {where} {what}"
    try:
        value = number(reward)
    except Exception:
        return f"the reward {where} is {_named(reward)}, not one number"
    if not abs(value) <= LARGEST:
        return f"the reward {where} {not_finite(value)}"
    for name, end in zip(("terminated", "truncated"), ends, strict=True):
        try:
            bool(end)
        except Exception:
            return f"{name} {where} is {_named(end)}, not True or False"
    return None


def wrong(observation: Any, shape: tuple[int, ...]) -> str | None:
    """What is wrong with an observation; None if nothing is. Its shape may differ, not its size."""
    try:
        x = np.asarray(observation)
    except Exception:
        x = np.asarray(None)
    if x.dtype.kind not in "fiub":
        return f"is {_named(observation)}, not an array of numbers"
    if x.size != math.prod(shape):
        return f"has shape {x.shape}, not {shape}"
    if not (np.abs(x) <= LARGEST).all():
        return not_finite(x)
    return None


def not_finite(values: Any) -> str:
    """Says so of an observation or a reward, and which number is none."""
    flat = np.asarray(values, np.float64).reshape(-1)
    i = int(np.argmin(np.abs(flat) <= LARGEST))
    which = f"number {i} is " if np.ndim(values) else "it is "
    value = "NaN" if np.isnan(flat[i]) else "infinite, or beyond single precision"
    return f"is not finite ({which}{value})"


def shut(env: gym.Env[Any, Any], name: str) -> None:
    """Close an environment; nothing is lost where it raises."""
    try:
        env.close()
    except RAISED as raised:
        _told_once(f"{name}: closing the environment raised ({said(raised)}); going on without.")


@cache
def _told_once(text: str) -> None:
    logging.getLogger("disc").warning(text)


def _named(value: Any) -> str:
    """What a value is, in a few words."""
    if value is None or isinstance(value, str | bytes | int | float):
        return repr(value)[:50]
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"a {type(value).__name__}"
