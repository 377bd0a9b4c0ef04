"""`python -m benchmarks.growth`: how the cost of DISC and of a sweep grows with the problem.

Varied one at a time, each point in a separate process: the size of observations and actions, the
width of the networks, the batches that are included, the environments, and the cells of a sweep.
The task is synthetic and its steps cost almost nothing; DISC has the paper's settings, under which
every included batch is learned from. A cost is the time of the fastest iteration of 2,048 steps;
for environments only its sampling: they share these steps, so it should not grow. For a sweep it
is the CPU time of its own process, without training (see `benchmarks.workers.cells`).

The exponent b of cost ≈ a·xᵇ is the slope in a log-log plot. The verdict is about the upper half
of the range, as fixed costs hide the growth in the lower one. Prints a table, writes a JSON file.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from benchmarks.speed import ALL_INCLUDED, Load, Results, console, measure, say, write

TOLERANCE = 0.15  # by which an exponent may exceed what it should be, as timings are noisy
INCLUDED = 4  # batches, where they are not varied
DIMENSIONS = 8  # of actions, likewise


class Factor(NamedTuple):
    """What is varied."""

    name: str
    values: tuple[int, ...]
    cost: str  # in `least_seconds` of the measurement
    exponent: float  # the largest acceptable one


FACTORS = (
    Factor("observation size", (10, 30, 100, 300, 1_000, 3_000, 10_000), "iteration", 1.0),
    Factor("action dimension", (1, 4, 16, 64, 256), "iteration", 1.0),
    Factor("network width", (32, 64, 128, 256, 512, 1024), "iteration", 2.0),
    Factor("included batches", (4, 8, 16, 32, 64), "iteration", 1.0),
    Factor("environments", (1, 2, 4, 8), "sampling", 0.0),
    Factor("cells of a sweep", (1, 5, 20, 200), "sweep", 1.0),
    Factor("cells of a finished sweep", (1, 5, 20, 200), "look", 1.0),
)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope b of the least-squares fit log cost = log a + b log size."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def upper(points: Sequence[Any]) -> Sequence[Any]:
    """The upper half of a range, the middle included: two points or more."""
    return points[min(len(points) // 2, len(points) - 2) :]


def verdict(found: float, expected: float) -> str:
    """Whether an exponent is at most what it should be."""
    if math.isnan(found):
        return "unknown"
    return "fine" if found <= expected + TOLERANCE else "grows faster"


def quicker(factor: Factor) -> Factor:
    """The lower half of the range."""
    return factor._replace(values=factor.values[: 1 + len(factor.values) // 2])


def task_of(factor: Factor, value: int) -> dict[str, Any]:
    """The measurement of a point, for `benchmarks.workers`."""
    if factor.name.startswith("cells"):
        return {"kind": "cells", "cells": value}
    options: dict[str, Any] = {**ALL_INCLUDED, "replay_length": INCLUDED}
    task: dict[str, Any] = {"algorithm": "disc", "dimensions": DIMENSIONS, "held": True}
    if factor.name == "observation size":
        task["observations"] = value
    elif factor.name == "action dimension":
        task["dimensions"] = value
    elif factor.name == "network width":
        options["widths"] = [value, value]
    elif factor.name == "included batches":
        options["replay_length"] = value
    else:  # iterations of a trial come first, which decides how the environments are stepped
        task |= {"num_envs": value, "warm_up": 4, "held": False, "iterations": 30}
        options = {"epsilon_b": 0.0}
    return {"kind": "train", **task, "options": options}


def costs_of(factor: Factor, points: Results) -> tuple[list[int], list[float]]:
    """The sizes and their costs in seconds."""
    sizes = [value for value in factor.values if str(value) in points]
    return sizes, [points[str(value)]["least_seconds"][factor.cost] for value in sizes]


def fit(factor: Factor, points: Results) -> tuple[float, float]:
    """The exponent over the whole range, and over its upper half."""
    sizes, costs = costs_of(factor, points)
    return exponent(sizes, costs), exponent(upper(sizes), upper(costs))


def row(factor: Factor, points: Results) -> list[str]:
    """A line of the table."""
    sizes, costs = costs_of(factor, points)
    whole, half = fit(factor, points)
    memory = points[str(sizes[-1])].get("peak_megabytes")
    return [
        factor.name,
        f"{sizes[0]:,} … {sizes[-1]:,}",
        f"{costs[0]:.3g} … {costs[-1]:.3g}",
        f"{whole:.2f}",
        f"{half:.2f}",
        f"≤ {factor.exponent:g}",
        verdict(half, factor.exponent),
        "" if memory is None else f"{memory:,.0f}",
    ]


def main() -> None:
    """Measure every point, print the table, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.growth")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small ranges, fewer iterations")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("growth.json"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    factors = [quicker(factor) if options.quick else factor for factor in FACTORS]
    load, iterations = Load(), 3 if options.quick else 6
    results: Results = {factor.name: {} for factor in factors}
    measured: dict[str, Results] = {}
    for factor in factors:
        for value in factor.values:
            task = task_of(factor, value)
            if (key := repr(task)) not in measured:  # both kinds of cells are measured at once
                measured[key] = measure(cores=options.cores, **{"iterations": iterations, **task})
            results[factor.name][str(value)] = measured[key]
            seconds = measured[key]["least_seconds"][factor.cost]
            say(f"{factor.name} {value:,}: {seconds:.3g} s")
    fits = {factor.name: fit(factor, results[factor.name]) for factor in factors}
    contents = {"cores": options.cores, "other_cores": load.others(), "exponents": fits}
    write(options.out, **contents, results=results)
    table = Table(title="Cost by size", title_justify="left")
    columns = ("what", "range", "seconds", "exponent", "upper half", "should be", "", "peak, MB")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if 0 < number < 6 or number == 7 else "left")
    for factor in factors:
        table.add_row(*row(factor, results[factor.name]))
    console.print(table)
    if contents["other_cores"] is not None:
        say(f"Other processes used {contents['other_cores']:.2f} cores; above 0.1, repeat it.")


if __name__ == "__main__":
    main()
