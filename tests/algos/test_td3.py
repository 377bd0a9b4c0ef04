"""TD3's gradient steps against finite differences in NumPy and against DDPG's."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import TD3, DiscError
from disc.algos import ddpg, td3
from disc.algos.td3 import Config, Learned
from disc.learning import off_policy
from disc.learning.off_policy import Targets
from tests.support import environments
from tests.support.compare import assert_close, assert_close_trees, assert_equal_trees
from tests.support.learners import (
    assert_first_step,
    assert_follows,
    assert_gradient,
    assert_moved,
    assert_starts_from,
)
from tests.support.networks import layers
from tests.support.plain import differences, doubles, least, q, run, squares, targets
from tests.support.transitions import IDENTITY, KEY, SPEC, B, D, S, batch, compiled, rollout

OPTIONS: dict[str, Any] = {"widths": (5, 4), "learning_rate": 0.01, "tau": 0.25, "gamma": 0.9}
OPTIONS |= {"replay_size": 20, "batch_size": B, "random_steps": 4}
CONFIG = Config(**OPTIONS, target_noise=0.5, target_noise_clip=0.4, policy_delay=3)
POLICY, CRITIC = ((S, 5), (5, 4), (4, D)), ((S + D, 5), (5, 4), (4, 1))

step = compiled(off_policy._delayed(td3.move_critics, td3.move_policy, "if due"))


def learned(updates: int = 0) -> Learned:
    """Fresh optimisers with this update count; the targets differ from the networks."""
    critics = layers(3, *CRITIC), layers(13, *CRITIC)
    policy, value, _ = off_policy.rest(layers(6, *POLICY), critics)
    elsewhere = Targets(layers(25, *POLICY), (layers(6, *CRITIC), layers(7, *CRITIC)))
    return Learned(policy, value, elsewhere, jnp.int32(updates))


def smoothed(action: Any) -> Any:
    """With noise of ½ clipped to ±0.4, element by element; some noise and actions are clipped."""
    noise = np.asarray(jax.random.normal(KEY, action.shape), float)
    result, held = np.zeros_like(action), 0
    for index in np.ndindex(action.shape):
        moved = action[index] + min(max(0.5 * noise[index], -0.4), 0.4)
        result[index] = min(max(moved, -1.0), 1.0)
        held += abs(0.5 * noise[index]) > 0.4
    assert 0 < held < action.size
    assert 0 < np.sum(np.abs(result) == 1.0) < action.size
    return result


# The critics


def test_target_action_gets_clipped_noise_within_bounds() -> None:
    action = np.linspace(-1.0, 1.0, B * D).reshape(B, D)
    found = jax.jit(td3.smooth, static_argnums=0)(CONFIG, np.float32(action), KEY)
    assert_close(found, smoothed(action))


def test_critic_gradient_matches_finite_differences() -> None:
    """Of both critics, towards the smaller target at the target policy's noisy action."""
    before, rows = learned(), doubles(batch())
    after, measured = step(CONFIG, before, batch(), KEY, IDENTITY)
    plain, x = doubles(before), rows.next_observation
    action = smoothed(np.tanh(run(plain.targets.policy, x)))
    y = targets(rows, least(plain.targets.value, x, action), 0.9)
    critics = plain.value.parameters
    assert_gradient(after.value, differences(lambda c: squares(c, rows, y), critics))
    assert_first_step(before.value, after.value, 0.01)
    assert_close(measured["train/value_loss"], squares(critics, rows, y))
    values = [q(critic, rows.observation, rows.action) for critic in critics]
    assert_close(measured["train/q"], np.mean(values))


# The policy


def test_policy_gradient_uses_the_updated_first_critic() -> None:
    before, x = learned(updates=2), np.asarray(batch().observation, float)
    after, measured = step(CONFIG, before, batch(), KEY, IDENTITY)
    first = doubles(after.value.parameters[0])

    def loss(policy: Any) -> Any:
        return -np.mean(q(first, x, np.tanh(run(policy, x))))

    start = doubles(before.policy.parameters)
    assert_gradient(after.policy, differences(loss, start))
    assert_first_step(before.policy, after.policy, 0.01)
    assert_close(measured["train/objective"], -3.0 * loss(start))


def test_policy_and_targets_move_at_every_third_step_only() -> None:
    now = learned()
    for n in range(1, 8):
        before = now
        now, measured = step(CONFIG, before, batch(n), KEY, IDENTITY)
        assert now.updates == n
        assert now.value.moments.count == n
        assert now.policy.moments.count == n // 3
        assert_moved(before.value, now.value)
        if n % 3:
            assert_equal_trees((now.policy, now.targets), (before.policy, before.targets))
            assert measured["train/objective"] == 0.0
        else:
            followed = Targets(now.policy.parameters, now.value.parameters)
            assert_follows(before.targets, now.targets, followed, 0.25)


def test_td3_without_its_three_changes_equals_ddpg() -> None:
    plain = Config(**OPTIONS, policy_delay=1, target_noise=0.0, twin=False)
    rates = {"policy_learning_rate": 0.01, "value_learning_rate": 0.01, "value_decay": 0.0}
    other = ddpg.Config(widths=(5, 4), tau=0.25, gamma=0.9, **rates)
    networks = layers(6, *POLICY), (layers(3, *CRITIC),)
    ours = Learned(*off_policy.rest(*networks), jnp.int32(0))
    theirs = ddpg.Learned(*off_policy.rest(*networks))
    ddpg_step = compiled(ddpg.learn)
    for n in range(6):
        rows = batch(n)
        assert max(np.max(np.abs(x)) for x in (rows.observation, rows.next_observation)) < 5.0
        ours, found = step(plain, ours, rows, KEY, IDENTITY)
        theirs, wanted = ddpg_step(other, theirs, rows, KEY, IDENTITY)
        assert_close_trees(ours[:3], tuple(theirs), rtol=1e-5, atol=1e-6)
        assert_close_trees(found, wanted, rtol=1e-5, atol=1e-6)
    moved = np.asarray(ours.policy.parameters[0].weight) - networks[0][0].weight
    assert np.max(np.abs(moved)) > 0.02


# The state


@pytest.mark.parametrize("twin", [True, False])
def test_initial_state_has_expected_networks_and_targets(twin: bool) -> None:
    state = td3.init(Config(**OPTIONS, twin=twin), SPEC, 1, 0)
    found = state.learned
    assert [x.weight.shape for x in found.policy.parameters] == list(POLICY)
    critics = found.value.parameters
    assert len(critics) == 1 + twin
    for critic in critics:
        assert [x.weight.shape for x in critic] == list(CRITIC)
    assert np.all(critics[0][0].weight != critics[-1][0].weight) == twin
    assert_equal_trees(found.targets, Targets(found.policy.parameters, critics))
    assert found.updates == 0
    assert set(state.parameters()) == {"policy", "value"}


def test_targets_start_at_the_loaded_networks() -> None:
    state, other = td3.init(CONFIG, SPEC, 1, 0), learned(5)
    state = assert_starts_from(state, other)
    networks = Targets(other.policy.parameters, other.value.parameters)
    assert_equal_trees(state.learned.targets, networks)
    assert state.learned.updates == 0


def test_exploration_adds_noise_and_evaluation_does_not() -> None:
    """Bounds of −1 to 3: tanh(network) + 0.1·noise, clipped to ±1, times 2 plus 1."""
    spec = SPEC._replace(action_low=np.float32([-1, -1]), action_high=np.float32([3, 3]))
    state = td3.init(CONFIG, spec, 1, 0)
    x, noise = np.asarray(batch().observation), np.float32([[12.0, -2.0]] * B)
    assert type(td3.explore(CONFIG, spec, state)).__name__ == "Uniform"
    state = td3.observe(CONFIG, state, rollout(4))
    mean = np.tanh(run(doubles(state.policy.parameters), x))
    moved = np.clip(mean + 0.1 * noise, -1.0, 1.0)
    assert 0 < np.sum(np.abs(moved) == 1.0) < moved.size
    explore = td3.explore(CONFIG, spec, state)
    found = np.stack([explore(x[b], noise[b])[0] for b in range(B)])
    assert_close(found, 1.0 + 2.0 * moved)
    assert_close(td3.act(CONFIG, spec, state).predict(x)[0], 1.0 + 2.0 * mean)


@pytest.mark.parametrize(
    "options",
    [
        {"policy_delay": 0},
        {"policy_delay": 1.5},
        {"tau": 2.0},
        {"learning_rate": 0.0},
        {"exploration": -0.1},
        {"target_noise": -0.1},
        {"target_noise_clip": float("nan")},
        {"replay_size": 0},
        {"random_steps": -1},
    ],
)
def test_invalid_options_raise(options: dict[str, Any]) -> None:
    with pytest.raises(DiscError, match=f"^{next(iter(options))} must be"):
        Config(**options)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_single_updates_equal_several_at_once(delay: int) -> None:
    """Programs compiled with or without a policy update equal the one that decides at run time."""
    options = {"steps_per_update": 6, "horizon": 6, "random_steps": 6, "policy_delay": delay}
    agent = TD3(environments.wide, widths=(5,), batch_size=4, **options)
    agent.learn(6, eval_every=0, progress=False)
    many = dataclasses.replace(agent.state, step=7)
    one, single = many, dataclasses.replace(agent.config, steps_per_update=1)
    many, _ = td3.update(agent.config, many, 1)
    for _ in range(6):
        one, _ = td3.update(single, one, 1)
    assert int(one.learned.updates) == int(many.learned.updates) == 6
    assert_close_trees(one.learned, many.learned, rtol=1e-5, atol=1e-6)
