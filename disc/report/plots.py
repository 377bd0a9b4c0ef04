"""Plots of learning curves and importance-sampling diagnostics, from `progress.csv`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from disc import storage
from disc.report.svg import short
from disc.run import log
from disc.study.statistics import Values, trailing_mean
from disc.types import DiscError, printable

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
    for path, color in zip(paths, itertools.cycle(COLORS), strict=False):
        rows = _rows(path)
        if metric is not None:
            steps, values = column(rows, metric)
            if not len(steps):
                raise DiscError(f"{path}: has no column {metric}.")
            axes.plot(steps, values, color=color, label=_label(path))
            continue
        label, training = (_label(path), None) if len(paths) > 1 else ("evaluated", "training")
        faint = {"color": color, "alpha": 0.3, "linewidth": 1, "label": training}
        axes.plot(*column(rows, "train/return"), **faint)
        steps, evaluated = column(rows, "eval/return")
        if len(steps):
            known = dict(zip(*column(rows, "eval/return_std"), strict=True))
            spread = np.array([known.get(step, 0.0) for step in steps])
            axes.plot(steps, evaluated, color=color, marker="o", markersize=3, label=label)
            shade(axes, steps, evaluated, spread, color)
    dress(axes, "", metric or "return")
    save(figure, out)


DIAGNOSTICS = {
    "is/rho_last": "Mean ρ' = 1 + |ρ − 1|, last epoch",
    "is/rho_d_last": "Mean ρ' of a dimension, last epoch",
    "is/vanished": "Share of samples without a gradient",
    "is/batches": "Batches in use",
    "is/effective_samples": "Effective share of the samples",
    "is/alpha": "Factor α_IS of the penalty",
}  # the titles of panels


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
    shown = [x for x in DIAGNOSTICS if any(x in row for rows in runs.values() for row in rows)]
    if not shown:
        raise DiscError(
            "these runs have no importance weights to plot; only disc, ppo and ppo-amber do."
        )
    figure, grid = panels(3, 12.0, -(-len(shown) // 3))
    for axes, metric in zip(grid, shown, strict=False):
        for (label, rows), color in zip(runs.items(), itertools.cycle(COLORS), strict=False):
            steps, values = column(rows, metric)
            if len(steps):
                axes.plot(steps, trailing_mean(values, 10), color=color, label=label, linewidth=1.2)
        dress(axes, DIAGNOSTICS[metric], "")
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
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")


def save(figure: Any, out: Path) -> None:
    """Write a figure atomically."""
    with storage.replace(out) as beside:
        figure.savefig(beside, format=out.suffix[1:], dpi=150)


def column(rows: list[log.Row], name: str) -> tuple[Values, Values]:
    """Steps and values of the rows with a plottable value of a metric."""
    known = [row for row in rows if abs(row.get(name, math.nan)) < storage.DRAWN]
    return np.array([row["step"] for row in known]), np.array([row[name] for row in known])


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
