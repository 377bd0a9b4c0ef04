"""Target networks and losses of off-policy algorithms against NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.learning import off_policy
from disc.learning.networks import Linear
from tests.support.compare import assert_close_trees, assert_equal_trees
from tests.support.off_policy import D, S, assert_close
from tests.support.plain import differences, doubles, q, run

# Target networks


def network(rng: np.random.Generator, *sizes: int) -> Any:
    return tuple(
        Linear(jnp.float32(rng.standard_normal((a, b))), jnp.float32(rng.standard_normal(b)))
        for a, b in pairwise(sizes)
    )


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.3, 1.0])
def test_targets_move_by_tau(tau: float, rng: np.random.Generator) -> None:
    """Entries are (1 − τ)·old + τ·new to the last bit of single precision; exact at τ = 0 and 1."""
    old, new = ((network(rng, 3, 4, 1), network(rng, 3, 4, 1)) for _ in range(2))
    found = off_policy.follow(old, new, tau)
    assert jax.tree.structure(found) == jax.tree.structure(old)
    leaves = (jax.tree.leaves(tree) for tree in (found, old, new))
    for moved, before, aim in zip(*leaves, strict=True):
        assert moved.dtype == np.float32
        x, y = np.float64(before), np.float64(aim)
        wanted = (1.0 - tau) * x + tau * y
        error = np.abs(np.float64(moved) - wanted)
        assert np.all(error <= 2.0**-23 * (np.abs(x) + np.abs(y)))
    if tau in (0.0, 1.0):
        assert_equal_trees(found, new if tau else old)


def test_targets_converge_to_fixed_networks() -> None:
    """After n steps with τ = ½, a share 2⁻ⁿ of the way is left."""
    target: Any = {"a": jnp.float32([8.0, 0.0])}
    for left in (0.5, 0.25, 0.125):
        target = off_policy.follow(target, {"a": jnp.float32([0.0, 16.0])}, 0.5)
        np.testing.assert_array_equal(target["a"], [8.0 * left, 16.0 * (1.0 - left)])


def test_targets_start_equal_to_their_networks(rng: np.random.Generator) -> None:
    policy, value = network(rng, 2, 3, 2), (network(rng, 4, 3, 1),)
    moving, critics, targets = off_policy.rest(policy, value)
    assert_equal_trees((moving.parameters, critics.parameters), (targets.policy, targets.value))
    assert_equal_trees((targets.policy, targets.value), (policy, value))


# Losses, against NumPy in double precision


@pytest.fixture
def case(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "critics": tuple(network(rng, S + D, 6, 5, 1) for _ in range(3)),
        "policy": network(rng, S, 6, 5, D),
        "observation": np.float32(3.0 * rng.standard_normal((7, S))),
        "action": np.float32(rng.uniform(-1.0, 1.0, (7, D))),
        "y": np.float32(rng.standard_normal(7)),
    }


def test_least_is_the_minimum_over_critics(case: dict[str, Any], rng: np.random.Generator) -> None:
    critics, observation, action = case["critics"], case["observation"], case["action"]
    plain = doubles(critics)
    wanted = np.array([q(critic, observation, action) for critic in plain])
    assert_close(off_policy.q_values(critics, observation, action), wanted, rtol=1e-4)
    found = off_policy.least(critics, observation, action)
    assert_close(found, [min(column) for column in wanted.T], rtol=1e-4)
    assert len(set(np.argmin(wanted, axis=0).tolist())) > 1
    several = np.float32(rng.uniform(-1.0, 1.0, (7, 4, D)))
    wide = np.repeat(observation[:, None], 4, axis=1)
    wanted = np.array([q(critic, wide, several) for critic in plain])
    assert_close(off_policy.q_values(critics, observation, several), wanted, rtol=1e-4)
    found = off_policy.least(critics, observation, several)
    assert found.shape == (7, 4)
    assert_close(found, wanted.min(axis=0), rtol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_value_loss_sums_the_critics_mean_squared_errors(count: int, case: dict[str, Any]) -> None:
    critics = case["critics"][:count]
    values = [q(critic, case["observation"], case["action"]) for critic in doubles(critics)]
    loss = sum(sum((a - b) ** 2 for a, b in zip(x, case["y"], strict=True)) / 7 for x in values)
    found, mean = off_policy.value_loss(
        critics, case["observation"], case["action"], jnp.asarray(case["y"])
    )
    assert found.shape == mean.shape == ()
    assert_close(found, loss, rtol=1e-4)
    assert_close(mean, np.mean(values), rtol=1e-4)


def test_value_loss_gradient_matches_finite_differences(case: dict[str, Any]) -> None:
    critics, observation, action, y = (
        case[name] for name in ("critics", "observation", "action", "y")
    )

    def loss(critic: Any) -> float:
        return float(np.mean((q(critic, observation, action) - y) ** 2))

    gradient = jax.jit(jax.grad(off_policy.value_loss, has_aux=True))(
        critics[:2], observation, action, y
    )[0]
    for found, critic in zip(gradient, critics[:2], strict=True):
        assert_close_trees(found, differences(loss, doubles(critic)), rtol=1e-3, atol=1e-4)


def test_deterministic_action_is_squashed(case: dict[str, Any]) -> None:
    found = off_policy.deterministic_action(case["policy"], case["observation"])
    assert_close(found, np.tanh(run(doubles(case["policy"]), case["observation"])), rtol=1e-4)
    far = off_policy.deterministic_action(case["policy"], 1e6 * case["observation"])
    assert np.max(np.abs(far)) <= 1.0


def test_policy_loss_is_minus_the_mean_q(case: dict[str, Any]) -> None:
    """And its gradient flows through the action."""
    critic, observation = case["critics"][0], case["observation"]
    plain, policy = doubles(critic), doubles(case["policy"])

    def loss(policy: Any) -> float:
        return -float(np.mean(q(plain, observation, np.tanh(run(policy, observation)))))

    found, gradient = jax.jit(jax.value_and_grad(off_policy.policy_loss))(
        case["policy"], critic, observation
    )
    assert_close(found, loss(policy), rtol=1e-4)
    assert_close_trees(gradient, differences(loss, policy), rtol=1e-3, atol=1e-4)
