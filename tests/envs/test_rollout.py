"""Rollouts contain one row per step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from disc.envs.factory import Maker
from disc.envs.pool import Environments
from disc.envs.rollout import collect
from disc.types import DiscError, Rollout
from tests.support import environments as probes
from tests.support.environments import Counter
from tests.support.rollouts import Actor


def gather(source: Any, n: int, num_envs: int = 1, iteration: int = 0, threads: int = 1) -> Rollout:
    env = Environments(Maker(source), num_envs)
    env.reset(0, 0)
    state = SimpleNamespace(seed=5, iteration=iteration, step=1000)
    return collect(env, lambda _: Actor(), state, n, threads)


def test_rows_hold_steps_and_true_final_observations() -> None:
    rollout = gather(Counter, 9)
    np.testing.assert_array_equal(rollout.observation[:, 0], [0, 1, 2, 0, 1, 2, 3, 0, 1])
    np.testing.assert_array_equal(rollout.next_observation[:, 0], [1, 2, 3, 1, 2, 3, 4, 1, 2])
    np.testing.assert_array_equal(rollout.reward, [1, 2, 3, 1, 2, 3, 4, 1, 2])
    np.testing.assert_array_equal(np.flatnonzero(rollout.terminated), [2])
    np.testing.assert_array_equal(np.flatnonzero(rollout.truncated), [6])
    np.testing.assert_array_equal(np.flatnonzero(rollout.border), [8])
    np.testing.assert_array_equal(rollout.returns, [6, 10])
    np.testing.assert_array_equal(rollout.lengths, [3, 4])
    np.testing.assert_array_equal(rollout.mean, 10.0 * rollout.observation)


def test_environment_may_reuse_its_observation_array() -> None:
    class Reuses(Counter):
        buffer = np.zeros(1, np.float32)

        def reset(self, **options: Any) -> Any:
            observation, info = super().reset(**options)
            self.buffer[:] = observation
            return self.buffer, info

        def step(self, action: Any) -> Any:
            observation, *rest = super().step(action)
            self.buffer[:] = observation
            return self.buffer, *rest

    for a, b in zip(gather(Counter, 9), gather(Reuses, 9), strict=True):
        np.testing.assert_array_equal(a, b)


def test_noise_differs_between_rows_iterations_and_environments() -> None:
    noises = []
    for iteration in (0, 1):
        rollout = gather(Counter, 8, num_envs=2, iteration=iteration)
        noises.extend((rollout.action - rollout.mean).ravel())
    assert len(np.unique(noises)) == 16


def test_rows_of_environments_are_stored_one_after_another() -> None:
    rollout = gather(Counter, 10, num_envs=2, threads=2)
    np.testing.assert_array_equal(rollout.observation[:, 0], [0, 1, 2, 0, 1] * 2)
    np.testing.assert_array_equal(np.flatnonzero(rollout.border), [4, 9])
    np.testing.assert_array_equal(rollout.next_observation[4], [2])
    assert rollout.log_std.shape == (1,)


def test_episode_continues_in_the_next_batch() -> None:
    env = Environments(Maker(Counter), 1)
    env.reset(0, 0)
    state = SimpleNamespace(seed=5, iteration=0, step=0)
    first = collect(env, lambda _: Actor(), state, 2)
    second = collect(env, lambda _: Actor(), state, 2)
    np.testing.assert_array_equal(second.observation[:, 0], [2, 0])
    assert (len(first.returns), second.returns.tolist()) == (0, [6.0])


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("raise", "raised at step 1700 .*motor is on fire"),
        ("nan-observation", "observation at step 1700 is not finite"),
        ("inf-reward", "reward at step 1700 is not finite"),
        ("shape", r"observation at step 1700 has shape \(3,\), not \(1,\)"),
    ],
)
def test_faults_name_the_environment_and_the_step(fault: str, says: str) -> None:
    probes.Bad.total = 0
    with pytest.raises(DiscError, match=f"^make: .*{says}"):
        gather(Maker("tests.support.environments:bad", {"fault": fault}).make, 1024, 1)


def test_fault_at_the_last_step_of_a_batch_raises() -> None:
    probes.Bad.total = 0
    with pytest.raises(DiscError, match="not finite"):
        gather(lambda: probes.Bad("nan-observation", 8), 8)
