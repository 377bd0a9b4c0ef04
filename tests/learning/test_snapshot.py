"""Reading the replay, against plain loops over batches and rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from disc.learning import networks, normalize, snapshot
from disc.learning import replay as replays
from disc.learning.distribution import GaussianPolicy
from disc.types import Rollout
from tests.support.rollouts import spec

L, N, S, D = 4, 6, 3, 2
SPEC = spec(S, D)
CONFIG = SimpleNamespace(gamma=0.9, lam=0.8, bootstrap_time_limits=True)


@pytest.fixture
def stored(rng: np.random.Generator) -> Any:
    """Three batches in a replay of four, a policy, a value network and statistics."""

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    replay, normalizer = replays.init(L, N, SPEC), normalize.init(S, 1)
    rollouts = []
    for iteration in range(3):
        ends = rng.random((2, N)) < 0.3
        rollouts.append(
            Rollout(normal(N, S), normal(N, D), 0.1 * normal(N, D), 0.1 * normal(D), normal(N),
                    normal(N, S), ends[0], ends[1], np.arange(N) == N - 1, normal(0), normal(0))
        )  # fmt: skip
        normalizer = normalize.update(normalizer, rollouts[-1], 0.9)
        replay = replays.push(replay, rollouts[-1], iteration)
    policy = GaussianPolicy(networks.init_mlp(rng, (S, 5, D), 0.5), 0.1 * normal(D))
    value = networks.init_mlp(rng, (S, 5, 1), 1.0)
    return replay, rollouts, policy, value, normalize.scale(normalizer)


def dense(mlp: Any, x: Any) -> Any:
    """A network in numpy, in double precision."""
    (w, b), (v, c) = (
        (np.asarray(layer.weight, float), np.asarray(layer.bias, float)) for layer in mlp
    )
    return np.tanh(x @ w + b) @ v + c


def normalized(scale: Any, x: Any) -> Any:
    return np.clip((x - scale.mean) * scale.inverse_std, -10, 10)


def test_ratios_match_explicit_densities(stored: Any) -> None:
    replay, rollouts, policy, _, scale = stored
    found = snapshot.ratios(policy, scale, replay)
    for slot, rollout in enumerate(rollouts):
        weights = np.ones((N, D))
        for t in range(N):
            mean = dense(policy.mean, normalized(scale, rollout.observation[t]))
            for d in range(D):
                a, s, o = rollout.action[t, d], np.exp(policy.log_std[d]), rollout.log_std[d]
                new = np.exp(-(((a - mean[d]) / s) ** 2) / 2) / s
                old = np.exp(-(((a - rollout.mean[t, d]) / np.exp(o)) ** 2) / 2) / np.exp(o)
                weights[t, d] = new / old
        joint = weights.prod(axis=1)
        mean = dense(policy.mean, normalized(scale, rollout.observation))
        np.testing.assert_allclose(found.output[slot], mean, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(np.exp(found.log_rho[slot]), joint, rtol=2e-4)
        assert found.joint_deviation[slot] == pytest.approx(np.abs(joint - 1).mean(), rel=1e-3)
        each = np.abs(weights - 1).mean()
        assert found.dimension_deviation[slot] == pytest.approx(each, rel=1e-3)
    assert not np.any(found.log_rho[3])


def test_reference_is_the_current_policy_or_those_that_collected_the_batches(stored: Any) -> None:
    replay, rollouts, policy, _, scale = stored
    current = snapshot.current(policy, snapshot.ratios(policy, scale, replay))
    behaviour = snapshot.behaviour(replay)
    for slot, rollout in enumerate(rollouts):
        mean = dense(policy.mean, normalized(scale, rollout.observation))
        np.testing.assert_allclose(current.mean[slot], mean, rtol=1e-3, atol=1e-5)
        np.testing.assert_array_equal(current.log_std[slot], policy.log_std)
        np.testing.assert_array_equal(behaviour.mean[slot], rollout.mean)
        np.testing.assert_array_equal(behaviour.log_std[slot], rollout.log_std)


def test_values_are_computed_only_for_included_batches(stored: Any) -> None:
    replay, rollouts, _, value, scale = stored
    included = np.array([True, False, True, False])
    found = snapshot.steps(CONFIG, value, scale, replay, included)
    for slot, rollout in enumerate(rollouts):
        if included[slot]:
            now = dense(value, normalized(scale, rollout.observation))[:, 0]
            following = dense(value, normalized(scale, rollout.next_observation))[:, 0]
            np.testing.assert_allclose(found.value[:, slot], now, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(found.next_value[:, slot], following, rtol=1e-3, atol=1e-5)
        reward = np.clip(rollout.reward * scale.reward, -10, 10)
        np.testing.assert_allclose(found.reward[:, slot], reward, rtol=1e-5)
        np.testing.assert_allclose(found.discount[:, slot], 0.9 * ~rollout.terminated, rtol=1e-6)
        goes_on = ~(rollout.terminated | rollout.truncated | rollout.border)
        np.testing.assert_allclose(found.decay[:, slot], 0.72 * goes_on, rtol=1e-6)
    assert not np.any(found.value[:, [1, 3]])


def test_snapshot_metrics_match_their_definitions(stored: Any, rng: np.random.Generator) -> None:
    replay, _, policy, _, scale = stored
    ratios = snapshot.ratios(policy, scale, replay)
    included = np.array([True, False, True, False])
    value, target = rng.standard_normal((2, L, N)).astype(np.float32)
    found = snapshot.measure(replay, ratios, included, value, target)
    v, t = value[included].ravel(), target[included].ravel()
    assert found["train/explained_variance"] == pytest.approx(1 - np.var(t - v) / np.var(t), 1e-3)
    rho = np.exp(np.asarray(ratios.log_rho)[included]).ravel()
    share = rho.sum() ** 2 / (rho**2).sum() / rho.size
    assert found["is/effective_samples"] == pytest.approx(share, rel=1e-3)
    assert found["is/batches"] == 2
    assert found["is/oldest_age"] == 2  # slot 0 of three
    assert found["is/rho_d_start"] == pytest.approx(
        1 + np.mean(np.asarray(ratios.dimension_deviation)[included]), rel=1e-4
    )
    for age, slot in ((0, 2), (1, 1), (2, 0)):
        expected = 1 + float(ratios.dimension_deviation[slot])
        assert found[f"is/rho_d_age_{age}"] == pytest.approx(expected, rel=1e-5)
    assert np.isnan(found["is/rho_d_age_3"])
