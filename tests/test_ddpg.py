"""DDPG's gradient steps against slopes in numpy, and its noise on the policy's parameters."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from disc import DiscError, normalize, off_policy
from disc.algos import ddpg
from disc.algos.ddpg import Config, Learned, Perturbed, State
from disc.envs import Environments, Maker
from disc.networks import Linear, NormalizedLinear
from disc.normalize import Moments, Scale
from disc.off_policy import Targets
from disc.rollout import collect
from tests.environments import Wide
from tests.transitions import (
    KEY,
    SPEC,
    D,
    S,
    assert_close,
    assert_close_trees,
    assert_equal_trees,
    assert_first_step,
    assert_follows,
    assert_gradient,
    batch,
    compiled,
    differences,
    doubles,
    layers,
    q,
    rollout,
    run,
    squares,
    targets,
)

OPTIONS: dict[str, Any] = {"widths": (5, 4), "tau": 0.25, "gamma": 0.9, "value_decay": 0.5}
OPTIONS |= {"policy_learning_rate": 0.01, "value_learning_rate": 0.03, "replay_size": 20}
CONFIG = Config(**OPTIONS)
POLICY, CRITIC = ((S, 5), (5, 4), (4, D)), ((S, 5), (5 + D, 4), (4, 1))
MEAN, VARIANCE = np.array([0.5, -1.0, 0.1]), np.array([4.0, 0.25, 0.01])
SCALE = Scale(np.float32(MEAN), np.float32(1.0 / np.sqrt(VARIANCE)), np.float32(1.0))

step = compiled(ddpg.learn)


def learned() -> Learned:
    """At rest; the targets are elsewhere than the networks."""
    networks = [
        (layers(a, *POLICY, normalized=True), (layers(b, *CRITIC, normalized=True),))
        for a, b in ((1, 2), (3, 4))
    ]
    policy, value, _ = off_policy.rest(*networks[0])
    return Learned(policy, value, Targets(*networks[1]))


def seen(x: Any) -> Any:
    """Observations as the networks see them; some are held."""
    result = (np.asarray(x, float) - MEAN) / np.sqrt(VARIANCE)
    assert 0 < np.sum(np.abs(result) > 5.0) < result.size
    return np.minimum(np.maximum(result, -5.0), 5.0)


# The gradient step


def test_the_critics_gradient_and_its_decay() -> None:
    before, rows = learned(), doubles(batch())
    after, measured = step(CONFIG, before, batch(), KEY, SCALE)
    plain, x = doubles(before), seen(rows.next_observation)
    action = np.tanh(run(plain.targets.policy, x))
    y = targets(rows, q(plain.targets.value[0], x, action, entry=1), 0.9)
    rows = rows._replace(observation=seen(rows.observation))

    def error(critics: Any) -> Any:
        return squares(critics, rows, y, entry=1)

    def decay(critics: Any) -> Any:
        """½ · ½ Σ w² of the weights before the head; no biases, no scales."""
        return 0.25 * sum(np.sum(layer.weight**2) for layer in critics[0][:2])

    critics = plain.value.parameters
    slopes = differences(lambda x: error(x) + decay(x), critics)
    assert_gradient(after.value, slopes)
    assert_first_step(before.value, after.value, 0.03)
    assert_close(measured["train/value_loss"], error(critics))
    assert_close(measured["train/q"], np.mean(q(critics[0], rows.observation, rows.action, 1)))


def test_the_policys_gradient_is_by_the_moved_critic() -> None:
    before, x = learned(), seen(batch().observation)
    after, measured = step(CONFIG, before, batch(), KEY, SCALE)
    critic = doubles(after.value.parameters[0])

    def loss(policy: Any) -> Any:
        return -np.mean(q(critic, x, np.tanh(run(policy, x)), entry=1))

    start = doubles(before.policy.parameters)
    assert_gradient(after.policy, differences(loss, start))
    assert_first_step(before.policy, after.policy, 0.01)
    assert_close(measured["train/objective"], -loss(start))


def test_targets_move_by_tau() -> None:
    before = learned()
    after, _ = step(CONFIG, before, batch(), KEY, SCALE)
    followed = Targets(after.policy.parameters, after.value.parameters)
    assert_follows(before.targets, after.targets, followed, 0.25)


# The state


def assert_fresh(network: Any, shapes: Any) -> None:
    *hidden, head = network
    assert [layer.weight.shape for layer in network] == list(shapes)
    for layer in hidden:
        assert isinstance(layer, NormalizedLinear)
        rows, columns = layer.weight.shape
        bound = np.sqrt(6.0 / (rows + columns))
        assert 0.5 * bound < np.max(np.abs(layer.weight)) < bound
        assert not np.any(layer.bias)
        np.testing.assert_array_equal(layer.scale, np.ones(columns))
        np.testing.assert_array_equal(layer.shift, np.zeros(columns))
    assert isinstance(head, Linear)
    for array in head:
        assert 0.0 < np.max(np.abs(array)) <= 3e-3
    assert np.max(np.abs(head.weight)) > 1e-3


def test_a_fresh_state() -> None:
    """The action enters the critic's second layer."""
    state = ddpg.init(CONFIG, SPEC, 1, 0)
    found = state.learned
    assert_fresh(found.policy.parameters, POLICY)
    (critic,) = found.value.parameters
    assert_fresh(critic, CRITIC)
    assert_equal_trees(found.targets, Targets(found.policy.parameters, (critic,)))
    assert state.spread == CONFIG.parameter_noise == 0.2
    assert set(state.parameters()) == {"policy", "value"}


def test_a_run_from_other_networks_has_its_targets_there() -> None:
    state, other = ddpg.init(CONFIG, SPEC, 1, 0), learned()
    parameters = {"policy": other.policy.parameters, "value": other.value.parameters}
    state = state.start_from(parameters, state.normalizer)
    assert_equal_trees(state.parameters(), parameters)
    assert_equal_trees(state.learned.targets, Targets(*parameters.values()))


def settled(steps: int = 12) -> State:
    """Networks and statistics that are no longer fresh, and steps stored."""
    state = ddpg.observe(CONFIG, ddpg.init(CONFIG, SPEC, 1, 0), rollout(steps))
    moments = Moments(100.0, MEAN, VARIANCE)
    normalizer = state.normalizer._replace(observation=moments)
    return dataclasses.replace(state, learned=learned(), normalizer=normalizer)


def test_observing_moves_the_statistics() -> None:
    state, rows = ddpg.init(CONFIG, SPEC, 1, 0), rollout(12)
    state = ddpg.observe(CONFIG, state, rows)
    assert_close(state.normalizer.observation.mean, np.mean(rows.observation, axis=0))
    assert_close(state.normalizer.observation.variance, np.var(rows.observation, axis=0))
    assert (state.step, state.replay.filled) == (12, 12)
    assert not np.any(normalize.scale(state.normalizer).mean == 0.0)


def test_the_policy_acts_on_observations_normalised_and_held() -> None:
    state, x = settled(), np.asarray(batch().observation)
    wanted = np.tanh(run(doubles(learned().policy.parameters), seen(x)))
    acting = ddpg.act(CONFIG, SPEC, state)
    assert_close(acting.predict(x)[0], wanted)
    assert_close(acting.predict(x, deterministic=False)[0], wanted)
    explore = dataclasses.replace(ddpg.explore(CONFIG, SPEC, state), spread=0.0).episode(1)
    assert_close(explore(x[0], np.float32([3, -3]))[0], wanted[0])


# Noise on the parameters


def perturbed(spread: float = 0.3, run: int = 5) -> Perturbed:
    acting = ddpg.explore(CONFIG, SPEC, dataclasses.replace(settled(), spread=spread, seed=run))
    assert isinstance(acting, Perturbed)
    return acting


def moved(policy: Perturbed, *name: int) -> Any:
    """What the noise added to all weights and biases."""
    other = policy.episode(*name)
    pairs = zip((*other.weights, *other.biases), (*policy.weights, *policy.biases), strict=True)
    return np.concatenate([np.ravel(new - old) for new, old in pairs])


def test_noise_is_named_by_run_lane_and_episode() -> None:
    policy, name = perturbed(), (0, 1, 2)
    first = moved(policy, *name)
    np.testing.assert_array_equal(first, moved(perturbed(), *name))
    others = [(0, 1, 3), (0, 2, 2), (9, 1, 2)]
    noises = [first, moved(perturbed(run=6), *name), *(moved(policy, *other) for other in others)]
    for i, one in enumerate(noises):
        for other in noises[:i]:
            assert np.all(np.abs(one - other) > 1e-6)


def test_noise_has_the_spread_and_leaves_the_normalisation_alone() -> None:
    policy = perturbed(0.3)
    values = np.concatenate([moved(policy, 0, 0, n) for n in range(200)])
    assert np.mean(values) == pytest.approx(0.0, abs=0.01)
    assert np.std(values) == pytest.approx(0.3, rel=0.02)
    assert_close(np.quantile(values / 0.3, [0.025, 0.25, 0.84]), [-1.96, -0.674, 0.994], atol=0.04)
    other = policy.episode(0, 0, 1)
    assert_equal_trees((other.scales, other.shifts), (policy.scales, policy.shifts))
    assert_equal_trees(policy.weights, perturbed(0.3).weights)
    assert not np.any(moved(perturbed(0.0), 0, 0, 1))


def test_every_episode_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in all batches that it runs through; rows are what that policy does."""
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


def test_the_spread_grows_by_a_hundredth_or_shrinks() -> None:
    assert ddpg.adapt(0.5, 0.1, 0.2) == pytest.approx(0.5 * 1.01)
    assert ddpg.adapt(0.5, 0.3, 0.2) == pytest.approx(0.5 / 1.01)
    assert ddpg.adapt(ddpg.adapt(0.5, 0.1, 0.2), 0.3, 0.2) == pytest.approx(0.5)


def measured(state: State, spread: float, count: int) -> tuple[State, list[float]]:
    """Distances of so many draws; the key moves on."""
    scale, distances = normalize.scale(state.normalizer), []
    for _ in range(count):
        key, distance = ddpg.measure_noise(
            CONFIG, state.policy.parameters, spread, state.key, state.replay, state.bounds, scale
        )
        assert np.any(key != state.key)
        state = dataclasses.replace(state, key=key)
        distances.append(float(distance))
    return state, distances


def test_the_distance_is_that_of_actions_with_noise() -> None:
    """Its mean square, against as many policies of episodes on all stored observations."""
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
def test_the_spread_settles_where_noise_moves_actions_by_its_goal(spread: float) -> None:
    state, distances = settled(), []
    for _ in range(600):
        state, (distance,) = measured(state, spread, 1)
        spread = ddpg.adapt(spread, distance, CONFIG.parameter_noise)
        distances.append(distance)
    assert np.median(distances[-200:]) == pytest.approx(0.2, rel=0.15)


@pytest.mark.parametrize(("noise", "ready"), [(0.2, True), (0.2, False), (0.0, True)])
def test_an_update_adapts_the_spread(
    noise: float, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, after its gradient steps; not while there are none, and not if there is no noise."""
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
    assert_close_trees(state.learned, after.learned, 0.0, 0.0)


@pytest.mark.parametrize(
    "options",
    [
        {"policy_learning_rate": 0.0},
        {"value_learning_rate": 1.0},
        {"tau": 2.0},
        {"value_decay": -1.0},
        {"parameter_noise": -0.1},
        {"widths": ()},
        {"updates_per_step": 0.001},
        {"horizon": 150},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DiscError, match=f"^{next(iter(options))} must be"):
        Config(**options)
