"""Plots of learning curves and importance-sampling diagnostics, from `progress.csv`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from disc import storage
from disc.run import log
from disc.study.statistics import trailing_mean
from disc.types import DiscError, printable

Values = NDArray[np.float64]

COLORS = (
    "#d1495b", "#30638e", "#edae49", "#3c8d5a", "#7b4b94",
    "#66605a", "#8a4f2b", "#2aa5a0", "#e377b0", "#9bb838",
)  # fmt: skip


def curves(paths: Sequence[Path], out: Path, metric: str | None = None) -> None:
    """Plot one curve per run in a panel: evaluations, with training returns in the background.

    Args:
        paths: run directories or CSV files.
        out: a .png or .svg file.
        metric: a column to plot instead of returns.
    """
    check_name(out)
    figure, (axes,) = panels(1, 7.0)
    for i, path in enumerate(paths):
        rows = _rows(path)
        color, label = COLORS[i % len(COLORS)], _label(path) if len(paths) > 1 else "evaluated"
        if metric is not None:
            steps, values = column(rows, metric)
            if not len(steps):
                raise DiscError(f"{path}: has no column {metric}.")
            axes.plot(steps, values, color=color, label=_label(path))
            continue
        training = None if len(paths) > 1 else "training"
        axes.plot(
            *column(rows, "train/return"), color=color, alpha=0.3, linewidth=1, label=training
        )
        steps, evaluated = column(rows, "eval/return")
        if len(steps):
            known = [row for row in rows if drawable(row, "eval/return")]
            name = "eval/return_std"
            spread = np.array([row[name] if drawable(row, name) else 0.0 for row in known])
            axes.plot(steps, evaluated, color=color, marker="o", markersize=3, label=label)
            shade(axes, steps, evaluated, spread, color)
    dress(axes, "", metric or "return")
    save(figure, out)


class Diagnostic(NamedTuple):
    """One panel of the diagnostics."""

    metric: str
    title: str


DIAGNOSTICS = (
    Diagnostic("is/rho_last", "Mean ρ' = 1 + |ρ − 1|, last epoch"),
    Diagnostic("is/rho_d_last", "Mean ρ' of a dimension, last epoch"),
    Diagnostic("is/vanished", "Share of samples without a gradient"),
    Diagnostic("is/batches", "Batches in use"),
    Diagnostic("is/effective_samples", "Effective share of the samples"),
    Diagnostic("is/alpha", "Factor α_IS of the penalty"),
)


def diagnostics(paths: Sequence[Path], out: Path) -> None:
    """Plot the deviation of importance weights from one, and its effects; one curve per run.

    Args:
        paths: run directories or CSV files.
        out: a .png or .svg file.

    Raises:
        DiscError: no run has importance weights.
    """
    check_name(out)
    runs = {_label(path): _rows(path) for path in paths}
    shown = [x for x in DIAGNOSTICS if any(x.metric in row for y in runs.values() for row in y)]
    if not shown:
        raise DiscError(
            "these runs have no importance weights to plot; only disc, ppo and ppo-amber do."
        )
    figure, grid = panels(3, 12.0, -(-len(shown) // 3))
    for axes, (metric, title) in zip(grid, shown, strict=False):
        for (label, rows), color in zip(runs.items(), itertools.cycle(COLORS), strict=False):
            steps, values = column(rows, metric)
            if len(steps):
                axes.plot(steps, trailing_mean(values, 10), color=color, label=label, linewidth=1.2)
        dress(axes, title, "")
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    save(figure, out)


def check_name(out: Path) -> None:
    """Raise a `DiscError` if the file type is not supported."""
    if out.suffix not in (".png", ".svg"):
        raise DiscError(f"{out}: the name of a figure must end in .png or .svg.")


def panels(count: int, width: float, rows: int = 1) -> tuple[Any, Any]:
    """A figure and its panels, `count` side by side in each row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.2 if rows == 1 else 3.2 * rows), layout="constrained")
    return figure, figure.subplots(rows, count, squeeze=False).reshape(-1)


def shade(axes: Any, steps: Values, mean: Values, spread: Values, color: str) -> None:
    """Shade one standard deviation around the mean."""
    axes.fill_between(steps, mean - spread, mean + spread, color=color, alpha=0.16, linewidth=0)


def dress(axes: Any, title: str, ylabel: str) -> None:
    """Set titles, ticks and a legend."""
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("environment steps")
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_formatter(_thousands)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")


def save(figure: Any, out: Path) -> None:
    """Write a figure atomically."""
    with storage.replace(out) as beside:
        figure.savefig(beside, format=out.suffix[1:], dpi=150)


def column(rows: list[log.Row], name: str) -> tuple[Values, Values]:
    """Steps and values of the rows that have a metric."""
    known = [(row["step"], row[name]) for row in rows if drawable(row, name)]
    return np.array([step for step, _ in known]), np.array([value for _, value in known])


def drawable(row: log.Row, name: str) -> bool:
    """Whether a row has a plottable value of a metric."""
    return abs(row.get(name, math.nan)) < storage.DRAWN


def _thousands(value: float, _: float) -> str:
    """A number of steps as a tick label: 200k, 1M."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def _rows(path: Path) -> list[log.Row]:
    file = path / "progress.csv" if path.is_dir() else path
    try:
        rows = log.read_progress(file)
        if not rows:
            raise ValueError("it has no rows")
        return rows
    except (OSError, ValueError) as error:
        raise DiscError(f"{file}: can't be read as a progress.csv ({error}).") from error


def _label(path: Path) -> str:
    name = path.absolute().name if path.is_dir() else path.stem
    return printable(name).replace("$", r"\$")  # would start a formula
