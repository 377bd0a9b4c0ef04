"""ACKTR's value steps against K-FAC with explicit matrices, and its whole iteration."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import seeding
from disc.algos import acktr, ppo
from disc.learning import actor_critic, kfac, minibatch
from tests.support.acktr import CONFIG, STEPS, D, N, Plain, S, assert_close, column, sampled, value
from tests.support.compare import assert_equal_trees
from tests.support.plain import elu, elu_slope
from tests.support.rollouts import own_rollout, spec

# The value network


def noise() -> Any:
    return np.random.default_rng(3).standard_normal((STEPS, N)).astype(np.float32)


@pytest.mark.parametrize(("target", "bound"), [(1.0, False), (1e2, True)])
def test_value_steps_match_explicit_k_fac(target: float, bound: bool) -> None:
    """The scores are those of N(V, 1) at V + noise, independent of the targets."""
    rows = sampled(target=target)
    x, wanted = column(rows, "observation"), column(rows, "target")
    plain, losses, nus = Plain(value()), [], []
    for row in noise():
        error = plain.forward(x, elu)[0][:, 0] - wanted
        losses.append(np.mean(error**2) / 2.0)
        parts = plain.backward(x, error[:, None], elu, elu_slope)
        gradient = [*(a.T @ g / N for a, g in parts), np.zeros(0)]
        scores = plain.backward(x, row.astype(float)[:, None], elu, elu_slope)
        options = (CONFIG.value_damping, CONFIG.value_kl_clip, CONFIG.value_decay)
        nus.append(plain.step(gradient, scores, CONFIG.value_learning_rate, *options))
    learner, measured = acktr.value_steps(
        CONFIG, kfac.init(value(), value()), rows, jnp.asarray(noise())
    )
    plain.assert_is(learner.parameters, value())
    assert_close(measured["train/value_loss"], losses)
    assert_close(measured["train/value_nu"], nus)
    assert (min(nus) < 1.0) == bound
    for factors, (a, g) in zip(learner.moments.factors, plain.factors, strict=True):
        assert_close(factors.inputs, a, atol=1e-5)
        assert_close(factors.outputs, g, atol=1e-5)


def test_value_steps_lower_the_loss() -> None:
    rows, learner = sampled(), kfac.init(value(), value())
    learner, measured = acktr.value_steps(CONFIG, learner, rows, jnp.asarray(noise()))
    losses = np.asarray(measured["train/value_loss"])
    assert np.all(np.diff(losses) < 0.0)
    predicted = Plain(learner.parameters).forward(np.asarray(rows.observation, float), elu)[0]
    after = np.mean((predicted[:, 0] - np.asarray(rows.target)) ** 2) / 2.0
    assert after < losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("feature", [None, 0.0, 1.0])
@pytest.mark.parametrize("target", [0.0, 1e4])
def test_value_steps_stay_finite(feature: float | None, target: float) -> None:
    """With huge targets and with constant inputs."""
    rows = sampled(target=target)
    if feature is not None:
        rows = rows._replace(observation=jnp.full((N, S), jnp.float32(feature)))
    learner = kfac.init(value(), value())
    learner, measured = acktr.value_steps(CONFIG, learner, rows, jnp.asarray(noise()))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((learner, measured)))
    losses, nus = np.asarray(measured["train/value_loss"]), measured["train/value_nu"]
    assert losses[-1] < losses[0]
    assert np.all(nus < 0.1) if target else np.all(nus <= 1.0)


# The whole iteration


SPEC = spec(S, D)


def observed(state: Any) -> Any:
    """The state after a rollout of its own policy."""
    rollout = own_rollout(acktr.act(CONFIG, SPEC, state), SPEC, N, state.iteration)
    return acktr.observe(CONFIG, state, rollout)


def test_update_moves_both_networks_and_the_step_size() -> None:
    state = acktr.init(CONFIG, SPEC, 1, 0)
    assert state.step_size == CONFIG.step_size
    for iteration in range(1, 4):
        state, before = observed(state), state
        rows = minibatch.whole(
            actor_critic.read(
                CONFIG, state, lambda *arguments: ppo.estimate(*arguments, activation=jax.nn.elu)
            )
        )
        stream = seeding.generator(state.seed, seeding.MINIBATCHES, state.iteration)
        drawn = jnp.asarray(stream.standard_normal((STEPS, N), np.float32))
        wanted = (
            acktr.policy_step(CONFIG, state.policy, rows, state.step_size)[0],
            acktr.value_steps(CONFIG, state.value, rows, drawn)[0],
        )
        state, metrics = acktr.update(CONFIG, state, threads=1)
        assert_equal_trees((state.policy, state.value), wanted)
        assert state.iteration == state.policy.moments.taken == iteration
        assert state.value.moments.taken == STEPS * iteration
        assert metrics["train/step_size"] == before.step_size
        assert state.step_size == acktr.adapt(before.step_size, metrics["is/kl"], 0.003)
        predicted = Plain(before.value.parameters).forward(np.asarray(rows.observation), elu)[0]
        assert_close(rows.value, predicted[:, 0], atol=1e-5)
    assert state.step_size != CONFIG.step_size
