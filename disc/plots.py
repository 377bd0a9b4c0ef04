"""Learning curves of runs, from their `progress.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disc import files, logs
from disc.types import DiscError

Values = NDArray[np.float64]

COLORS = (
    "#d1495b", "#30638e", "#edae49", "#3c8d5a", "#7b4b94",
    "#66605a", "#8a4f2b", "#2aa5a0", "#e377b0", "#9bb838",
)  # fmt: skip


def curves(paths: Sequence[Path], out: Path, metric: str | None = None) -> None:
    """Draw one panel with a curve a run: evaluations, the training returns faintly behind.

    Args:
        paths: run directories or CSV files.
        out: a .png or .svg file.
        metric: a column to draw instead of returns.
    """
    if out.suffix not in (".png", ".svg"):
        raise DiscError(f"{out}: a figure's name must end in .png or .svg.")
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
            _, spread = column(rows, "eval/return_std")
            axes.plot(steps, evaluated, color=color, marker="o", markersize=3, label=label)
            shade(axes, steps, evaluated, spread, color)
    dress(axes, "", metric or "return")
    save(figure, out)


def panels(count: int, width: float) -> tuple[Any, Any]:
    """A figure and its panels, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.2), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False)[0]


def shade(axes: Any, steps: Values, mean: Values, spread: Values, color: str) -> None:
    """One standard deviation to both sides."""
    axes.fill_between(steps, mean - spread, mean + spread, color=color, alpha=0.16, linewidth=0)


def dress(axes: Any, title: str, ylabel: str) -> None:
    """Titles, ticks and a legend."""
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("environment steps")
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_formatter(_thousands)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")


def save(figure: Any, out: Path) -> None:
    """Write a figure whole or not at all."""
    with files.replace(out) as beside:
        figure.savefig(beside, format=out.suffix[1:], dpi=150)


def column(rows: list[logs.Row], name: str) -> tuple[Values, Values]:
    """Steps and values where a metric was measured."""
    known = [(row["step"], row[name]) for row in rows if name in row]
    return np.array([step for step, _ in known]), np.array([value for _, value in known])


def _thousands(value: float, _: float) -> str:
    """A number of steps as a tick label: 200k, 1M."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def _rows(path: Path) -> list[logs.Row]:
    file = path / "progress.csv" if path.is_dir() else path
    try:
        rows = logs.read_progress(file)
        if not rows:
            raise ValueError("it has no rows")
        return rows
    except (OSError, KeyError, ValueError) as error:
        raise DiscError(f"{file}: can't be read as a run's progress ({error}).") from error


def _label(path: Path) -> str:
    return path.absolute().name if path.is_dir() else path.stem
