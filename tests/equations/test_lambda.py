"""Trust-PCL's λ against direct solutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from disc.equations import path_consistency


def divergence(returns: Any, lam: float) -> float:
    """Σ q log(q / p), term by term."""
    weights = [math.exp(r / lam) for r in returns]
    result = 0.0
    for weight in weights:
        q, p = weight / sum(weights), 1.0 / len(weights)
        result += q * math.log(q / p)
    return result


@pytest.mark.parametrize("lam", [0.5, 1.0, 3.0, 100.0])
def test_implied_divergence_matches_the_kl(rng: np.random.Generator, lam: float) -> None:
    returns = np.float32(3.0 * rng.standard_normal(20))
    wanted = divergence(returns.tolist(), lam)
    assert path_consistency.implied_divergence(returns, lam) == pytest.approx(wanted, rel=1e-6)


def test_implied_divergence_falls_as_lambda_grows(rng: np.random.Generator) -> None:
    returns = np.float32(1000.0 * rng.standard_normal(20))
    found = [path_consistency.implied_divergence(returns, x) for x in np.geomspace(1e-3, 1e6, 100)]
    assert np.all(np.diff(found) <= 1e-12)
    assert np.sum(np.diff(found) < -1e-6) > 30
    assert found[0] == pytest.approx(math.log(20))
    assert found[-1] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(("best", "wanted"), [(1, math.log(4)), (2, math.log(2)), (4, 0.0)])
def test_small_lambda_weights_the_best_episodes_evenly(best: int, wanted: float) -> None:
    """All of q is on the best episodes, evenly; exp(R/λ) of these returns would overflow."""
    returns = np.float32([9e4] * best + [1e4] * (4 - best))
    for lam in (1e-12, 1e-3, 1.0):
        assert path_consistency.implied_divergence(returns, lam) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("gap", [0.1, 7.0, 500.0])
@pytest.mark.parametrize("start", [-2000.0, 0.0, 3000.0])
def test_lambda_of_two_returns_matches_hand_calculation(gap: float, start: float) -> None:
    """Where exp(gap / λ) = 3, q = (¼, ¾) and the KL is log 2 + ¼ log ¼ + ¾ log ¾."""
    kl = math.log(2) + 0.25 * math.log(0.25) + 0.75 * math.log(0.75)
    returns = np.array([start, start + gap])
    assert path_consistency.solve_lambda(returns, kl) == pytest.approx(gap / math.log(3), rel=1e-6)


@pytest.mark.parametrize("spread", [1.0, 50.0, 700.0])
@pytest.mark.parametrize("wanted_divergence", [0.05, 1.0, 2.5])
def test_lambda_matches_a_grid_search(
    rng: np.random.Generator, spread: float, wanted_divergence: float
) -> None:
    """The grid is λ/spread = exp(−8 … 6), fine enough to interpolate."""
    returns = np.float32(spread * rng.standard_normal(20))
    grid = spread * np.exp(np.linspace(-8.0, 6.0, 4001))
    scaled = (returns.astype(np.float64)[None] - np.max(returns)) / grid[:, None]
    q = np.exp(scaled)
    q /= np.sum(q, axis=1, keepdims=True)
    terms = np.where(q > 0.0, q * np.log(np.where(q > 0.0, 20.0 * q, 1.0)), 0.0)
    wanted = np.interp(-wanted_divergence, -np.sum(terms, axis=1), grid)
    assert wanted < 1000.0 or wanted_divergence < 0.1
    found = path_consistency.solve_lambda(returns, wanted_divergence)
    assert found == pytest.approx(min(wanted, 1000.0), rel=1e-4)


def test_lambda_scales_with_returns_and_ignores_their_offset() -> None:
    returns = np.array([1.0, 2.0, 5.0, 3.0])
    lam = path_consistency.solve_lambda(returns, 0.3)
    assert path_consistency.solve_lambda(8.0 * returns - 100.0, 0.3) == pytest.approx(8.0 * lam)


def test_lambda_of_equal_returns_is_near_zero() -> None:
    assert 0.0 <= path_consistency.solve_lambda(np.full(20, 7.0, np.float32), 0.5) < 1e-6


def test_lambda_is_near_zero_for_an_unreachable_divergence() -> None:
    """K episodes can't diverge by more than log K."""
    returns = np.arange(20, dtype=np.float32)
    assert 0.0 <= path_consistency.solve_lambda(returns, math.log(20) + 0.01) < 1e-6
    assert path_consistency.solve_lambda(returns, math.log(20) - 0.01) > 0.1


def test_lambda_stays_below_its_upper_bound() -> None:
    returns = np.float32([0.0, 1e6])
    assert path_consistency.solve_lambda(returns, 1e-3) == pytest.approx(1000.0)
    assert path_consistency.solve_lambda(returns, 1e-3, highest=50.0) == pytest.approx(50.0)
    assert path_consistency.solve_lambda(returns, 1e-3, highest=1e9) > 1e6
