"""`python -m benchmarks.growth`: exponents, and what is measured."""

from __future__ import annotations

import pytest

from benchmarks import growth
from benchmarks.growth import FACTORS


def test_exponent_of_a_power_law_is_exact() -> None:
    sizes = [10, 30, 100, 1_000]
    for power in (0.0, 1.0, 1.5):
        found = growth.exponent(sizes, [3.0 * x**power for x in sizes])
        assert found == pytest.approx(power, abs=1e-12)


def test_upper_half_shows_growth_that_fixed_costs_hide() -> None:
    sizes = [1, 4, 16, 64, 256]
    costs = [100.0 + 0.01 * x**2 for x in sizes]
    whole = growth.exponent(sizes, costs)
    assert whole < 0.4 < 0.6 < growth.exponent(growth.upper(sizes), growth.upper(costs))


def test_upper_half_has_at_least_two_points() -> None:
    assert [len(growth.upper(range(n))) for n in (2, 3, 4, 5, 6, 7)] == [2, 2, 2, 3, 3, 4]


def test_verdict_allows_for_noise() -> None:
    assert growth.verdict(1.1, 1.0) == "fine"
    assert growth.verdict(1.2, 1.0) == "grows faster"
    assert growth.verdict(float("nan"), 1.0) == "unknown"


@pytest.mark.parametrize("factor", FACTORS, ids=lambda x: x.name)
def test_each_point_of_a_factor_is_a_different_measurement(factor: growth.Factor) -> None:
    tasks = [repr(growth.task_of(factor, value)) for value in factor.values]
    assert len(set(tasks)) == len(tasks)
    quick = growth.quicker(factor)
    assert quick.values == factor.values[: len(quick.values)]
    assert 3 <= len(quick.values) < len(factor.values)


def test_row_has_ends_exponents_and_verdict() -> None:
    factor = growth.Factor("network width", (32, 64, 128), "iteration", 2.0)
    points = {
        str(x): {"least_seconds": {"iteration": 1e-3 * x**2}, "peak_megabytes": 1_234.0}
        for x in factor.values
    }
    assert growth.row(factor, points) == [
        "network width", "32 … 128", "1.02 … 16.4", "2.00", "2.00", "≤ 2", "fine", "1,234",
    ]  # fmt: skip
