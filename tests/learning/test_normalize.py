"""Running statistics against NumPy over all data."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from disc.learning import normalize
from disc.types import Rollout

GAMMA = 0.9


def rollout(observation: Any, reward: Any, terminated: Any, truncated: Any) -> Rollout:
    """A rollout with the fields that the normaliser reads."""
    fields = dict.fromkeys(Rollout._fields, np.zeros(0, np.float32))
    fields |= {"observation": np.float32(observation), "reward": np.float32(reward)}
    return Rollout(**fields | {"terminated": terminated, "truncated": truncated})


def random_rollout(rng: np.random.Generator, rows: int = 24) -> Rollout:
    ends = rng.random((2, rows)) < 0.15
    return rollout(rng.standard_normal((rows, 3)), 5.0 + rng.standard_normal(rows), *ends)


def test_moments_of_chunks_equal_those_of_all_data(rng: np.random.Generator) -> None:
    values = 1e3 + rng.standard_normal((100, 3)) * [1e-2, 1.0, 1e2]
    moments = normalize.init(3, 1).observation
    for chunk in np.split(values, [1, 2, 40]):
        moments = normalize.combine(moments, chunk)
    assert moments.samples == 100
    np.testing.assert_allclose(moments.mean, values.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, values.var(axis=0), rtol=1e-6)


def test_discounted_returns_continue_across_batches(rng: np.random.Generator) -> None:
    """Two environments, stored one after the other, over two batches."""
    batches, num_envs = [random_rollout(rng), random_rollout(rng)], 2
    normalizer, seen, running = normalize.init(3, num_envs), [], [0.0] * num_envs
    for batch in batches:
        normalizer = normalize.update(normalizer, batch, GAMMA)
        for row, reward in enumerate(batch.reward.astype(float)):
            env = row // (len(batch.reward) // num_envs)
            running[env] = GAMMA * running[env] + reward
            seen.append(running[env])
            if batch.terminated[row] or batch.truncated[row]:
                running[env] = 0.0
    np.testing.assert_allclose(normalizer.running, running)
    np.testing.assert_allclose(normalizer.discounted.mean, np.mean(seen))
    np.testing.assert_allclose(normalizer.discounted.variance, np.var(seen))


def test_update_does_not_modify_its_argument(rng: np.random.Generator) -> None:
    before = normalize.init(3, 2)
    normalize.update(before, random_rollout(rng), GAMMA)
    assert before.observation.samples == 0
    assert not np.any(before.running)


def test_cut_resets_only_the_running_returns(rng: np.random.Generator) -> None:
    normalizer = normalize.update(normalize.init(3, 2), random_rollout(rng), GAMMA)
    cut = normalize.cut(normalizer)
    assert not np.any(cut.running)
    assert cut.observation is normalizer.observation
    assert cut.discounted is normalizer.discounted


def test_observations_are_standardised(rng: np.random.Generator) -> None:
    batch = random_rollout(rng)
    scale = normalize.scale(normalize.update(normalize.init(3, 1), batch, GAMMA))
    found = np.asarray(normalize.observations(scale, jnp.asarray(batch.observation)))
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.std(axis=0), 1.0, rtol=1e-5)


def test_rewards_are_divided_but_never_centred(rng: np.random.Generator) -> None:
    batch = random_rollout(rng)
    normalizer = normalize.update(normalize.init(3, 1), batch, GAMMA)
    found = normalize.rewards(normalize.scale(normalizer), jnp.asarray(batch.reward))
    wanted = batch.reward / np.sqrt(normalizer.discounted.variance)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert normalize.rewards(normalize.scale(normalizer), jnp.zeros(())) == 0.0


def test_initial_statistics_change_nothing(rng: np.random.Generator) -> None:
    scale = normalize.scale(normalize.init(3, 1))
    observation, reward = jnp.float32(rng.standard_normal((5, 3))), jnp.float32([0.5, -2.0])
    np.testing.assert_allclose(normalize.observations(scale, observation), observation, rtol=1e-8)
    np.testing.assert_allclose(normalize.rewards(scale, reward), reward, rtol=1e-8)


@pytest.mark.parametrize(("value", "wanted"), [(11.0, 10.0), (-11.0, -10.0), (9.5, 9.5)])
def test_observations_and_rewards_are_clipped_at_ten(value: float, wanted: float) -> None:
    scale = normalize.scale(normalize.init(1, 1))
    assert normalize.observations(scale, jnp.full((1, 1), value)) == wanted
    assert normalize.rewards(scale, jnp.full(1, value)) == wanted


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6])
def test_constant_feature_becomes_zero_and_its_jumps_are_clipped(constant: float) -> None:
    no = np.zeros(1000, bool)
    batch = rollout(np.full((1000, 1), constant), np.full(1000, constant), no, no)
    scale = normalize.scale(normalize.update(normalize.init(1, 1), batch, 0.0))
    seen = jnp.float32([[constant], [constant + 1.0]])
    np.testing.assert_array_equal(normalize.observations(scale, seen), [[0.0], [10.0]])
    assert np.all(np.isfinite(normalize.rewards(scale, seen)))
