"""Continuous actions in bins."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from disc import DiscError
from disc.envs import discretize
from disc.envs.discretize import Bins
from disc.envs.factory import Maker
from disc.envs.spaces import describe
from tests.support import environments as probes


class Echo(probes.Wide):
    """The observation's first numbers are the action."""

    action_space = gym.spaces.Box(
        np.float32([[-1.0, 0.0], [2.0, -0.4]]), np.float32([[1.0, 8.0], [3.0, 0.4]])
    )

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return np.append(action, [0.0, 0.0]).reshape(2, 3), 0.0, False, False, {}


def sent(env: Any, index: Any) -> Any:
    return env.step(np.array(index))[0].ravel()[:4]


def test_bins_are_evenly_spaced_from_bound_to_bound() -> None:
    env = Bins(Echo(), 5)
    assert env.action_space == gym.spaces.MultiDiscrete([[5, 5], [5, 5]])
    np.testing.assert_array_equal(sent(env, [[0, 0], [0, 0]]), Echo.action_space.low.ravel())
    np.testing.assert_array_equal(sent(env, [[4, 4], [4, 4]]), Echo.action_space.high.ravel())
    np.testing.assert_allclose(sent(env, [[2, 1], [3, 2]]), [0.0, 2.0, 2.75, 0.0], atol=1e-7)


@pytest.mark.parametrize(("name", "bins", "dimensions"), [("half-cheetah", 11, 6), ("ant", 7, 8)])
def test_tasks_can_be_made_by_name(name: str, bins: int, dimensions: int) -> None:
    maker = Maker("disc.envs.discretize:make", {"env": name, "bins": bins})
    env = maker.make()
    spec = describe(env, maker.name)
    assert spec.choices is not None
    assert spec.choices.counts == (bins,) * dimensions
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()


@pytest.mark.parametrize(
    ("env", "bins", "says"),
    [
        (probes.Unbounded, 3, "no bounds"),
        (probes.choosing, 3, "MultiDiscrete actions"),
        (probes.Wide, 1, "at least 2, not 1"),
        (probes.Wide, 2.5, "at least 2, not 2.5"),
    ],
)
def test_unsuitable_environments_or_bins_raise(env: Any, bins: Any, says: str) -> None:
    with pytest.raises(DiscError, match=says):
        Bins(env(), bins)


def test_keyword_arguments_reach_the_environment() -> None:
    env = discretize.make("HalfCheetah-v5", 3, exclude_current_positions_from_observation=False)
    assert env.observation_space.shape == (18,)
    env.close()
