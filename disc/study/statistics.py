"""Statistics over seeds and tasks: the paper's table number, mean curves, rliable's summaries.

A curve is the evaluations of one run: ascending steps, and values. NaN values are kept: where one
seed is NaN, so is the mean over seeds.

Scores, one number per run, are an array (runs, tasks), or (runs,) for a single task. For tasks with
different numbers of runs they are a sequence of 1-D arrays, one per *task*; so is any list. Scores
must be finite: the caller decides what score a run without a result gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from disc.types import DiscError

Values = NDArray[np.float64]
Curve = tuple[NDArray[Any], NDArray[Any]]  # steps (K,), ascending, and values (K,)
MOST = 10**6  # maximum points of a grid
Scores = NDArray[Any] | Sequence[NDArray[Any]]  # (runs, tasks), or (runs of the task,) of each task


# Curves


def resample(steps: NDArray[Any], values: NDArray[Any], grid: NDArray[Any]) -> Values:
    """The last value at or before each grid point, NaN before the first.

    out_g = values_k, k = max {k : steps_k ≤ grid_g}

    Args:
        steps: (K,), ascending.
        values: (K,).
        grid: (G,).

    Returns:
        (G,).
    """
    return np.concatenate([[np.nan], values])[np.searchsorted(steps, grid, side="right")]


class MaxAverage(NamedTuple):
    """The highest mean over seeds, the standard deviation over seeds there, and its step."""

    value: float
    spread: float
    step: int


def max_average_return(curves: Sequence[Curve], spacing: int = 4_000, skip: int = 20) -> MaxAverage:
    """The paper's table number: the maximum over time of the mean over seeds, unsmoothed.

    max_g 1/S Σ_s R_s(g), g = (skip + 1)·spacing, (skip + 2)·spacing, … up to the last step that
    all seeds have reached; R_s(g) is the seed's last evaluation at or before g. The spread is the
    standard deviation over seeds (divided by S) at the same g. Ties use the first maximum.

    A point is valid if every seed has a finite value there, which excludes points before a seed's
    first evaluation. If no valid point is left after the skipped ones, the run was short, and only
    the first fifth of the valid points is skipped (none of fewer than five). If the grid has no
    point after the first evaluations, the last step that all seeds have reached is used.

    Args:
        curves: steps and values of each seed.
        spacing: steps between grid points; increased if there would be more than a million.
        skip: number of grid points to drop at the start.
    """
    curves, first, last = _common(curves)
    spacing = max(spacing, int(last // MOST))
    grid = spacing * np.arange(1, int(last // spacing) + 1)
    if not len(grid) or grid[-1] < first:
        grid = np.array([last])
    values = np.stack([resample(*curve, grid) for curve in curves])  # (S, G)
    usable = np.flatnonzero(np.isfinite(values).all(axis=0))
    if not len(usable):
        raise DiscError("There is no step at which all runs have a finite evaluation.")
    kept = usable[usable >= skip]
    if not len(kept):
        kept = usable[len(usable) // 5 :]
    best = kept[np.argmax(values[:, kept].mean(axis=0))]
    here = values[:, best]
    return MaxAverage(float(here.mean()), float(here.std()), int(grid[best]))


def trailing_mean(values: NDArray[Any], window: int) -> Values:
    """Mean of the last `window` values up to each, along the last axis: (..., K) → (..., K).

    out_k = mean(values_j : max(0, k − window + 1) ≤ j ≤ k)
    """
    out = np.empty(values.shape, np.float64)
    for k in range(values.shape[-1]):
        out[..., k] = values[..., max(0, k - window + 1) : k + 1].mean(-1)
    return out


def across(curves: Sequence[Curve], window: int = 1) -> tuple[Values, Values, Values]:
    """Steps, mean and standard deviation over seeds, for plotting; (G,) each.

    The steps are those at which any seed was evaluated, within the range that all seeds cover.
    Every seed is resampled there and replaced by its trailing mean of `window` points, before
    computing mean and deviation (divided by S).
    """
    curves, first, last = _common(curves)
    union = np.unique(np.concatenate([steps for steps, _ in curves]))
    grid = union[(union >= first) & (union <= last)]
    values = np.stack([trailing_mean(resample(*curve, grid), window) for curve in curves])
    return grid, values.mean(axis=0), values.std(axis=0)


def final(curves: Sequence[Curve], last: int = 10) -> Values:
    """Mean of each seed's last evaluations, or of all if there are fewer than `last`: (S,)."""
    return np.array([values[-last:].mean() for _, values in _evaluated(curves)])


def area(steps: NDArray[Any], values: NDArray[Any]) -> float:
    """Mean height of a curve, by trapezoids; (K,), (K,) → scalar.

    Σ_k ½ (v_k + v_{k+1}) (t_{k+1} − t_k) / (t_K − t_1), or v_K if there is no span.
    """
    if not len(steps):
        raise DiscError("A run without evaluations has no area under its curve.")
    span = float(steps[-1] - steps[0])
    return float(np.trapezoid(values, steps)) / span if span else float(values[-1])


def areas(curves: Sequence[Curve]) -> Values:
    """Mean height of each seed's curve over the range that all seeds cover: (S,).

    Curves are interpolated linearly between evaluations, also at the ends of the range.
    """
    curves, first, last = _common(curves)
    heights = []
    for steps, values in curves:
        inside = steps[(steps > first) & (steps < last)]
        grid = np.concatenate([[first], inside, [last]])
        heights.append(area(grid, np.interp(grid, steps, values)))
    return np.array(heights)


def _evaluated(curves: Sequence[Curve]) -> list[tuple[Values, Values]]:
    """The curves as floats, checked to be non-empty."""
    found = [(np.asarray(s, np.float64), np.asarray(v, np.float64)) for s, v in curves]
    if not found or not all(len(steps) for steps, _ in found):
        raise DiscError("There are no runs, or a run has no evaluation.")
    return found


def _common(curves: Sequence[Curve]) -> tuple[list[tuple[Values, Values]], float, float]:
    """The curves, and the first and last step of the range that all cover."""
    found = _evaluated(curves)
    first = max(float(steps[0]) for steps, _ in found)
    last = min(float(steps[-1]) for steps, _ in found)
    if first > last:
        raise DiscError(
            f"The runs have no steps in common: one ends at {last:,.0f}, another begins at "
            f"{first:,.0f}."
        )
    return found, first, last


# Scores


def mean(scores: Scores) -> float:
    """1/M Σ_m 1/N_m Σ_n x_nm: the mean over tasks of the mean over runs."""
    return float(np.mean([task.mean() for task in _tasks(scores)]))


def median(scores: Scores) -> float:
    """median_m 1/N_m Σ_n x_nm: the median over tasks of the mean over runs, as rliable's."""
    return float(np.median([task.mean() for task in _tasks(scores)]))


def interquartile_mean(scores: Scores) -> float:
    """Mean of the middle half of all runs of all tasks, as rliable's IQM.

    Of n sorted entries, ⌊n/4⌋ are dropped at both ends: 1/(n − 2⌊n/4⌋) Σ x_(i) over the others.
    All entries weigh the same, so a task with more runs weighs more.
    """
    flat = np.sort(np.concatenate(_tasks(scores)))
    cut = len(flat) // 4
    return float(flat[cut : len(flat) - cut].mean())


def interval(
    scores: Scores,
    statistic: Callable[[Any], float],
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Stratified bootstrap percentile interval, as rliable's.

    The runs of every task are resampled separately, with replacement; the ends are the
    (1 − level)/2 and (1 + level)/2 quantiles of the statistic.

    Args:
        scores: (runs, tasks), or a sequence of (runs of the task,).
        statistic: maps (runs, tasks), or in the second case a sequence of 1-D arrays, to a number.
        level: the fraction of resamples inside.
        resamples: number of resamples.
        seed: seed of the resampling.

    Returns:
        The lower and the upper end.
    """
    rng = np.random.default_rng(seed)
    drawn = [
        task[rng.integers(len(task), size=(resamples, len(task)))] for task in _tasks(scores)
    ]  # (resamples, runs of the task) each
    samples: Iterable[Any] = zip(*drawn, strict=True)
    if isinstance(scores, np.ndarray):
        samples = np.stack(drawn, axis=2)  # (resamples, runs, tasks)
    low, high = _ends(np.array([statistic(sample) for sample in samples]), level)
    return float(low), float(high)


def difference_interval(
    x: NDArray[Any], y: NDArray[Any], level: float = 0.95
) -> tuple[float, float]:
    """Welch's t interval of the difference of two means, mean x − mean y.

    x̄ − ȳ ± t_ν √(s_x²/n_x + s_y²/n_y), with Welch and Satterthwaite's ν. For few runs it is wider,
    and nearer to its level, than a bootstrap interval.

    Args:
        x: scores, (N,), N ≥ 2.
        y: scores, (K,), K ≥ 2.
        level: confidence level.
    """
    from scipy.stats import t

    parts = [float(np.var(values, ddof=1)) / len(values) for values in (x, y)]
    middle, error = float(np.mean(x) - np.mean(y)), float(np.sqrt(sum(parts)))
    if error == 0.0:
        return middle, middle
    sizes = (len(x) - 1, len(y) - 1)
    freedom = error**4 / sum(part**2 / size for part, size in zip(parts, sizes, strict=True))
    half = error * float(t.ppf((1.0 + level) / 2.0, freedom))
    return middle - half, middle + half


def probability_of_improvement(x: Scores, y: Scores) -> float:
    """P(X > Y) for a run of each, averaged over tasks; ties count half.

    1/M Σ_m 1/(N_m K_m) Σ_n Σ_k [x_nm > y_km] + ½ [x_nm = y_km], that is Mann and Whitney's U over
    N_m·K_m, as rliable's.

    Args:
        x: (runs of X, tasks), or a sequence of (runs of X in the task,).
        y: the same for Y, with the same tasks.
    """
    return float(np.mean([_wins(*pair).mean() for pair in _pairs(x, y)]))


def improvement_interval(
    x: Scores, y: Scores, level: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> tuple[float, float]:
    """Stratified bootstrap percentile interval of the probability of improvement.

    As `interval`; the runs of X and Y are resampled independently.
    """
    rng = np.random.default_rng(seed)
    pairs, total = _pairs(x, y), np.zeros(resamples)
    for one, other in pairs:
        often, often_other = (_counts(len(task), resamples, rng) for task in (one, other))
        won = np.sum(often @ _wins(one, other) * often_other, axis=1)
        total += won / (len(one) * len(other))
    low, high = _ends(total / len(pairs), level)
    return float(low), float(high)


def performance_profile(scores: Scores, thresholds: NDArray[Any]) -> Values:
    """Fraction of runs with a score above each threshold: rliable's run-score distribution.

    F(τ) = 1/M Σ_m 1/N_m Σ_n [x_nm > τ]; all tasks have equal weight, for any number of runs.

    Args:
        scores: (runs, tasks), or a sequence of (runs of the task,).
        thresholds: τ, (T,).

    Returns:
        F, (T,).
    """
    shares = [(task[:, None] > thresholds).mean(axis=0) for task in _tasks(scores)]
    return np.mean(shares, axis=0)


def profile_band(
    scores: Scores,
    thresholds: NDArray[Any],
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> tuple[Values, Values]:
    """Stratified bootstrap percentile interval of the performance profile at each threshold.

    As `interval`, pointwise: the lower and the upper end, (T,) each.
    """
    rng = np.random.default_rng(seed)
    tasks, total = _tasks(scores), np.zeros((resamples, len(thresholds)))
    for task in tasks:
        above = (task[:, None] > thresholds).astype(np.float64)  # (N, T)
        total += _counts(len(task), resamples, rng) @ above / len(task)
    low, high = _ends(total / len(tasks), level)
    return low, high


def _tasks(scores: Scores) -> list[Values]:
    """The runs of each task, (runs of the task,)."""
    each = np.atleast_2d(scores.T) if isinstance(scores, np.ndarray) else scores
    tasks = [np.asarray(task, np.float64) for task in each]
    if not tasks or any(task.ndim != 1 or not task.size for task in tasks):
        raise DiscError("Scores must be (runs, tasks) or a 1-D array for each task, none empty.")
    if not np.isfinite(np.concatenate(tasks)).all():
        raise DiscError("A score is NaN or infinite.")
    return tasks


def _pairs(x: Scores, y: Scores) -> list[tuple[Values, Values]]:
    """The runs of X and of Y on each task."""
    one, other = _tasks(x), _tasks(y)
    if len(one) != len(other):
        raise DiscError(f"X and Y must have the same tasks, not {len(one)} and {len(other)}.")
    return list(zip(one, other, strict=True))


def _wins(x: Values, y: Values) -> Values:
    """[x_n > y_k] + ½ [x_n = y_k]: (N,), (K,) → (N, K)."""
    return (x[:, None] > y) + 0.5 * (x[:, None] == y)


def _counts(runs: int, resamples: int, rng: np.random.Generator) -> Values:
    """How often each run is drawn in a resample with replacement: (resamples, runs)."""
    return rng.multinomial(runs, np.full(runs, 1.0 / runs), resamples).astype(np.float64)


def _ends(found: Values, level: float) -> Values:
    """Both ends of the central fraction `level` of resamples, (R, ...) → (2, ...)."""
    return np.quantile(found, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
