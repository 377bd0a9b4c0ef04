"""Continuous actions as discrete ones: each dimension becomes a choice between a few values.

For policies that may have several modes, and for comparing dimension-wise clipping of categorical
distributions with that of Gaussians (docs/discrete-actions.md).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from disc.envs.factory import Maker
from disc.options import LARGEST, count
from disc.types import DiscError


class Bins(gym.ActionWrapper[Any, Any, Any]):
    """Replaces bounded continuous actions with `MultiDiscrete` ones.

    Choice k of a dimension is the value low + (high − low) k / (bins − 1), so the first choice is
    the lower bound, the last the upper one, and an odd number of bins includes the middle.

    Args:
        env: an environment whose actions are a `Box` with finite bounds.
        bins: values per dimension, at least 2.

    Raises:
        DiscError: the actions have no bounds, or there are too few bins.
    """

    def __init__(self, env: gym.Env[Any, Any], bins: int) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gym.spaces.Box) or space.dtype.kind != "f":
            raise DiscError(
                f"Bins: the environment has {type(space).__name__} actions, but a float Box is "
                "needed."
            )
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise DiscError("Bins: the actions have no bounds; wrap the environment to clip them.")
        bins = count("bins", bins, (2, LARGEST))
        share = np.arange(bins) / (bins - 1)
        low, high = (x.astype(np.float64)[..., None] for x in (space.low, space.high))
        values = (1.0 - share) * low + share * high
        self.values = values.astype(space.dtype)  # (*shape, bins)
        self.action_space = gym.spaces.MultiDiscrete(np.full(space.shape, bins))

    def action(self, action: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The values of the chosen bins, of the shape of the original actions."""
        index = np.asarray(action)[..., None]
        return np.take_along_axis(self.values, index, axis=-1)[..., 0]


def make(env: str, bins: int, **kwargs: Any) -> gym.Env[Any, Any]:
    """An environment with `bins` values per action dimension.

    `disc train disc.envs.discretize:make --env-kwargs env HalfCheetah-v5 bins 11`

    Args:
        env: a task's short name or a Gymnasium id.
        bins: values per action dimension.
        **kwargs: passed on to the environment.
    """
    return Bins(Maker(env, kwargs).make(), bins)
