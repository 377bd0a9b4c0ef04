"""The diagonal Gaussian against its formula and against integrals; `test_surrogates` has its KL."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import distributions, importance

log_density = jax.jit(distributions.log_density)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-5)


def test_log_density_is_a_product_of_bells(rng: np.random.Generator) -> None:
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


def test_log_density_by_hand() -> None:
    """One σ = 2 away from the mean: −½ − log 2 − ½ log 2π."""
    found = log_density(jnp.float32([3.0]), jnp.float32([1.0]), jnp.log(jnp.full(1, 2.0)))
    assert_close(found, -0.5 - 0.6931472 - 0.9189385)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-2.0, 0.7)])
def test_the_density_integrates_to_one(mean: float, log_std: float) -> None:
    x, width = np.linspace(-15.0, 15.0, 4001, retstep=True)
    columns = (x[:, None], np.full((4001, 1), mean), np.full((1, 1), log_std))
    density = np.exp(log_density(*map(jnp.float32, columns)))
    assert_close(np.sum(density) * width, 1.0)
    assert_close(np.sum(density * x) * width, mean)


def test_the_density_of_two_dimensions_integrates_to_one() -> None:
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


def test_a_ratio_of_densities_is_the_importance_weight(rng: np.random.Generator) -> None:
    action, mean, old_mean = jnp.float32(rng.standard_normal((3, 5, 3)))
    log_std, old_log_std = jnp.float32(rng.uniform(-0.5, 0.5, (2, 1, 3)))
    new = log_density(action, mean, log_std)
    old = log_density(action, old_mean, old_log_std)
    ratio = importance.log_ratio(action, mean, log_std, old_mean, old_log_std)
    assert_close(new - old, importance.joint(ratio), rtol=1e-4)
