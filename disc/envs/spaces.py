"""The layout of observations, from a Gymnasium space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from disc.policy.layout import Categories, Entries, Layout, Node, Numbers
from disc.types import DiscError

LARGE_IMAGE = 4_096
"""Numbers above which an array with three axes or more is taken for an image."""
USABLE = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"


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
