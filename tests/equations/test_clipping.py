"""The clipped objectives and penalties against their definitions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.equations import clipping, distributions, importance

EPSILON = 0.4
LOW, HIGH = np.log(1.0 - EPSILON), np.log(1.0 + EPSILON)
STEP = 1e-2


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-6)


def samples(dimensions: int, rows: int = 60) -> tuple[Any, Any]:
    """Ratios on all sides of the clip but not at its kinks, and advantages of both signs."""
    rng = np.random.default_rng(dimensions)
    log_ratio = rng.uniform(-1.2, 1.0, (rows, dimensions))
    for kink in (LOW, HIGH):
        log_ratio = np.where(np.abs(log_ratio - kink) < 3 * STEP, 0.0, log_ratio)
    log_ratio[:6] = HIGH + 0.2
    log_ratio[6:12] = LOW - 0.2
    advantage = rng.standard_normal(rows)
    advantage[:12] = np.where(np.arange(12) % 2, 1.5, -1.5)
    return jnp.float32(log_ratio), jnp.float32(advantage)


def differences(function: Any, log_ratio: Any) -> Any:
    """Central differences of a row's value in each of its dimensions, (M, D)."""
    steps = STEP * jnp.eye(log_ratio.shape[1])
    columns = [function(log_ratio + s[None]) - function(log_ratio - s[None]) for s in steps]
    return np.stack(columns, axis=1) / (2.0 * STEP)


@pytest.mark.parametrize("dimensions", [1, 3])
def test_joint_clip_matches_ppo(dimensions: int) -> None:
    log_ratio, advantage = samples(dimensions)
    rho, a = np.prod(np.exp(np.asarray(log_ratio)), axis=1), np.asarray(advantage)
    wanted = np.minimum(rho * a, np.clip(rho, 1.0 - EPSILON, 1.0 + EPSILON) * a)
    assert_close(clipping.joint_clip(log_ratio, advantage, EPSILON) * advantage, wanted)


def test_dimension_clip_of_one_dimension_equals_ppo() -> None:
    arguments = (*samples(1), EPSILON)
    assert_close(clipping.dimension_clip(*arguments), clipping.joint_clip(*arguments))


@pytest.mark.parametrize("dimensions", [2, 3, 8])
def test_dimension_clip_is_the_product_of_clipped_ratios(dimensions: int) -> None:
    log_ratio, advantage = samples(dimensions)
    wanted = []
    for row, a in zip(np.exp(log_ratio).tolist(), advantage.tolist(), strict=True):
        weight = 1.0
        for rho in row:
            weight *= min(rho, 1.0 + EPSILON) if a > 0 else max(rho, 1.0 - EPSILON)
        wanted.append(weight)
    assert_close(clipping.dimension_clip(log_ratio, advantage, EPSILON), wanted)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_objective_has_the_sign_of_the_advantage(dimensions: int) -> None:
    """Eq. 2 taken literally multiplies by κ once per dimension: an even D flips Â < 0."""
    log_ratio, advantage = samples(dimensions)
    weight = np.asarray(clipping.dimension_clip(log_ratio, advantage, EPSILON))
    assert np.all(weight > 0.0)

    rho, kappa = np.exp(log_ratio), np.sign(advantage)
    clipped = np.clip(rho, 1.0 - EPSILON, 1.0 + EPSILON)
    factors = np.minimum(kappa[:, None] * rho, kappa[:, None] * clipped)
    literal = np.prod(factors, axis=1) * kappa * advantage
    flipped = (advantage < 0.0) & (dimensions % 2 == 0)
    assert_close(weight * advantage, np.where(flipped, -literal, literal))


@pytest.mark.parametrize("dimensions", [1, 3])
def test_dimension_clip_stops_gradients_of_clipped_dimensions_only(dimensions: int) -> None:
    log_ratio, advantage = samples(dimensions)

    def weight(x: Any) -> Any:
        return clipping.dimension_clip(x, advantage, EPSILON)

    slope = differences(weight, log_ratio)
    constant = np.asarray(clipping.clipped(log_ratio, advantage[:, None], EPSILON))
    assert 0 < np.sum(constant) < constant.size
    np.testing.assert_array_equal(slope == 0.0, constant)

    gradient = np.asarray(jax.grad(lambda x: jnp.sum(weight(x)))(log_ratio))
    assert_close(gradient, slope, rtol=1e-3)
    vanished = ~np.any(gradient, axis=1)
    assert np.any(vanished)
    np.testing.assert_array_equal(vanished, np.all(constant, axis=1))


def test_joint_clip_stops_the_gradient_of_the_whole_sample() -> None:
    log_ratio, advantage = samples(3)

    def weight(x: Any) -> Any:
        return clipping.joint_clip(x, advantage, EPSILON)

    constant = clipping.clipped(importance.joint(log_ratio), advantage, EPSILON)
    lost = np.tile(np.asarray(constant)[:, None], 3)
    np.testing.assert_array_equal(differences(weight, log_ratio) == 0.0, lost)


def test_dimension_clip_keeps_gradients_where_joint_clip_has_none() -> None:
    """ρ = 2·1 is above 1.4, but its second dimension has not moved."""
    log_ratio, advantage = jnp.float32([[np.log(2.0), 0.0]]), jnp.ones(1)
    gradients = [
        jax.grad(lambda x, clip=clip: jnp.sum(clip(x, advantage, EPSILON)))(log_ratio)
        for clip in (clipping.joint_clip, clipping.dimension_clip)
    ]
    assert_close(gradients[0], [[0.0, 0.0]])
    assert_close(gradients[1], [[0.0, 1.4]])


def test_is_penalty_counts_the_newest_batch_only() -> None:
    """½ · mean(0.3², 0.2²) = 0.0325; the third row is from an old batch."""
    log_ratio = jnp.float32([[0.1, 0.2], [0.3, -0.1], [5.0, 5.0]])
    assert_close(clipping.is_penalty(log_ratio, jnp.float32([1, 1, 0])), 0.0325)
    assert clipping.is_penalty(log_ratio, jnp.zeros(3)) == 0.0


def test_kl_penalty_matches_numerical_integration(rng: np.random.Generator) -> None:
    mean, old_mean = rng.standard_normal((2, 3, 2))
    log_std, old_log_std = rng.uniform(-0.5, 0.5, (2, 1, 2))
    x, width = np.linspace(-15.0, 15.0, 20_001, retstep=True)

    def log_density(m: float, s: float) -> Any:
        return -0.5 * ((x - m) / np.exp(s)) ** 2 - s - 0.5 * np.log(2.0 * np.pi)

    wanted = np.zeros(3)
    for row, d in np.ndindex(3, 2):
        old = log_density(old_mean[row, d], old_log_std[0, d])
        new = log_density(mean[row, d], log_std[0, d])
        wanted[row] += np.sum(np.exp(old) * (old - new)) * width
    kl = distributions.gaussian_kl(*map(jnp.float32, (old_mean, old_log_std, mean, log_std)))
    penalty = clipping.kl_penalty(kl, jnp.float32([1, 0, 1]))
    assert_close(penalty, np.mean(wanted[[0, 2]]), rtol=1e-4)


def test_kl_penalty_of_the_same_policy_is_zero(rng: np.random.Generator) -> None:
    mean, log_std = jnp.float32(rng.standard_normal((2, 5, 2)))
    kl = distributions.gaussian_kl(mean, log_std, mean, log_std)
    assert_close(clipping.kl_penalty(kl, jnp.ones(5)), 0.0)


def test_clipped_value_loss_matches_its_definition(rng: np.random.Generator) -> None:
    value, target, old = rng.standard_normal((3, 50))
    held = np.clip(value, old - EPSILON, old + EPSILON)
    wanted = np.maximum((value - target) ** 2, (held - target) ** 2) / 2
    found = clipping.clipped_value_loss(*map(jnp.asarray, (value, target, old)), EPSILON)
    assert_close(found, wanted)


def test_value_loss_without_clipping_is_half_the_squared_error(rng: np.random.Generator) -> None:
    value, target, old = rng.standard_normal((3, 50))
    found = clipping.clipped_value_loss(*map(jnp.asarray, (value, target, old)), None)
    assert_close(found, (value - target) ** 2 / 2)


@pytest.mark.parametrize(
    ("alpha", "penalty", "wanted"),
    [
        (1.0, 2.0, 1.0),
        (1.0, 3.0, 1.0),
        (1.0, np.nextafter(3.0, 4.0), 2.0),
        (1.0, 2.0 / 1.5, 1.0),
        (1.0, np.nextafter(2.0 / 1.5, 0.0), 0.5),
        (64.0, 100.0, 64.0),
        (2.0**-10, 0.0, 2.0**-10),
    ],
)
def test_alpha_adapts_at_its_thresholds_and_bounds(
    alpha: float, penalty: float, wanted: float
) -> None:
    assert clipping.adapt(alpha, penalty, target=2.0) == wanted


def settled(adapt: Callable[[float, float, float], float], c: float) -> list[float]:
    """J over the last iterations if the step is the minimum of −gᵀΔ + ½ α ΔᵀFΔ, J = c/α²."""
    alpha, found = 1.0, []
    for _ in range(80):
        found.append(c / alpha**2)
        alpha = adapt(alpha, found[-1], 1e-3)
    return found[-8:]


@pytest.mark.parametrize("c", [1e-6, 2.3e-3, 1.7])
def test_smooth_rule_settles_at_the_target(c: float) -> None:
    np.testing.assert_allclose(settled(clipping.adapt_smoothly, c), 1e-3, rtol=1e-6)


def test_doubling_rule_may_never_settle() -> None:
    found = settled(clipping.adapt, 1.6e-3)
    assert max(found) > 1.5e-3
    assert min(found) < 1e-3 / 1.5


def test_smooth_rule_approaches_the_target_on_a_quadratic(rng: np.random.Generator) -> None:
    """With exact minima, J comes nearer to J_targ at each iteration, whatever g and F are."""
    root, g = rng.standard_normal((4, 4)), rng.standard_normal(4)
    fisher = root @ root.T + np.eye(4)

    def distance(alpha: float) -> float:
        step = np.linalg.solve(alpha * fisher, g)
        return 0.5 * step @ fisher @ step

    target = 0.3 * distance(1.0)
    alphas = [1.0]
    for _ in range(20):
        alphas.append(clipping.adapt_smoothly(alphas[-1], distance(alphas[-1]), target))
    found = [distance(alpha) / target for alpha in alphas]
    assert found[-1] == pytest.approx(1.0, abs=1e-3)
    assert all(1.0 < after < before for before, after in pairwise(found))
    # each step removes the same share of the error of log J: 1 − 2 · 0.2
    np.testing.assert_allclose(np.log(found[1:]) / np.log(found[:-1]), 0.6, rtol=1e-6)


@pytest.mark.parametrize(
    ("alpha", "penalty", "target", "wanted"),
    [
        (1.0, 1e6, 1.0, 2.0),
        (1.0, 0.0, 1.0, 0.5),
        (2.0**10, 4.0, 1.0, 2.0**10),
        (2.0**-10, 0.0, 1.0, 2.0**-10),
        (1.0, 1.0, 0.0, 2.0),
        (1.0, 0.0, 0.0, 2.0),
    ],
)
def test_smooth_rule_is_bounded(alpha: float, penalty: float, target: float, wanted: float) -> None:
    assert clipping.adapt_smoothly(alpha, penalty, target) == wanted


@pytest.mark.parametrize(("alpha", "wanted"), [(0.001, 1.0), (1.0, 1.0), (4.0, 0.5), (100.0, 0.1)])
def test_policy_learns_more_slowly_under_a_large_penalty(alpha: float, wanted: float) -> None:
    assert clipping.damped_rate(alpha) == pytest.approx(wanted)
