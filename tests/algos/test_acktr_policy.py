"""ACKTR's policy steps against K-FAC written out with explicit matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.algos import acktr
from disc.equations import distributions
from disc.learning import actor_critic, kfac
from disc.learning.types import Rows
from tests.support.acktr import CONFIG, N, Plain, S, assert_close, column, policy, sampled
from tests.support.compare import assert_equal_trees
from tests.support.plain import tanh_slope


def loss(plain: Plain, rows: Rows) -> Any:
    """−mean(Â log π), up to a constant."""
    mean, _ = plain.forward(column(rows, "observation"), np.tanh)
    z = (column(rows, "action") - mean) / np.exp(plain.free)
    return -np.mean(column(rows, "advantage") * np.sum(-0.5 * z**2 - plain.free, axis=1))


def differentiate(plain: Plain, rows: Rows) -> tuple[Any, Any]:
    """The gradient of the loss by layer, then by log σ, and the scores."""
    x, advantage = column(rows, "observation"), column(rows, "advantage")[:, None]
    z = column(rows, "action") - plain.forward(x, np.tanh)[0]
    precision = np.exp(-2.0 * plain.free)
    scores = plain.backward(x, z * precision, np.tanh, tanh_slope)
    gradient = [-a.T @ (advantage * g) / N for a, g in scores]
    return [*gradient, -np.mean(advantage * (z**2 * precision - 1.0), axis=0)], scores


def test_reference_gradient_matches_finite_differences() -> None:
    """Central differences in every parameter."""
    rows, plain, shift = sampled(), Plain(policy().mean, policy().log_std), 1e-6
    gradient, _ = differentiate(plain, rows)
    for parameters, slopes in zip([*plain.layers, plain.free], gradient, strict=True):
        for index in np.ndindex(parameters.shape):
            parameters[index] += shift
            above = loss(plain, rows)
            parameters[index] -= 2.0 * shift
            assert_close(slopes[index], (above - loss(plain, rows)) / (2.0 * shift))
            parameters[index] += shift


@pytest.mark.parametrize(("scale", "bound"), [(0.3, False), (1e3, True)])
def test_policy_steps_match_explicit_k_fac(scale: float, bound: bool) -> None:
    """Four steps: two with the factors of the first batch, two with those of three batches."""
    rows, rate = sampled(scale), 0.2
    learner = kfac.init(policy(), policy().mean)
    plain = Plain(policy().mean, policy().log_std, fisher=2.0)
    measure = jax.jit(actor_critic.measure_step)
    for _ in range(4):
        gradient, scores = differentiate(plain, rows)
        nu = plain.step(gradient, scores, rate, CONFIG.damping, CONFIG.kl_clip, CONFIG.decay)
        learner, measured = acktr.policy_step(CONFIG, learner, rows, rate)
        assert_close(measured["train/nu"], nu)
        assert (nu < 1.0) == bound
        plain.assert_is(learner.parameters.mean, policy().mean)
        assert_close(learner.parameters.log_std, plain.free, atol=1e-5)
        for name, x in measure(learner.parameters, rows).items():
            assert_close(measured[name], x, atol=1e-4 * scale)


def test_fisher_matrix_of_log_std_is_two() -> None:
    """E[(∂ log π / ∂ log σ)²] by Gauss–Hermite quadrature; no cross terms with the mean."""
    z, weight = np.polynomial.hermite_e.hermegauss(12)
    weight = weight / np.sum(weight)
    mean, log_std = jnp.float32([0.7, -0.2]), jnp.float32([-0.4, 0.3])
    score = jax.jit(jax.grad(distributions.log_density, argnums=(1, 2)))
    fisher = np.zeros((4, 4))
    for i, j in np.ndindex(12, 12):
        action = mean + jnp.exp(log_std) * jnp.float32([z[i], z[j]])
        s = np.concatenate(score(action, mean, log_std)).astype(float)
        fisher += weight[i] * weight[j] * np.outer(s, s)
    wanted = np.diag([*np.exp(-2.0 * np.float64(log_std)), 2.0, 2.0])
    assert_close(fisher, wanted, atol=1e-4)


def predicted_kl(bases: Any, gradient: Any, damping: float, rate: float) -> Any:
    """Σ rate² U·∇ of a network, U by explicit matrices from the factors' decomposition."""
    total = 0.0
    for basis, layer in zip(bases, gradient, strict=True):
        q, e, r, f = (np.asarray(part, float) for part in basis)
        fisher = np.kron(q @ np.diag(e) @ q.T, r @ np.diag(f) @ r.T)
        nabla = layer.ravel()
        total += nabla @ np.linalg.solve(fisher + damping * np.eye(nabla.size), nabla)
    return rate**2 * total


def test_huge_advantages_do_not_exceed_the_kl_limit() -> None:
    rows, rate = sampled(scale=1e6), 0.5
    learner, x = kfac.init(policy(), policy().mean), column(rows, "observation")
    for _ in range(5):
        before = Plain(learner.parameters.mean, learner.parameters.log_std)
        learner, measured = acktr.policy_step(CONFIG, learner, rows, rate)
        gradient, _ = differentiate(before, rows)
        whole = predicted_kl(learner.moments.bases, gradient[:-1], CONFIG.damping, rate)
        whole += rate**2 * np.sum(gradient[-1] ** 2) / (2.0 + CONFIG.damping)
        assert whole > 1e3 * CONFIG.kl_clip
        assert_close(float(measured["train/nu"]) ** 2 * whole, CONFIG.kl_clip, rtol=0.01)

        after = Plain(learner.parameters.mean, learner.parameters.log_std)
        distance = (before.forward(x, np.tanh)[0] - after.forward(x, np.tanh)[0]) ** 2
        ratio = (np.exp(2.0 * before.free) + distance) / np.exp(2.0 * after.free)
        kl = np.sum(after.free - before.free + (ratio - 1.0) / 2.0, axis=1)
        assert np.mean(kl) < CONFIG.kl_clip


@pytest.mark.parametrize("feature", [0.0, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_policy_steps_stay_finite(feature: float, scale: float) -> None:
    """With zero advantages and with constant inputs."""
    rows = sampled(scale)._replace(observation=jnp.full((N, S), jnp.float32(feature)))
    learner = kfac.init(policy(), policy().mean)
    for _ in range(5):
        learner, measured = acktr.policy_step(CONFIG, learner, rows, 0.1)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((learner, measured)))
    if scale == 0.0:
        assert_equal_trees(learner.parameters, policy())


# The step size


@pytest.mark.parametrize(
    ("step_size", "kl", "wanted"),
    [
        (0.3, 0.004, 0.3),
        (0.3, np.nextafter(0.004, 1.0), 0.3 / 1.5),
        (0.3, 1e9, 0.3 / 1.5),
        (0.3, 0.001, 0.3),
        (0.3, np.nextafter(0.001, 0.0), 0.3 * 1.5),
        (0.3, 0.0, 0.3 * 1.5),
        (0.9, 0.0, 1.0),
        (1.0, 0.0, 1.0),
        (1e-8, 1.0, 1e-8),
        (1.2e-8, 1.0, 1e-8),
        (1e-8, 0.0, 1.5e-8),
        (1.0, 1.0, 1.0 / 1.5),
        (0.3, np.nan, 0.3),
    ],
)
def test_step_size_adapts_at_its_thresholds_and_bounds(
    step_size: float, kl: float, wanted: float
) -> None:
    assert acktr.adapt(step_size, kl, target=0.002) == pytest.approx(wanted, rel=1e-12)
