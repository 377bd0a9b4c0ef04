"""The sizes, bounds and layout of an environment, from its Gymnasium spaces."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from disc.policy.layout import Categories, Entries, Layout, Node, Numbers
from disc.types import MOST_CHOICES, Choices, DiscError, Floats, Spec

LARGE_IMAGE = 4_096
"""Numbers above which an array with three axes or more is taken for an image."""
USABLE = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"


def describe(env: gym.Env[Any, Any], name: str) -> Spec:
    """The environment's sizes and bounds.

    Raises:
        DiscError: its spaces can't be used; says what to do.
    """
    actions = _actions(getattr(env, "action_space", None), name)
    layout = observation_layout(env, name)
    if layout.size == 0 or actions["action_size"] == 0:
        raise DiscError(f"{name}: its observations or actions are empty.")
    return Spec(observation_size=layout.size, observation_shape=layout.shape, **actions)


def _actions(space: Any, name: str) -> dict[str, Any]:
    """The fields of a `Spec` that describe actions.

    Raises:
        DiscError: they are neither continuous nor a fixed number of choices, or too many.
    """
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return {
            "action_size": int(np.prod(space.shape)),
            "action_shape": tuple(space.shape),
            "action_low": -_within(-space.low.reshape(-1)),
            "action_high": _within(space.high.reshape(-1)),
        }
    if isinstance(space, spaces.Discrete):
        counts, starts = np.asarray(space.n), np.asarray(space.start)
    elif isinstance(space, spaces.MultiDiscrete):
        counts, starts = space.nvec, space.start
    elif isinstance(space, spaces.MultiBinary):
        shape = space.shape if math.prod(space.shape) <= MOST_CHOICES else (MOST_CHOICES,)
        counts, starts = np.full(shape, 2), np.zeros(shape, np.int64)
    else:
        kind = "integer Box" if isinstance(space, spaces.Box) else type(space).__name__
        raise DiscError(
            f"{name}: has {kind} actions, but float Box, Discrete, MultiDiscrete or MultiBinary "
            "ones are needed; choose or wrap an environment with such actions."
        )
    choices = Choices(tuple(counts.reshape(-1).tolist()), starts.reshape(-1).astype(np.int64), "")
    if choices.counts and not choices.few():
        raise DiscError(
            f"{name}: its actions have {len(choices.counts):,} dimensions with up to "
            f"{max(choices.counts):,} choices each, but the product of the two must not exceed "
            f"{MOST_CHOICES:,}; wrap it so that there are fewer."
        )
    return {
        "action_size": len(choices.counts),
        "action_shape": tuple(space.shape),
        "action_low": np.zeros(len(choices.counts), np.float32),
        "action_high": np.asarray(choices.counts, np.float32) - np.float32(1.0),
        "choices": choices._replace(dtype=np.dtype(space.dtype).name),
    }


def _within(high: np.ndarray[Any, Any]) -> Floats:
    """Upper bounds in single precision, rounded inwards, so that the space contains them."""
    rounded = high.astype(np.float32)
    down = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded.astype(high.dtype) > high, down, rounded)


def observation_layout(env: gym.Env[Any, Any], name: str) -> Layout:
    """How the observations of an environment become S numbers.

    Raises:
        DiscError: its space can't be used; says what to do.
    """
    return Layout(_node(getattr(env, "observation_space", None), name, ""))


def _node(space: Any, name: str, entry: str) -> Node:
    """A space within the observation space; `entry` is its name there."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        if _is_image(space):
            raise DiscError(
                f"{name}: has image observations of shape {space.shape}{_of(entry)}, but these "
                "networks take vectors; wrap it so that it returns features or its state."
            )
        return Numbers(tuple(map(int, space.shape)))
    if isinstance(space, spaces.Discrete):
        return Categories((), (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (tuple(map(int, x.reshape(-1))) for x in (space.nvec, space.start))
        return Categories(tuple(space.shape), counts, starts)
    if isinstance(space, spaces.Dict | spaces.Tuple) and len(space.spaces) > 0:
        keys = tuple(space.spaces) if isinstance(space, spaces.Dict) else None
        if keys and not all(type(key) in (str, int) for key in keys):
            raise DiscError(
                f"{name}: its observation space{_of(entry)} has keys that are neither text nor "
                "whole numbers; rename them."
            )
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        names = Entries(keys, tuple(Numbers(()) for _ in space.spaces)).named(entry)
        pairs = zip(names, inner, strict=True)
        return Entries(keys, tuple(_node(below, name, full) for (_, full, _), below in pairs))
    kind = "empty" if isinstance(space, spaces.Dict | spaces.Tuple) else type(space).__name__
    raise DiscError(
        f"{name}: has {kind} observations{_of(entry)}, but these networks take a fixed number of "
        f"numbers: {USABLE} spaces; wrap it so that it returns those."
    )


def _is_image(space: Any) -> bool:
    """Whether an array is an image: bytes with 2 axes or more, or many numbers with 3 or more."""
    if not isinstance(space, spaces.Box):
        return False
    many = len(space.shape) >= 3 and int(np.prod(space.shape)) > LARGE_IMAGE
    return many or (space.dtype == np.uint8 and len(space.shape) >= 2)


def _of(entry: str) -> str:
    return f" in entry {entry}" if entry else ""
