"""DDPG's gradient steps against finite differences in NumPy, its state and its options."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from disc import DiscError
from disc.algos import ddpg
from disc.algos.ddpg import Config
from disc.learning import normalize
from disc.learning.networks import Linear, NormalizedLinear
from disc.learning.off_policy import Targets
from disc.learning.types import Scale
from tests.support.compare import assert_close, assert_equal_trees
from tests.support.ddpg import CONFIG, CRITIC, MEAN, POLICY, VARIANCE, learned, settled
from tests.support.learners import (
    assert_first_step,
    assert_follows,
    assert_gradient,
    assert_starts_from,
)
from tests.support.plain import differences, doubles, q, run, squares, targets
from tests.support.transitions import KEY, SPEC, batch, compiled, rollout

SCALE = Scale(np.float32(MEAN), np.float32(1.0 / np.sqrt(VARIANCE)), np.float32(1.0))

step = compiled(ddpg.learn)


def seen(x: Any) -> Any:
    """Normalised observations, some of them clipped."""
    result = (np.asarray(x, float) - MEAN) / np.sqrt(VARIANCE)
    assert 0 < np.sum(np.abs(result) > 5.0) < result.size
    return np.minimum(np.maximum(result, -5.0), 5.0)


# The gradient step


def test_critic_gradient_includes_weight_decay() -> None:
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


def test_policy_gradient_uses_the_updated_critic() -> None:
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


def test_initial_state_has_expected_networks_and_targets() -> None:
    """The action enters the critic's second layer."""
    state = ddpg.init(CONFIG, SPEC, 1, 0)
    found = state.learned
    assert_fresh(found.policy.parameters, POLICY)
    (critic,) = found.value.parameters
    assert_fresh(critic, CRITIC)
    assert_equal_trees(found.targets, Targets(found.policy.parameters, (critic,)))
    assert state.spread == CONFIG.parameter_noise == 0.2
    assert set(state.parameters()) == {"policy", "value"}


def test_targets_start_at_the_loaded_networks() -> None:
    state, other = ddpg.init(CONFIG, SPEC, 1, 0), learned()
    state = assert_starts_from(state, other)
    networks = Targets(other.policy.parameters, other.value.parameters)
    assert_equal_trees(state.learned.targets, networks)


def test_observe_updates_the_observation_statistics() -> None:
    state, rows = ddpg.init(CONFIG, SPEC, 1, 0), rollout(12)
    state = ddpg.observe(CONFIG, state, rows)
    assert_close(state.normalizer.observation.mean, np.mean(rows.observation, axis=0))
    assert_close(state.normalizer.observation.variance, np.var(rows.observation, axis=0))
    assert (state.step, state.replay.filled) == (12, 12)
    assert not np.any(normalize.scale(state.normalizer).mean == 0.0)


def test_policy_acts_on_normalised_and_clipped_observations() -> None:
    state, x = settled(), np.asarray(batch().observation)
    wanted = np.tanh(run(doubles(learned().policy.parameters), seen(x)))
    acting = ddpg.act(CONFIG, SPEC, state)
    assert_close(acting.predict(x)[0], wanted)
    assert_close(acting.predict(x, deterministic=False)[0], wanted)
    explore = dataclasses.replace(ddpg.explore(CONFIG, SPEC, state), spread=0.0).episode(1)
    assert_close(explore(x[0], np.float32([3, -3]))[0], wanted[0])


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
def test_invalid_options_raise(options: dict[str, Any]) -> None:
    with pytest.raises(DiscError, match=f"^{next(iter(options))} must be"):
        Config(**options)
