"""TRPO's natural step against explicit matrices, and its updates."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from disc import seeding
from disc.algos import ppo, trpo
from disc.learning import actor_critic, minibatch, networks, normalize
from disc.learning.distribution import GaussianPolicy
from disc.learning.types import Rows
from tests.support.compare import bits
from tests.support.networks import perceptron
from tests.support.rollouts import own_rollout, spec

S, H, D, N = 3, 4, 2, 64
P = (S + 1) * H + (H + 1) * D + D
STRIDE = 5
SHIFT = 1e-5
CONFIG = trpo.Config(
    horizon=N,
    widths=(H,),
    cg_iterations=2 * P,  # enough to converge
    fisher_stride=STRIDE,
    value_epochs=20,
    value_minibatch=16,
    value_learning_rate=0.01,
)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


# References in NumPy and double precision, as functions of the vector θ


def policy() -> GaussianPolicy:
    mean = perceptron(np.random.default_rng(1), S, H, D, gain=0.6)
    return GaussianPolicy(mean, jnp.float32([-0.4, 0.3]))


def vector(policy: GaussianPolicy) -> Any:
    return np.asarray(ravel_pytree(policy)[0], float)


def outputs(theta: Any, x: Any) -> tuple[Any, Any]:
    """All u(s), and log σ."""
    w, b, v, c, log_std = np.split(theta, np.cumsum([S * H, H, H * D, D]))
    return np.tanh(x @ w.reshape(S, H) + b) @ v.reshape(H, D) + c, log_std


def mean_kl(mean: Any, log_std: Any, theta: Any, x: Any) -> Any:
    """The mean over s of KL(N(mean, σ²) ‖ π_θ)."""
    moved, moved_log_std = outputs(theta, x)
    distance = np.exp(2.0 * log_std) + (moved - mean) ** 2
    kl = moved_log_std - log_std + distance / (2.0 * np.exp(2.0 * moved_log_std)) - 0.5
    return np.mean(np.sum(kl, axis=1))


def judge(theta: Any, rows: Rows) -> tuple[Any, Any]:
    """The surrogate mean(ρÂ), and the KL."""
    a, m, s, advantage = (
        np.asarray(column, float)
        for column in (rows.action, rows.mean, rows.log_std, rows.advantage)
    )
    mean, log_std = outputs(theta, np.asarray(rows.observation, float))
    new = np.exp(-(((a - mean) / np.exp(log_std)) ** 2) / 2.0) / np.exp(log_std)
    old = np.exp(-(((a - m) / np.exp(s)) ** 2) / 2.0) / np.exp(s)
    surrogate = np.mean(np.prod(new / old, axis=1) * advantage)
    return surrogate, mean_kl(m, s, theta, np.asarray(rows.observation, float))


def differences(function: Any, theta: Any) -> Any:
    """Central differences in each parameter, (P, ...)."""
    steps = SHIFT * np.eye(P)
    return np.stack([(function(theta + s) - function(theta - s)) / (2.0 * SHIFT) for s in steps])


def fisher_matrix(theta: Any, x: Any) -> Any:
    """The mean of Jᵀ Σ⁻¹ J, where J is the Jacobian of u(s), and 2 for every log σ."""
    jacobian, precision = differences(lambda t: outputs(t, x)[0], theta), np.exp(-2 * theta[-D:])
    fisher = np.zeros((P, P))
    for m in range(len(x)):
        for d in range(D):
            fisher += precision[d] * np.outer(jacobian[:, m, d], jacobian[:, m, d]) / len(x)
    return fisher + np.diag([0.0] * (P - D) + [2.0] * D)


def sampled(seed: int, drift: float = 0.0) -> Rows:
    """Rows of `policy()`, or of a policy whose mean is shifted by `drift`."""
    rng = np.random.default_rng(seed)
    x, noise = rng.standard_normal((N, S)), rng.standard_normal((N, D))
    mean, log_std = outputs(vector(policy()), x)
    columns = (
        x,
        mean + drift + np.exp(log_std) * noise,
        mean + drift,
        np.tile(log_std, (N, 1)),
        rng.standard_normal(N),
        rng.standard_normal(N),
        rng.standard_normal(N),
        np.ones(N),
        np.ones(N),
    )
    return Rows(*map(jnp.float32, columns))


# The Fisher matrix


@jax.jit
def fisher_by_products(theta: Any, x: Any) -> Any:
    """F v for every unit vector v."""
    product = partial(trpo.fisher_product, ravel_pytree(policy())[1], theta, x)
    return jax.vmap(product)(jnp.eye(P))


def test_fisher_product_matches_the_explicit_matrix(rng: np.random.Generator) -> None:
    theta, x = vector(policy()), rng.standard_normal((12, S))
    found, wanted = fisher_by_products(*map(jnp.float32, (theta, x))), fisher_matrix(theta, x)
    assert_close(found, wanted, atol=1e-5)
    assert_close(np.diag(found)[-D:], [2.0, 2.0])
    assert np.linalg.norm(wanted[:-D, :-D]) > 1.0


def test_fisher_product_matches_the_curvature_of_the_kl(rng: np.random.Generator) -> None:
    """KL(θ ‖ θ + εv) + KL(θ ‖ θ − εv) = ε² vᵀFv + O(ε⁴)."""
    theta, x, epsilon = vector(policy()), rng.standard_normal((12, S)), 1e-3
    fisher = np.asarray(fisher_by_products(*map(jnp.float32, (theta, x))), float)
    for v in rng.standard_normal((5, P)):
        there = (mean_kl(*outputs(theta, x), theta + s * epsilon * v, x) for s in (1.0, -1.0))
        assert_close(v @ fisher @ v, sum(there) / epsilon**2, rtol=1e-3)


# The natural step


def full_step(rows: Rows, damping: float, max_kl: float) -> Any:
    """From (F + damping) x = ∇, solved by elimination; F is of every fifth row."""
    theta, x = vector(policy()), np.asarray(rows.observation, float)
    damped = fisher_matrix(theta, x[::STRIDE]) + damping * np.eye(P)
    direction = np.linalg.solve(damped, differences(lambda t: judge(t, rows)[0], theta))
    return direction * np.sqrt(2.0 * max_kl / (direction @ damped @ direction))


@pytest.mark.parametrize("max_kl", [0.01, 3.0])
def test_natural_step_is_the_longest_acceptable_fraction(max_kl: float) -> None:
    """The larger limit lies beyond the region where the KL is quadratic."""
    theta, fractions = vector(policy()), []
    for seed in range(6):
        rows = sampled(seed)
        found, measured = trpo.natural_step(replace(CONFIG, max_kl=max_kl), policy(), rows)
        full, start = full_step(rows, CONFIG.cg_damping, max_kl), judge(theta, rows)[0]
        for halvings in range(10):
            wanted = theta + 0.5**halvings * full
            surrogate, kl = judge(wanted, rows)
            if surrogate >= start and kl <= 1.5 * max_kl:
                break
        else:
            pytest.fail("nothing to find")
        fractions.append(0.5**halvings)
        assert measured["train/step_fraction"] == fractions[-1]
        step = vector(found) - theta
        assert_close(step, wanted - theta, atol=2e-3 * np.max(np.abs(step)))
        surrogate, kl = judge(vector(found), rows)
        assert surrogate >= start - 1e-6
        assert kl <= 1.5 * max_kl * (1.0 + 1e-5)
        assert_close(measured["train/objective"], surrogate, rtol=1e-3)
        assert_close(measured["train/improvement"], surrogate - start, rtol=1e-3)
        assert_close(measured["is/kl"], kl, rtol=1e-3)
    assert min(fractions) < max(fractions) == 1.0


def test_full_step_has_the_maximum_kl() -> None:
    """½ sᵀFs = max_kl with negligible damping, however accurate the solution is."""
    rows, limit = sampled(0), 1e-5
    tiny = replace(CONFIG, cg_damping=1e-7, fisher_stride=1, max_kl=limit)
    found, measured = trpo.natural_step(tiny, policy(), rows)
    assert measured["train/step_fraction"] == 1.0
    theta = vector(policy())
    step, fisher = vector(found) - theta, fisher_matrix(theta, np.asarray(rows.observation, float))
    assert_close(0.5 * step @ fisher @ step, limit, rtol=2e-3)
    assert_close(judge(vector(found), rows)[1], limit, rtol=0.05)


SPOILED = {
    "no advantage": np.zeros(N),
    "all NaN": np.full(N, np.nan),
    "one NaN": np.where(np.arange(N) == 7, np.nan, 1.0),
    "one infinity": np.where(np.arange(N) == 7, np.inf, 1.0),
    "KL above the limit": None,
}


@pytest.mark.parametrize("name", SPOILED)
def test_rejected_step_leaves_the_policy_unchanged(name: str) -> None:
    """Bit for bit: −0 stays −0."""
    advantage, before = SPOILED[name], policy()
    before = before._replace(log_std=jnp.float32([-0.0, 0.3]))
    if advantage is None:
        rows = sampled(0, drift=1.0)
    else:
        rows = sampled(0)._replace(advantage=jnp.float32(advantage))
    after, measured = trpo.natural_step(CONFIG, before, rows)
    assert bits(after) == bits(before)
    assert measured["train/step_fraction"] == 0.0


# Updates


def test_step_metrics_match_their_definitions() -> None:
    rows, moved = sampled(0, drift=0.2), vector(policy())
    surrogate, kl = judge(moved, rows)
    found = jax.jit(actor_critic.measure_step)(policy(), rows)
    assert_close(found["train/objective"], surrogate, rtol=1e-3)
    assert_close(found["is/kl"], kl, rtol=1e-3)
    ratios, (mean, log_std) = np.ones((N, D)), outputs(moved, np.asarray(rows.observation, float))
    for m, d in np.ndindex(N, D):
        a, old, s = float(rows.action[m, d]), float(rows.mean[m, d]), np.exp(rows.log_std[m, d])
        new = np.exp(-(((a - mean[m, d]) / np.exp(log_std[d])) ** 2) / 2) / np.exp(log_std[d])
        ratios[m, d] = new / (np.exp(-(((a - old) / s) ** 2) / 2) / s)
    rho = ratios.prod(axis=1)
    assert_close(found["is/j_is"], np.mean(np.log(rho) ** 2) / 2, rtol=1e-3)
    assert_close(found["is/rho_last"], 1.0 + np.mean(np.abs(rho - 1.0)), rtol=1e-3)
    assert_close(found["is/rho_d_last"], 1.0 + np.mean(np.abs(ratios - 1.0)), rtol=1e-3)


def test_value_loss_is_half_the_mean_squared_error() -> None:
    """Without clipping, although the old values are far away; the last rows are padding."""
    rows = sampled(0)._replace(value=jnp.full(N, 50.0), mask=jnp.float32(np.arange(N) < 40))
    value = networks.init_mlp(np.random.default_rng(2), (S, H, 1), head_gain=1.0)
    (w, b), (v, c) = ((np.asarray(x.weight, float), np.asarray(x.bias, float)) for x in value)
    predicted = (np.tanh(np.asarray(rows.observation, float) @ w + b) @ v + c)[:, 0]
    squares = (predicted - np.asarray(rows.target)) ** 2 / 2.0
    parts = trpo.value_loss(CONFIG, value, rows, ())
    assert_close(parts.numerator / parts.denominator + parts.penalty, np.mean(squares[:40]))
    assert_close(parts.measured["value_loss"], squares, atol=1e-5)


SPEC = spec(S, D)


def observed(state: Any) -> Any:
    """The state after a rollout of its own policy, and that rollout."""
    rollout = own_rollout(trpo.act(CONFIG, SPEC, state), SPEC, N, seed=0, center=3.0, spread=2.0)
    return trpo.observe(CONFIG, state, rollout), rollout


def test_whole_batch_contains_every_row_once() -> None:
    state, rollout = observed(trpo.init(CONFIG, SPEC, 1, 0))
    table = actor_critic.read(CONFIG, state, ppo.estimate)
    rows, scale = minibatch.whole(table), normalize.scale(state.normalizer)
    x = (rollout.observation - scale.mean) * scale.inverse_std
    assert_close(rows.observation, np.clip(x, -10.0, 10.0), atol=1e-5)
    np.testing.assert_array_equal(rows.action, rollout.action)
    np.testing.assert_array_equal(rows.mean, rollout.mean)
    np.testing.assert_array_equal(rows.log_std, np.tile(rollout.log_std, (N, 1)))
    advantage = np.asarray(table.estimate.advantage[0], float)
    assert_close(rows.advantage, (advantage - advantage.mean()) / advantage.std(), atol=1e-5)
    np.testing.assert_array_equal(rows.target, table.estimate.target[0])
    np.testing.assert_array_equal(rows.value, table.estimate.value[0])
    np.testing.assert_array_equal(rows.mask, np.ones(N))


def test_update_is_a_natural_step_and_value_epochs() -> None:
    state, _ = observed(replace(trpo.init(CONFIG, SPEC, 1, 0), iteration=3))
    table = actor_critic.read(CONFIG, state, ppo.estimate)
    rows = minibatch.whole(table)
    wanted, measured = trpo.natural_step(CONFIG, state.policy.parameters, rows)
    stream = seeding.generator(state.seed, seeding.MINIBATCHES, state.iteration)
    drawn = minibatch.draw(stream, np.int32([0]), np.ones(1, bool), N, CONFIG.value_epochs, N // 16)
    value, _ = minibatch.descend(
        trpo.value_loss, CONFIG, 16, state.value, table, drawn, CONFIG.value_learning_rate, ()
    )
    after, metrics = trpo.update(CONFIG, state, threads=1)
    assert bits((after.policy.parameters, after.value)) == bits((wanted, value))
    assert bits(wanted) != bits(state.policy.parameters)
    assert after.policy.moments == ()
    assert after.iteration == state.iteration + 1
    for name, x in measured.items():
        assert metrics[name] == pytest.approx(float(x))

    def loss(value: networks.MLP) -> float:
        error = networks.forward(value, rows.observation)[:, 0] - rows.target
        return float(jnp.mean(error**2)) / 2.0

    assert after.value.moments.count == CONFIG.value_epochs * N // 16
    assert loss(after.value.parameters) < 0.7 * loss(state.value.parameters)
    assert loss(after.value.parameters) < metrics["train/value_loss"]
