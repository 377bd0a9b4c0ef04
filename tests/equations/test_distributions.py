"""The diagonal Gaussian, squashed or not, against formulas and integrals; KL: `test_clipping`."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.equations import distributions, importance

log_density = jax.jit(distributions.log_density)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-5)


def test_log_density_matches_the_product_of_densities(rng: np.random.Generator) -> None:
    x, mean = rng.standard_normal((2, 4, 3))
    log_std = rng.uniform(-1.0, 1.0, (1, 3))
    wanted = []
    for row in range(4):
        density = 1.0
        for d in range(3):
            std = math.exp(log_std[0, d])
            bell = math.exp(-((x[row, d] - mean[row, d]) ** 2) / (2.0 * std**2))
            density *= bell / (std * math.sqrt(2.0 * math.pi))
        wanted.append(math.log(density))
    assert_close(log_density(*map(jnp.float32, (x, mean, log_std))), wanted)


def test_log_density_matches_hand_calculation() -> None:
    """One σ = 2 away from the mean: −½ − log 2 − ½ log 2π."""
    found = log_density(jnp.float32([3.0]), jnp.float32([1.0]), jnp.log(jnp.full(1, 2.0)))
    assert_close(found, -0.5 - 0.6931472 - 0.9189385)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-2.0, 0.7)])
def test_density_integrates_to_one(mean: float, log_std: float) -> None:
    x, width = np.linspace(-15.0, 15.0, 4001, retstep=True)
    columns = (x[:, None], np.full((4001, 1), mean), np.full((1, 1), log_std))
    density = np.exp(log_density(*map(jnp.float32, columns)))
    assert_close(np.sum(density) * width, 1.0)
    assert_close(np.sum(density * x) * width, mean)


def test_two_dimensional_density_integrates_to_one() -> None:
    axis, width = np.linspace(-8.0, 8.0, 161, retstep=True)
    x = np.stack(np.meshgrid(axis, axis), axis=-1)
    mean, log_std = np.broadcast_to([0.5, -1.0], x.shape), np.reshape([-0.5, 0.3], (1, 1, 2))
    found = log_density(*map(jnp.float32, (x, mean, log_std)))
    assert found.shape == (161, 161)
    assert_close(np.sum(np.exp(found)) * width**2, 1.0)


def test_entropy_is_minus_the_mean_log_density() -> None:
    log_std = np.float32([[-1.0, 0.5], [0.2, 0.0]])
    x, width = np.linspace(-15.0, 15.0, 4001, retstep=True)
    wanted = np.zeros(2)
    for row, d in np.ndindex(2, 2):
        columns = (x[:, None], np.zeros((4001, 1)), log_std[row, d].reshape(1, 1))
        logarithm = np.asarray(log_density(*map(jnp.float32, columns)))
        wanted[row] -= np.sum(np.exp(logarithm) * logarithm) * width
    assert_close(distributions.entropy(jnp.asarray(log_std)), wanted)


def test_ratio_of_densities_is_the_importance_weight(rng: np.random.Generator) -> None:
    action, mean, old_mean = jnp.float32(rng.standard_normal((3, 5, 3)))
    log_std, old_log_std = jnp.float32(rng.uniform(-0.5, 0.5, (2, 1, 3)))
    new = log_density(action, mean, log_std)
    old = log_density(action, old_mean, old_log_std)
    ratio = importance.log_ratio(action, mean, log_std, old_mean, old_log_std)
    assert_close(new - old, importance.joint(ratio), rtol=1e-4)


# Squashed by tanh

squashed_log_density = jax.jit(distributions.squashed_log_density)
squashed_gradient = jax.jit(
    jax.grad(lambda *x: jnp.sum(distributions.squashed_log_density(*x)), argnums=(0, 1, 2))
)


def squashed(u: Any, mean: Any, log_std: Any) -> Any:
    """Σ_d log of the Gaussian density at u over the tanh's slope 1/cosh² u, in double precision."""
    std = np.exp(np.float64(log_std))
    bell = np.exp(-0.5 * ((u - mean) / std) ** 2) / (std * math.sqrt(2.0 * math.pi))
    return np.sum(np.log(bell * np.cosh(u) ** 2), axis=-1)


@pytest.mark.parametrize(
    ("mean", "std"), [(0.0, 1.0), (0.0, 0.3), (0.8, 0.5), (-1.5, 0.2), (0.3, 0.8), (2.0, 0.4)]
)
def test_squashed_density_integrates_to_one(mean: float, std: float) -> None:
    """By the midpoint rule over ±1; the mean action equals that of many samples."""
    cells = 100_000
    action = (2.0 * np.arange(cells) + 1.0) / cells - 1.0
    columns = (np.arctanh(action)[:, None], np.full((cells, 1), mean), [[math.log(std)]])
    density = np.exp(np.float64(squashed_log_density(*map(jnp.float32, columns))))
    assert_close(np.sum(density) * 2.0 / cells, 1.0, rtol=2e-4)
    samples = np.tanh(mean + std * np.random.default_rng(0).standard_normal(200_000))
    center = np.sum(density * action) * 2.0 / cells
    np.testing.assert_allclose(center, np.mean(samples), atol=5.0 / math.sqrt(200_000))


def test_squashed_density_matches_a_change_of_variables(rng: np.random.Generator) -> None:
    """With one σ for all rows of a batch or one per row."""
    u, mean = rng.uniform(-3.0, 3.0, (2, 6, 4))
    for rows in (1, 6):
        log_std = rng.uniform(-1.0, 1.0, (rows, 4))
        found = squashed_log_density(*map(jnp.float32, (u, mean, log_std)))
        assert found.shape == (6,)
        assert_close(found, squashed(u, mean, log_std), rtol=2e-5)


def test_squashed_density_matches_hand_calculation() -> None:
    """At u = 0 the tanh has slope 1, and nothing changes: −½ log 2π in each of two dimensions."""
    zero = jnp.zeros((1, 2))
    assert_close(squashed_log_density(zero, zero, zero), [-2 * 0.9189385])


@pytest.mark.parametrize("u", [20.0, -20.0, 50.0, -50.0, 1000.0, -1000.0])
def test_squashed_density_stays_finite_where_tanh_saturates(u: float) -> None:
    """log(1 − tanh² u) is log 4 − 2|u| there; the action no longer determines u."""
    assert abs(np.tanh(np.float32(u))) == 1.0
    columns = (jnp.full((1, 1), u), jnp.full((1, 1), u - 1.0), jnp.zeros((1, 1)))
    found = squashed_log_density(*columns)
    assert_close(found, [-0.5 - 0.9189385 - (math.log(4.0) - 2.0 * abs(u))])
    gradient = squashed_gradient(*columns)
    assert_close(np.ravel(np.asarray(gradient)), [-1.0 + 2.0 * np.sign(u), 1.0, 0.0])


def test_squashed_density_gradient_matches_finite_differences(rng: np.random.Generator) -> None:
    arrays = [rng.uniform(-2.0, 2.0, (3, 2)), rng.uniform(-1.0, 1.0, (3, 2)), [[-0.5, 0.3]] * 3]
    single = [jnp.float32(x) for x in arrays]
    found = np.asarray(squashed_gradient(*single))
    double = [np.float64(x) for x in single]
    for which, row, d in np.ndindex(3, 3, 2):
        ends = []
        for step in (1e-5, -1e-5):
            moved = [x.copy() for x in double]
            moved[which][row, d] += step
            ends.append(float(np.sum(squashed(*moved))))
        wanted = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(found[which, row, d], wanted, rtol=1e-4, atol=1e-4)
