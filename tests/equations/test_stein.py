"""Soft values against integrals, Stein variational gradients against loops and their target."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.equations import stein

soft_value = jax.jit(stein.soft_value, static_argnums=1)
stein_direction = jax.jit(stein.stein_direction)
bandwidth = jax.jit(stein.bandwidth)

LEAST = 1e-3


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


# The soft value


def hill(a: Any) -> Any:
    return 3.0 * np.sin(4.0 * a) - 2.0 * np.square(a) + 1.0


def simpson(values: Any, width: float) -> Any:
    """The integral over an odd number of equally spaced points."""
    return (
        width / 3.0 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))
    )


def test_soft_value_matches_the_log_of_an_integral() -> None:
    """Particles in the middle of equal cells give the midpoint rule, with error O(distance²)."""
    fine, width = np.linspace(-1.0, 1.0, 20_001, retstep=True)
    wanted = [math.log(simpson(np.exp(c * hill(fine)), width)) for c in (1.0, -2.0)]
    middles = (np.arange(4000) + 0.5) / 2000.0 - 1.0
    q = np.float32([1.0 * hill(middles), -2.0 * hill(middles)])
    assert_close(soft_value(jnp.asarray(q), 1), wanted, atol=1e-5)


def test_soft_value_of_uniform_particles_approximates_the_integral(
    rng: np.random.Generator,
) -> None:
    """Of exp Q with mean m and variance v, K particles give log m ± √(v/K)/m."""
    fine, width = np.linspace(-1.0, 1.0, 20_001, retstep=True)
    integral = simpson(np.exp(hill(fine)), width)
    variance = simpson(np.exp(2.0 * hill(fine)), width) / 2.0 - (integral / 2.0) ** 2
    count = 50_000
    q = hill(rng.uniform(-1.0, 1.0, (3, count)))
    error = np.asarray(soft_value(jnp.float32(q), 1)) - math.log(integral)
    assert np.all(np.abs(error) < 4.0 * math.sqrt(variance / count) / (integral / 2.0))


def test_soft_value_in_two_dimensions_matches_the_integral() -> None:
    """∫∫ exp(b₁a₁ + b₂a₂) = Π 2 sinh(b)/b."""
    middles = (np.arange(200) + 0.5) / 100.0 - 1.0
    first, second = np.meshgrid(middles, middles)
    q = 1.5 * first - 0.7 * second
    wanted = math.log(2.0 * math.sinh(1.5) / 1.5) + math.log(2.0 * math.sinh(0.7) / 0.7)
    assert_close(soft_value(jnp.float32(q.reshape(1, -1)), 2), [wanted], atol=5e-5)


@pytest.mark.parametrize("dimensions", [1, 3, 17])
@pytest.mark.parametrize("count", [1, 16])
def test_soft_value_of_a_constant_adds_the_log_volume(dimensions: int, count: int) -> None:
    """The cube [−1, 1]^D has the volume 2^D."""
    q = jnp.broadcast_to(jnp.float32([[-3.0], [0.0], [500.0]]), (3, count))
    volume = math.log(2.0**dimensions)
    assert_close(soft_value(q, dimensions), [-3.0 + volume, volume, 500.0 + volume])


def test_soft_value_matches_hand_calculation() -> None:
    """Q = log 1, log 3 in one dimension: the mean 2 times the length 2."""
    assert_close(soft_value(jnp.log(jnp.float32([[1.0, 3.0]])), 1), [math.log(4.0)])


def test_soft_value_of_large_q_stays_finite() -> None:
    q = jnp.float32([[1e4, 1e4 - 1.0], [-1e4, -1e4 + 1.0]])
    tail = math.log((1.0 + math.exp(-1.0)) / 2.0) + math.log(2.0)
    assert_close(soft_value(q, 1), [1e4 + tail, -1e4 + 1.0 + tail])


# The bandwidth


def median_rule(square: Any) -> Any:
    """The lower median, by sorting."""
    count = square[0].size
    return [
        max(float(np.sort(x.ravel())[(count - 1) // 2]) / math.log(square.shape[1]), LEAST)
        for x in square
    ]


@pytest.mark.parametrize("shape", [(2, 1), (2, 2), (3, 5), (8, 8), (16, 3)])
@pytest.mark.parametrize("ties", [False, True])
def test_bandwidth_is_the_lower_median(
    shape: tuple[int, int], ties: bool, rng: np.random.Generator
) -> None:
    square = rng.exponential(1.0, (20, *shape)).astype(np.float32)
    if ties:
        square = np.ceil(3.0 * square)
    assert_close(bandwidth(jnp.asarray(square)), median_rule(square))


@pytest.mark.parametrize(
    ("square", "median"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], 2.0),
        ([[4.0, 1.0], [3.0, 2.0]], 2.0),
        ([[5.0, 5.0], [1.0, 5.0]], 5.0),
        ([[1.0, 1.0], [5.0, 5.0]], 1.0),
        ([[7.0, 7.0], [7.0, 7.0]], 7.0),
        ([[9.0], [4.0]], 4.0),
        ([[9.0, 0.0, 4.0], [1.0, 16.0, 25.0]], 4.0),
    ],
)
def test_bandwidth_matches_hand_calculation(square: list[list[float]], median: float) -> None:
    """Two fixed particles: the lower median over log 2."""
    assert_close(bandwidth(jnp.float32([square])), [median / math.log(2.0)])


def test_bandwidth_of_three_particles_divides_by_log_three() -> None:
    assert_close(bandwidth(jnp.float32([[[2.0], [9.0], [5.0]]])), [5.0 / math.log(3.0)])


def test_bandwidth_has_a_floor() -> None:
    """It is reached for medians below 1e-3 · log 2."""
    edge = LEAST * math.log(2.0)
    medians = np.float32([0.0, 0.5 * edge, 2.0 * edge])
    square = np.broadcast_to(medians[:, None, None], (3, 2, 4))
    assert_close(bandwidth(jnp.asarray(square)), [LEAST, LEAST, 2.0 * LEAST], atol=1e-9)


# The direction


def kernel(fixed: Any, moved: Any, width: float) -> float:
    return math.exp(-sum((x - y) ** 2 for x, y in zip(fixed, moved, strict=True)) / width)


def slope(fixed: Any, moved: Any, width: float, d: int) -> float:
    """The kernel's derivative by a coordinate of the fixed particle, by central differences."""
    step = np.zeros(len(fixed))
    step[d] = 1e-5 * math.sqrt(width)
    rise = kernel(fixed + step, moved, width) - kernel(fixed - step, moved, width)
    return rise / (2.0 * step[d])


def looped(fixed: Any, moved: Any, score: Any) -> Any:
    """φ by its definition, in double precision."""
    found = np.zeros(moved.shape)
    for m in range(len(fixed)):
        distances = sorted(float(np.sum((x - y) ** 2)) for x in fixed[m] for y in moved[m])
        count = len(fixed[m])
        width = max(distances[(len(distances) - 1) // 2] / math.log(count), LEAST)
        for j, b in enumerate(moved[m]):
            for i, a in enumerate(fixed[m]):
                for d in range(len(b)):
                    pull = kernel(a, b, width) * score[m, i, d]
                    found[m, j, d] += (pull + slope(a, b, width, d)) / count
    return found


@pytest.mark.parametrize(("m", "f", "u", "d"), [(3, 2, 1, 1), (2, 8, 8, 3), (1, 5, 2, 4)])
@pytest.mark.parametrize("reach", [0.02, 1.0, 30.0])
def test_direction_matches_the_double_sum(
    m: int, f: int, u: int, d: int, reach: float, rng: np.random.Generator
) -> None:
    """A reach of 0.02 is below the floor of the bandwidth."""
    fixed, moved = (reach * rng.standard_normal((m, n, d)) for n in (f, u))
    score = rng.standard_normal((m, f, d)) / reach
    arrays = [np.float32(x) for x in (fixed, moved, score)]
    wanted = looped(*(x.astype(np.float64) for x in arrays))
    assert_close(stein_direction(*arrays), wanted, rtol=2e-4, atol=1e-5 / reach)


def test_direction_matches_hand_calculation() -> None:
    """Fixed at 0 and 2, moved at 1: h = 1/log 2, κ = ½; the repulsions cancel, half of 3 stays."""
    found = stein_direction(
        jnp.float32([[[0.0], [2.0]]]), jnp.float32([[[1.0]]]), jnp.float32([[[1.0], [5.0]]])
    )
    assert_close(found, [[[1.5]]])


def test_repulsion_matches_hand_calculation() -> None:
    """Fixed at 0 and at 0, moved at 1, no score: κ = ½ and −2 (0 − 1) log 2 · ½ = log 2."""
    found = stein_direction(jnp.zeros((1, 2, 1)), jnp.ones((1, 1, 1)), jnp.zeros((1, 2, 1)))
    assert_close(found, [[[math.log(2.0)]]])


def test_coinciding_particles_follow_the_mean_score(rng: np.random.Generator) -> None:
    """κ = 1 and no repulsion, as it has no direction."""
    place = np.broadcast_to(rng.standard_normal((2, 1, 3)), (2, 5, 3))
    score = rng.standard_normal((2, 5, 3))
    found = stein_direction(*map(jnp.float32, (place, place[:, :4], score)))
    wanted = np.broadcast_to(np.mean(score, axis=1, keepdims=True), (2, 4, 3))
    assert_close(found, wanted)


def test_particles_without_a_score_only_repel(rng: np.random.Generator) -> None:
    """With all fixed particles at 0, each moves straight outwards."""
    around = rng.uniform(0.0, 2.0 * math.pi, (1, 6))
    moved = np.stack([np.cos(around), np.sin(around)], axis=-1)
    found = np.asarray(
        stein_direction(jnp.zeros((1, 4, 2)), jnp.float32(moved), jnp.zeros((1, 4, 2)))
    )
    outwards = np.sum(found * moved, axis=-1, keepdims=True)
    assert np.all(outwards > 0.1)
    assert_close(found, outwards * moved)


def test_states_in_a_batch_are_independent(rng: np.random.Generator) -> None:
    """Including their bandwidths."""
    fixed, moved, score = np.float32(rng.standard_normal((3, 4, 5, 2)))
    fixed[1] *= 50.0
    together = stein_direction(fixed, moved, score)
    for m in range(4):
        alone = stein_direction(*(x[m : m + 1] for x in (fixed, moved, score)))
        assert_close(together[m : m + 1], alone)


def test_order_of_fixed_particles_does_not_matter(rng: np.random.Generator) -> None:
    fixed, moved, score = np.float32(rng.standard_normal((3, 2, 6, 2)))
    order = rng.permutation(6)
    shuffled = stein_direction(fixed[:, order], moved, score[:, order])
    assert_close(shuffled, stein_direction(fixed, moved, score), rtol=1e-4)


@pytest.mark.parametrize(("mean", "std"), [(3.0, 0.5), (-2.0, 2.0)])
def test_particles_converge_to_a_gaussian(
    mean: float, std: float, rng: np.random.Generator
) -> None:
    """From a cluster beside it, they reach its mean, width and quartiles."""
    count = 20

    @jax.jit
    def wander(x: jax.Array) -> jax.Array:
        def move(_: int, x: jax.Array) -> jax.Array:
            score = (mean - x) / std**2
            return x + 0.3 * std**2 * stein.stein_direction(x, x, score)

        return jax.lax.fori_loop(0, 600, move, x)

    start = mean + std + 0.1 * std * rng.standard_normal((1, count, 1))
    found = np.asarray(wander(jnp.float32(start)))[0, :, 0]
    assert abs(np.mean(found) - mean) < 0.02 * std
    assert 0.85 * std < np.std(found) < 1.1 * std
    for share, quantile in ((0.25, -0.6745), (0.75, 0.6745)):
        assert abs(np.quantile(found, share) - (mean + quantile * std)) < 0.15 * std
