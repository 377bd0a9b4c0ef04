"""Statistics over seeds and tasks against loops, hand calculations and closed forms."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from disc.study import statistics as st
from disc.types import DiscError

NAN = math.nan
RUNS = np.array([[1.0, 10.0], [2.0, 20.0], [6.0, 60.0]])  # three runs of two tasks


def assert_close(found: Any, wanted: Any, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def curve(*points: tuple[float, float]) -> Any:
    return np.array([step for step, _ in points]), np.array([value for _, value in points])


def evenly(values: Any) -> Any:
    return 4_000 * np.arange(1, len(values) + 1), np.array(values, float)


def before(steps: Any, values: Any, point: float) -> float:
    """The last value at or before a point, by a loop."""
    found = NAN
    for step, value in zip(steps, values, strict=True):
        if step <= point:
            found = value
    return found


def test_resample_takes_the_last_value_before_each_point(rng: np.random.Generator) -> None:
    found = st.resample(*curve((3, 1.0), (5, 2.0)), np.array([2, 3, 4, 5, 50]))
    assert_close(found, [NAN, 1.0, 1.0, 2.0, 2.0])
    assert np.isnan(st.resample(np.array([]), np.array([]), np.arange(2))).all()
    steps = np.sort(rng.integers(0, 60, 30))  # some twice: the later evaluation counts
    values, grid = rng.normal(size=30), rng.integers(-5, 70, 50)
    assert_close(st.resample(steps, values, grid), [before(steps, values, g) for g in grid])


def test_max_average_return_matches_hand_calculation() -> None:
    """On the grid 10, 20, 30, 40 (the second seed stops at 44): (9, 1), (2, 4), (8, 4), (8, 0)."""
    first = curve((4, 9.0), (15, 2.0), (30, 8.0), (50, 90.0), (60, 90.0))
    second = curve((10, 1.0), (11, 4.0), (39, 0.0), (44, 99.0))
    assert st.max_average_return([first, second], 10, 1) == (6.0, 2.0, 30)
    assert st.max_average_return([first, second], 10, 3) == (4.0, 4.0, 40)
    assert st.max_average_return([first], 10, 1) == (90.0, 0.0, 50)


def test_max_average_return_matches_loops(rng: np.random.Generator) -> None:
    """By the protocol: five seeds, every 2,048 steps, stopped at different steps."""
    curves = []
    for seed, length in enumerate((300, 290, 310, 250, 305)):
        steps = 2_048 * np.arange(1, length + 1) + seed
        curves.append((steps, rng.normal(steps / 1e5, 1.0)))
    means, spreads, grid = [], [], list(range(4_000, int(curves[3][0][-1]) + 1, 4_000))
    for point in grid:
        here = [before(*each, point) for each in curves]
        means.append(sum(here) / 5)
        spreads.append(math.sqrt(sum((x - means[-1]) ** 2 for x in here) / 5))
    best = max(range(20, len(grid)), key=lambda i: means[i])
    assert_close(st.max_average_return(curves), (means[best], spreads[best], grid[best]))


def test_first_twenty_points_are_skipped_unless_a_run_is_short() -> None:
    values = [0.0] * 19 + [50.0, 3.0, 7.0, 7.0]
    assert st.max_average_return([evenly(values)]) == (7.0, 0.0, 88_000)  # the first of equals
    assert st.max_average_return([evenly(values[:21])]) == (3.0, 0.0, 84_000)
    for count, skipped in ((1, 0), (4, 0), (5, 1), (9, 1), (10, 2), (20, 4)):  # a fifth if short
        falling = [evenly(np.arange(100.0, 100.0 - count, -1.0))] * 3
        assert st.max_average_return(falling) == (100.0 - skipped, 0.0, 4_000 * (skipped + 1))
    # A run shorter than the grid counts at its end.
    curves = [curve((512, 5.0), (1024, 1.0), (2048, 0.0)), curve((512, 5.0), (1024, 3.0))]
    assert st.max_average_return(curves) == (2.0, 1.0, 1024)
    late = curve((9_000, 4.0), (10_000, 2.0))  # the grid's 4,000 and 8,000 are before it began
    assert st.max_average_return([late]) == (2.0, 0.0, 10_000)


def test_points_without_evaluation_or_with_nan_are_skipped() -> None:
    early = evenly([90.0, 80.0, 1.0, 5.0, 3.0])
    late = curve((10_000, 2.0), (20_000, 2.0))
    assert st.max_average_return([early, late], skip=0) == (3.5, 1.5, 16_000)
    broken = evenly([1.0, 1.0, 1.0, NAN, math.inf])
    assert st.max_average_return([early, broken], skip=2) == (1.0, 0.0, 12_000)
    with pytest.raises(DiscError, match="finite"):
        st.max_average_return([early, evenly([NAN] * 5)])


@pytest.mark.parametrize("function", [st.final, st.max_average_return, st.across, st.areas])
def test_runs_without_evaluations_raise(function: Any) -> None:
    for curves in ([], [curve()], [evenly([1.0]), curve()]):
        with pytest.raises(DiscError, match="has no evaluation"):
            function(curves)
    if function is not st.final:
        with pytest.raises(DiscError, match="ends at 10, another begins at 20"):
            function([curve((10, 1.0)), curve((20, 1.0))])
    with pytest.raises(DiscError, match="without evaluations"):
        st.area(*curve())


@pytest.mark.parametrize("window", [1, 3, 50])
def test_trailing_mean_matches_a_loop(window: int, rng: np.random.Generator) -> None:
    values = rng.normal(size=(2, 20))
    values[1, 4] = NAN
    found = st.trailing_mean(values, window)
    for row in range(2):
        for k in range(20):
            some = [values[row, j] for j in range(20) if k - window < j <= k]
            assert_close(found[row, k], sum(some) / len(some))
    assert np.isnan(found[1]).sum() == min(window, 16)  # NaN leaves with the window
    assert st.trailing_mean(np.array([]), window).shape == (0,)


def test_across_matches_hand_calculation() -> None:
    """From 10, where the second begins, to 40, where it ends."""
    first = curve((5, 9.0), (20, 1.0), (30, 3.0), (60, 7.0))
    second = curve((10, 5.0), (30, 5.0), (40, 1.0))
    steps, mean, spread = st.across([first, second])
    assert_close(steps, [10, 20, 30, 40])
    assert_close(mean, [7.0, 3.0, 4.0, 2.0])
    assert_close(spread, [2.0, 2.0, 1.0, 1.0])
    _, mean, spread = st.across([first, second], window=2)  # 9 5 2 3 and 5 5 5 3
    assert_close(mean, [7.0, 5.0, 3.5, 3.0])
    assert_close(spread, [2.0, 0.0, 1.5, 0.0])
    values = [3.0, NAN, 5.0, 9.0]
    steps, mean, spread = st.across([evenly(values)] * 3)  # equal curves; NaN stays in place
    assert_close(mean, values)
    assert_close(spread, [0.0, NAN, 0.0, 0.0])
    assert_close(st.across([evenly(values)], window=2)[1], [3.0, NAN, NAN, 7.0])


def test_final_values_and_areas_match_hand_calculation() -> None:
    curves = [evenly(range(20)), evenly([4.0, 8.0]), evenly([NAN, *range(10)]), evenly([NAN])]
    assert_close(st.final(curves), [14.5, 6.0, 4.5, NAN])
    assert_close(st.final(curves[:2], last=1), [19.0, 8.0])
    assert st.area(*curve((10, 2.0), (20, 4.0), (50, 0.0))) == 90 / 40  # 30 and 60
    assert st.area(*curve((7, 3.0))) == 3.0
    fine = np.linspace(1.0, 4.0, 3001)
    assert_close(st.area(fine, fine**2), 7.0, rtol=1e-6)  # (4³ − 1³)/3 over 3
    # From 10 to 20: a line cut at both ends, two trapezoids, and a constant.
    line, bent = curve((0, 0.0), (40, 8.0)), curve((10, 1.0), (16, 3.0), (20, 1.0))
    flat = curve((5, 0.0), (8, 6.0), (12, 6.0), (100, 6.0))
    assert_close(st.areas([line, bent, flat]), [3.0, 2.0, 6.0])
    assert_close(st.areas([line, curve((10, 5.0))]), [2.0, 5.0])  # an empty span


@pytest.mark.parametrize("runs", range(1, 7))
def test_interquartile_mean_drops_both_ends(runs: int, rng: np.random.Generator) -> None:
    scores = rng.normal(size=(runs, 3))
    left = scores.ravel().tolist()
    for _ in range(int(0.25 * 3 * runs)):
        left.remove(max(left))
        left.remove(min(left))
    assert_close(st.interquartile_mean(scores), sum(left) / len(left))
    assert_close(st.interquartile_mean([scores[:, 0], scores[:, 1:].ravel()]), np.mean(left))


def test_rliable_summaries_match_hand_calculation() -> None:
    """Tasks' means 3 and 30; of 1 2 6 10 20 60 the middle four. Then different numbers of runs."""
    assert st.mean(RUNS) == st.median(RUNS) == 16.5
    assert st.interquartile_mean(RUNS) == 9.5
    assert_close(st.performance_profile(RUNS, np.array([0, 1, 6, 60])), [1, 5 / 6, 1 / 2, 0])
    assert_close(st.probability_of_improvement(RUNS, RUNS[1:]), 2 / 6)  # 0 0, ½ 0, 1 ½
    assert st.interquartile_mean(np.array([7.0])) == st.median(np.array([7.0])) == 7.0
    ragged = [np.array([1.0, 3.0]), np.array([10.0]), np.array([0, 0, 9])]
    assert_close(st.mean(ragged), 5.0)
    assert st.median(ragged) == 3.0
    assert st.interquartile_mean(ragged) == 3.25  # 0 1 3 9 of 0 0 1 3 9 10
    assert_close(st.performance_profile(ragged, np.array([0.0, 3.0])), [7 / 9, 4 / 9])
    assert st.mean([RUNS[:, 0], RUNS[:2, 1]]) == 9.0  # a list holds tasks, not runs


@pytest.mark.parametrize("ragged", [False, True])
def test_bootstrap_resamples_each_task_independently(ragged: bool) -> None:
    scores: Any = [np.arange(4.0), 10.0 + np.arange(4.0 + ragged)]
    seen: list[Any] = []
    st.interval(scores if ragged else np.stack(scores, 1), lambda x: seen.append(x) or 0.0)
    assert ragged or seen[0].shape == (4, 2)
    drawn = [np.array([x[k] if ragged else x[:, k] for x in seen]) for k in range(2)]
    for found, task in zip(drawn, scores, strict=True):
        assert found.shape == (2_000, len(task))
        share = [np.mean(found == value) for value in task]
        assert_close(share, 1 / len(task), atol=0.02)  # and nothing from the other task
    assert abs(np.corrcoef(drawn[0][:, 0], drawn[1][:, 0])[0, 1]) < 0.1


def test_interval_of_two_values_is_exact() -> None:
    """Their mean is 0, ½, 1 with probabilities ¼, ½, ¼; so are the shares above ½ and won.

    For two tasks, 0, ¼, … have probabilities of 1, 4, 6, 4, 1 in 16; drawn jointly, 0 would
    have 4.
    """
    one, half = np.array([0.0, 1.0]), np.array([0.5])
    for level, ends in ((0.4, (0.5, 0.5)), (0.6, (0.0, 1.0))):
        assert st.interval(one, np.mean, level) == ends
        assert st.improvement_interval([one], [half], level) == ends
        assert st.profile_band(one, half, level) == ends
    two = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert st.interval(two, st.mean, 0.7) == (0.25, 0.75)
    assert st.improvement_interval(two, np.array([[0.5, 0.5]]), 0.7) == (0.25, 0.75)
    assert_close(st.profile_band(two, np.array([0.5, -1.0]), 0.7), [[0.25, 1.0], [0.75, 1.0]])
    apart = np.array([[0.0, 1.0]] * 5)  # constant strata
    assert st.interval(apart, np.mean) == (0.5, 0.5)


def test_interval_of_a_mean_matches_the_normal_interval(rng: np.random.Generator) -> None:
    """Of M tasks: ± 1.96 √(Σ s²_m/N_m) / M."""
    tasks = [rng.normal(0.0, 1.0, 400), rng.exponential(2.0, 900), rng.uniform(0.0, 9.0, 250)]
    wide = NormalDist().inv_cdf(0.975) * math.sqrt(sum(x.var() / len(x) for x in tasks)) / 3
    low, high = st.interval(tasks, st.mean)
    assert_close([low, high], [st.mean(tasks) - wide, st.mean(tasks) + wide], atol=0.15 * wide)


def test_interval_coverage_is_near_its_level(rng: np.random.Generator) -> None:
    """The percentile interval of 20 runs is narrower than Student's by about a twentieth."""
    hits = 0
    for seed in range(200):
        low, high = st.interval(rng.normal(5.0, 2.0, (20, 2)), np.mean, 0.9, 300, seed)
        hits += low <= 5.0 <= high
    assert 0.81 <= hits / 200 <= 0.95


def test_bootstrap_depends_on_its_seed(rng: np.random.Generator) -> None:
    x, y, tau = rng.normal(size=(5, 8)), rng.normal(size=(7, 8)), np.linspace(-1.0, 1.0, 5)
    for function, given in (
        (st.interval, (x, st.interquartile_mean)),
        (st.improvement_interval, (x, y)),
        (st.profile_band, (x, tau)),
    ):
        once, twice = function(*given, seed=3), function(*given, seed=3)
        assert np.array_equal(once, twice)
        assert not np.array_equal(once, function(*given, seed=4))
        inner = function(*given, level=0.5, seed=3)
        assert np.all(np.less(once[0], inner[0]) & np.less(inner[1], once[1]))


def test_probability_of_improvement_matches_loops(rng: np.random.Generator) -> None:
    """With many ties, and different numbers of runs."""
    x = [rng.integers(0, 4, n) for n in (3, 5, 1)]
    y = [rng.integers(0, 4, n) for n in (4, 2, 6)]
    shares = []
    for one, other in zip(x, y, strict=True):
        won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in one for b in other)
        shares.append(won / (len(one) * len(other)))
    assert_close(st.probability_of_improvement(x, y), sum(shares) / 3)
    assert_close(st.probability_of_improvement(y, x), 1.0 - sum(shares) / 3)
    assert st.probability_of_improvement(x, x) == 0.5
    assert st.improvement_interval(RUNS + 100.0, RUNS) == (1.0, 1.0)
    assert st.improvement_interval(np.ones((5, 3)), np.ones((4, 3))) == (0.5, 0.5)


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
def test_probability_of_improvement_matches_shifted_normals(
    shift: float, rng: np.random.Generator
) -> None:
    """P(X > Y) is Φ(δ/√2), and without a shift has the variance (1/N + 1/K)/12."""
    x, y = rng.normal(shift, 1.0, 400), rng.normal(0.0, 1.0, 300)
    wanted = NormalDist().cdf(shift / math.sqrt(2.0))
    wide = 1.96 * math.sqrt((1 / 400 + 1 / 300) / 12)
    found, (low, high) = st.probability_of_improvement(x, y), st.improvement_interval(x, y)
    assert abs(found - wanted) < 1.5 * wide
    assert low < found < high
    assert shift or abs((high - low) / 2 - wide) < 0.1 * wide


def test_performance_profile_matches_loops(rng: np.random.Generator) -> None:
    scores, tau = rng.integers(0, 9, (5, 4)).astype(float), np.arange(-1.0, 10.0)
    wanted = [sum(scores[n, m] > t for n in range(5) for m in range(4)) / 20 for t in tau]
    found = st.performance_profile(scores, tau)
    assert_close(found, wanted)
    low, high = st.profile_band(scores, tau)
    assert np.all((low <= found) & (found <= high))
    assert low[0] == high[0] == 1.0
    assert low[-1] == high[-1] == 0.0
    # Of ten runs, four above: the ends are quantiles of the binomial distribution.
    chances = [math.comb(10, i) * 0.4**i * 0.6 ** (10 - i) for i in range(11)]
    ends = [next(i for i in range(11) if sum(chances[: i + 1]) > q) / 10 for q in (0.025, 0.975)]
    assert_close(np.ravel(st.profile_band(np.arange(10.0), np.array([5.0]))), ends)


def test_invalid_scores_raise() -> None:
    empty: list[Any] = [[], np.empty((0, 3)), np.empty((3, 0)), [np.ones(2), np.ones(0)]]
    for scores in (*empty, [1.0, 2.0], np.ones((2, 2, 2))):
        with pytest.raises(DiscError, match="none empty"):
            st.mean(scores)
    with pytest.raises(DiscError, match="not 2 and 1"):
        st.probability_of_improvement(RUNS, RUNS[:, :1])
    for bad in (NAN, math.inf):
        broken = np.where(RUNS == 6.0, bad, RUNS)
        for given in ((broken, RUNS), (RUNS, broken)):
            with pytest.raises(DiscError, match="NaN or infinite"):
                st.improvement_interval(*given)
        with pytest.raises(DiscError, match="NaN or infinite"):
            st.interval(broken, np.mean)
