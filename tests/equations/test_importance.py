"""Importance weights against explicit densities, and the equations with extreme weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from disc.equations import advantages, clipping, distributions, importance

EPSILON = 0.4


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-5)


def test_log_ratio_is_a_difference_of_log_densities(rng: np.random.Generator) -> None:
    action, mean, old_mean = rng.standard_normal((3, 20, 3))
    log_std, old_log_std = rng.uniform(-1.0, 1.0, (2, 1, 3))

    def density(m: Any, s: Any) -> Any:
        variance = np.exp(2.0 * s)
        return np.exp(-((action - m) ** 2) / (2.0 * variance)) / np.sqrt(2.0 * np.pi * variance)

    arguments = map(jnp.float32, (action, mean, log_std, old_mean, old_log_std))
    wanted = np.log(density(mean, log_std)) - np.log(density(old_mean, old_log_std))
    assert_close(importance.log_ratio(*arguments), wanted, rtol=1e-4)


def test_log_ratio_of_the_same_policy_is_zero(rng: np.random.Generator) -> None:
    action, mean, log_std = jnp.float32(rng.standard_normal((3, 20, 3)))
    assert not np.any(importance.log_ratio(action, mean, log_std, mean, log_std))


def test_joint_weight_is_the_product_over_dimensions(rng: np.random.Generator) -> None:
    rho_d = rng.uniform(0.5, 2.0, (20, 4))
    log_rho = importance.joint(jnp.log(jnp.float32(rho_d)))
    assert_close(importance.ratio(log_rho), np.prod(rho_d, axis=1))


@pytest.mark.parametrize("shape", [(20,), (20, 3)])
def test_deviation_is_the_mean_distance_from_one(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> None:
    rho = rng.uniform(0.5, 2.0, shape)
    total = 0.0
    for weight in rho.ravel():
        total += abs(weight - 1.0)
    assert_close(importance.deviation(jnp.log(jnp.float32(rho))), total / rho.size)


def included(deviation: list[float], age: list[int], epsilon_b: float) -> list[bool]:
    return importance.include(jnp.float32(deviation), jnp.int32(age), epsilon_b).tolist()


def test_batches_below_the_threshold_are_included() -> None:
    """A deviation equal to ε_b is not below it."""
    assert included([0.05, 0.2, 0.1, 0.0], [3, 2, 1, 0], 0.1) == [True, False, False, True]


def test_newest_batch_is_always_included() -> None:
    assert included([9.0, 9.0], [1, 0], 0.1) == [False, True]


def test_empty_slots_are_never_included() -> None:
    assert included([0.0, 0.0, 0.0], [0, -1, -1], 0.1) == [True, False, False]


def test_epsilon_b_of_zero_includes_the_newest_only() -> None:
    assert included([0.0, 0.0, 0.0], [1, 0, 2], 0.0) == [False, True, False]


def test_effective_samples_match_their_definition(rng: np.random.Generator) -> None:
    log_rho, mask = rng.standard_normal((4, 10)), rng.random((4, 10)) < 0.7
    rho = np.exp(log_rho[mask])
    wanted = rho.sum() ** 2 / (rho**2).sum() / mask.sum()
    assert_close(importance.effective_samples(jnp.float32(log_rho), jnp.asarray(mask)), wanted)


@pytest.mark.parametrize("log_rho", [-90.0, 0.0, 90.0])
def test_equal_weights_give_full_effective_samples(log_rho: float) -> None:
    mask = jnp.arange(8) < 5
    assert_close(importance.effective_samples(jnp.full(8, log_rho), mask), 1.0)


# Finite inputs give finite outputs, for shapes and magnitudes far beyond those in training.


def floats(magnitude: float) -> Any:
    return st.floats(-magnitude, magnitude, width=32)


@st.composite
def log_ratios(draw: Any) -> Any:
    shape = draw(st.sampled_from([(1, 1), (6, 2), (3, 17), (4, 64)]))
    return draw(arrays(np.float32, shape, elements=floats(50.0)))


def everywhere(value: float) -> Any:
    return np.full((4, 64), value, np.float32)


@st.composite
def log_ratios_and_advantages(draw: Any) -> Any:
    log_ratio = draw(log_ratios())
    return log_ratio, draw(arrays(np.float32, len(log_ratio), elements=floats(1e4)))


SIGNS = np.float32([-1e4, 1e4, -1.0, 0.0])


def assert_finite(*trees: Any) -> None:
    for leaf in jax.tree.leaves(trees):
        assert np.all(np.isfinite(leaf))


@jax.jit
def _weights(log_ratio: Any) -> Any:
    log_rho, mask = importance.joint(log_ratio), jnp.ones(len(log_ratio), bool)
    gradients = [jax.grad(importance.deviation)(x) for x in (log_ratio, log_rho)]
    deviations = [importance.deviation(x) for x in (log_ratio, log_rho)]
    effective = importance.effective_samples(log_rho, mask)
    return importance.ratio(log_ratio), importance.ratio(log_rho), deviations, effective, gradients


@given(log_ratios())
@example(everywhere(50.0))
@example(everywhere(-50.0))
def test_weights_are_finite(log_ratio: Any) -> None:
    assert_finite(_weights(log_ratio))


@jax.jit
def _objectives(log_ratio: Any, advantage: Any) -> Any:
    mask = jnp.ones(len(log_ratio))

    def objectives(x: Any) -> Any:
        clips = (clipping.joint_clip, clipping.dimension_clip)
        sums = [jnp.sum(clip(x, advantage, EPSILON) * advantage) for clip in clips]
        return jnp.stack([*sums, clipping.is_penalty(x, mask)])

    return objectives(log_ratio), jax.jacrev(objectives)(log_ratio)


@given(log_ratios_and_advantages())
@example((everywhere(50.0), SIGNS))
@example((everywhere(-50.0), SIGNS))
def test_objectives_and_their_gradients_are_finite(sample: Any) -> None:
    assert_finite(_objectives(*sample))


@jax.jit
def _advantages(log_ratio: Any, reward: Any) -> Any:
    discount, value = jnp.full_like(reward, 0.99), 100.0 * reward[::-1]
    rho = importance.ratio(importance.joint(log_ratio))
    arguments = (reward, discount, 0.95 * discount, value, value)
    gradient = jax.grad(lambda v: jnp.sum(advantages.gae_v(*arguments[:3], v, v, rho)[0]))(value)
    return advantages.gae(*arguments), advantages.gae_v(*arguments, rho), gradient


@given(log_ratios_and_advantages())
@example((everywhere(50.0), SIGNS))
@example((everywhere(-50.0), SIGNS))
def test_advantages_are_finite(sample: Any) -> None:
    assert_finite(_advantages(*sample))


@jax.jit
def _standardized(log_ratio: Any, advantage: Any) -> Any:
    weight = jnp.minimum(1.0, importance.ratio(importance.joint(log_ratio)))
    return advantages.standardize(advantage, weight, jnp.ones_like(weight))


@given(log_ratios_and_advantages())
@example((everywhere(50.0), SIGNS))
@example((everywhere(-50.0), SIGNS))
def test_standardized_advantages_are_finite(sample: Any) -> None:
    assert_finite(_standardized(*sample))


@st.composite
def gaussians(draw: Any) -> Any:
    shape = draw(st.sampled_from([(1, 1), (4, 17)]))
    action, mean, old_mean = (draw(arrays(np.float32, shape, elements=floats(1e3))) for _ in "ama")
    scales = arrays(np.float32, (1, shape[1]), elements=floats(5.0))
    return action, mean, draw(scales), old_mean, draw(scales)


@jax.jit
def _gaussian(action: Any, mean: Any, log_std: Any, old_mean: Any, old_log_std: Any) -> Any:
    old, mask = (old_mean, old_log_std), jnp.ones(len(action))

    def log_ratio(m: Any, s: Any) -> Any:
        return importance.log_ratio(action, m, s, *old)

    def total(m: Any, s: Any) -> Any:
        kl = distributions.gaussian_kl(*old, m, s)
        return jnp.sum(log_ratio(m, s)) + clipping.kl_penalty(kl, mask)

    return log_ratio(mean, log_std), jax.value_and_grad(total, argnums=(0, 1))(mean, log_std)


@given(gaussians())
def test_gaussian_ratios_and_their_gradients_are_finite(sample: Any) -> None:
    assert_finite(_gaussian(*sample))
