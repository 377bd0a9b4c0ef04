"""DDPG's parameter noise and its adaptive standard deviation."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from disc.algos import ddpg
from disc.algos.ddpg import Config, Perturbed, State
from disc.envs.factory import Maker
from disc.envs.pool import Environments
from disc.envs.rollout import collect
from disc.learning import normalize, off_policy
from tests.support.compare import assert_close, assert_equal_trees
from tests.support.ddpg import CONFIG, OPTIONS, settled
from tests.support.environments import Wide
from tests.support.transitions import SPEC, rollout


def perturbed(spread: float = 0.3, run: int = 5) -> Perturbed:
    acting = ddpg.explore(CONFIG, SPEC, dataclasses.replace(settled(), spread=spread, seed=run))
    assert isinstance(acting, Perturbed)
    return acting


def moved(policy: Perturbed, *name: int) -> Any:
    """The noise added to all weights and biases."""
    other = policy.episode(*name)
    pairs = zip((*other.weights, *other.biases), (*policy.weights, *policy.biases), strict=True)
    return np.concatenate([np.ravel(new - old) for new, old in pairs])


def test_noise_depends_on_run_lane_and_episode() -> None:
    policy, name = perturbed(), (0, 1, 2)
    first = moved(policy, *name)
    np.testing.assert_array_equal(first, moved(perturbed(), *name))
    others = [(0, 1, 3), (0, 2, 2), (9, 1, 2)]
    noises = [first, moved(perturbed(run=6), *name), *(moved(policy, *other) for other in others)]
    for i, one in enumerate(noises):
        for other in noises[:i]:
            assert np.all(np.abs(one - other) > 1e-6)


def test_noise_has_the_given_std_and_skips_layer_normalisation() -> None:
    policy = perturbed(0.3)
    values = np.concatenate([moved(policy, 0, 0, n) for n in range(200)])
    assert np.mean(values) == pytest.approx(0.0, abs=0.01)
    assert np.std(values) == pytest.approx(0.3, rel=0.02)
    assert_close(np.quantile(values / 0.3, [0.025, 0.25, 0.84]), [-1.96, -0.674, 0.994], atol=0.04)
    other = policy.episode(0, 0, 1)
    assert_equal_trees((other.scales, other.shifts), (policy.scales, policy.shifts))
    assert_equal_trees(policy.weights, perturbed(0.3).weights)
    assert not np.any(moved(perturbed(0.0), 0, 0, 1))


def test_each_episode_has_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in all batches of the episode; rows hold the perturbed policy's actions."""
    env = Environments(Maker(Wide), 2)
    env.reset(3, 0)
    state = dataclasses.replace(ddpg.init(CONFIG, env.spec, 2, 3), spread=1.0)
    asked: list[Any] = []
    original = Perturbed.episode

    def spy(self: Perturbed, *name: int) -> Perturbed:
        asked.append(name)
        return original(self, *name)

    monkeypatch.setattr(Perturbed, "episode", spy)
    policy = ddpg.explore(CONFIG, env.spec, state)
    episodes = [1, 1]
    for iteration in range(3):
        asked.clear()
        clock = SimpleNamespace(seed=3, iteration=iteration, step=100 * iteration)
        rows = collect(env, lambda _: policy, clock, 100)
        wanted = []
        for row in range(100):
            lane = row // 50
            if row % 50 == 0:
                wanted.append((0, lane, episodes[lane]))
            acting = original(policy, 0, lane, episodes[lane])
            assert_close(rows.action[row], acting.mean(rows.observation[row]), atol=1e-6)
            if rows.terminated[row] or rows.truncated[row]:
                episodes[lane] += 1
                wanted.append((0, lane, episodes[lane]))
        assert asked == wanted
    assert min(episodes) > 3


def test_noise_std_grows_or_shrinks_by_one_percent() -> None:
    assert ddpg.adapt(0.5, 0.1, 0.2) == pytest.approx(0.5 * 1.01)
    assert ddpg.adapt(0.5, 0.3, 0.2) == pytest.approx(0.5 / 1.01)
    assert ddpg.adapt(ddpg.adapt(0.5, 0.1, 0.2), 0.3, 0.2) == pytest.approx(0.5)


def measured(state: State, spread: float, count: int) -> tuple[State, list[float]]:
    """Distances of `count` draws, each with a new key."""
    scale, distances = normalize.scale(state.normalizer), []
    for _ in range(count):
        key, distance = ddpg.measure_noise(
            CONFIG, state.policy.parameters, spread, state.key, state.replay, state.bounds, scale
        )
        assert np.any(key != state.key)
        state = dataclasses.replace(state, key=key)
        distances.append(float(distance))
    return state, distances


def test_noise_distance_matches_that_of_perturbed_policies() -> None:
    """Mean squares agree with those of 300 perturbed policies on all stored observations."""
    state = settled()
    x, clean = np.asarray(rollout(12).observation), ddpg.act(CONFIG, SPEC, state)
    means, wanted = [], []
    for spread in (0.05, 0.3):
        _, distances = measured(state, spread, 300)
        assert len(np.unique(distances)) == 300
        means.append(np.mean(np.square(distances)))
        policy = perturbed(spread)
        noisy = (policy.episode(n).mean(x) for n in range(300))
        wanted.append(np.mean([np.mean((clean.mean(x) - y) ** 2) for y in noisy]))
    assert_close(means, wanted, rtol=0.2, atol=0.0)
    assert 4.0 * means[0] < means[1]
    assert measured(state, 0.0, 3)[1] == [0.0] * 3


@pytest.mark.parametrize("spread", [0.01, 1.5])
def test_noise_std_settles_at_the_target_action_distance(spread: float) -> None:
    state, distances = settled(), []
    for _ in range(600):
        state, (distance,) = measured(state, spread, 1)
        spread = ddpg.adapt(spread, distance, CONFIG.parameter_noise)
        distances.append(distance)
    assert np.median(distances[-200:]) == pytest.approx(0.2, rel=0.15)


@pytest.mark.parametrize(("noise", "ready"), [(0.2, True), (0.2, False), (0.0, True)])
def test_update_adapts_the_noise_std(
    noise: float, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, after the gradient steps; not without gradient steps or without noise."""
    after = dataclasses.replace(settled(), iteration=1, spread=noise)
    found: dict[str, float] = {"train/q": 1.0} if ready else {}
    monkeypatch.setattr(off_policy, "improve", lambda *_: (after, dict(found)))
    state, metrics = ddpg.update(Config(**OPTIONS, parameter_noise=noise), after, 1)
    if not (noise and ready):
        assert (state, metrics) == (after, found)
        return
    _, (distance,) = measured(after, 0.2, 1)
    assert metrics == {**found, "train/parameter_noise": 0.2, "train/noise_distance": distance}
    assert state.spread == ddpg.adapt(0.2, distance, 0.2)
    assert np.any(state.key != after.key)
    assert_equal_trees(state.learned, after.learned)
