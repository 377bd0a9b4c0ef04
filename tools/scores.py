"""`python -m tools.scores RUN...`: scores of runs, pooled, one row per arm, or each in a CSV file.

The max average return, the mean of the last ten evaluations and the area under the curve, as in
the tables of `disc report`, for any set of run directories: for example seeds of two arms that
turned out to be the same algorithm, or development runs.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from disc.algos import ALGORITHMS
from disc.learning.config import make_config
from disc.report.plots import column
from disc.run.agents import AGENTS
from disc.run.config import read_config
from disc.run.log import read_progress
from disc.study import statistics
from disc.study.spec import left_open
from disc.study.statistics import Curve
from disc.types import DiscError


def curve(run: Path) -> Curve:
    """The evaluations of a run."""
    found = column(read_progress(run / "progress.csv"), "eval/return")
    if not len(found[0]):
        raise DiscError(f"{run}: has no evaluations.")
    return found


def settings(config: dict[str, Any]) -> str:
    """The algorithm and the options that differ from the paper's."""
    name = config["algorithm"]
    given = {**config["config"], "anneal_steps": None}
    filled = left_open(name, config["env"])
    given |= {k: v for k, v in filled.items() if given.get(k, 0) is None}
    default = dataclasses.asdict(make_config(ALGORITHMS[name], {}, "paper"))
    default = {**default, "widths": list(default["widths"]), "anneal_steps": None}
    default |= ALGORITHMS[name].Config.removed
    differing = [f"{k}={v}" for k, v in given.items() if v != default.get(k)]
    return " ".join([name, *differing])


def pooled(runs: list[Path]) -> str:
    """One line for all runs together."""
    curves = [curve(run) for run in runs]
    best = statistics.max_average_return(curves)
    last, areas = np.mean(statistics.final(curves)), np.mean(statistics.areas(curves))
    shares = [share for run in runs if (share := off_target(run)) is not None]
    penalty = ""
    if shares:
        penalty = f", J_IS off its target in {100 * np.mean(shares):.0f} % of iterations"
    return (
        f"{len(runs)} runs: max average return {best.value:,.0f} ± {best.spread:,.0f}, "
        f"last ten {last:,.0f}, area {areas:,.0f}{penalty}"
    )


def off_target(run: Path) -> float | None:
    """The share of iterations in which J_IS is below ½ J_targ or above 2 J_targ.

    None if the run has no J_targ, or its record does not have J_IS.
    """
    target = read_config(run)["config"].get("j_targ")
    penalty = column(read_progress(run / "progress.csv"), "is/j_is")[1]
    if target is None or not len(penalty):
        return None
    return float(np.mean((penalty < 0.5 * target) | (penalty > 2.0 * target)))


def write_csv(runs: list[Path], path: Path) -> None:
    """One row per run."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["environment", "settings", "seed", "steps", "area", "last ten", "best"])
        for run in runs:
            config, found = read_config(run), curve(run)
            last, area = statistics.final([found])[0], statistics.areas([found])[0]
            scores = [f"{x:.0f}" for x in (area, last, max(found[1]))]
            step = int(found[0][-1])
            table.writerow([config["env"], settings(config), config["seed"], step, *scores])


def table(runs: list[Path], steps: int | None = None, window: int = 200_000) -> str:
    """A Markdown table: one row for all seeds of an algorithm on an environment.

    Args:
        runs: run directories.
        steps: ignore rows after this step.
        window: final scores are means over the evaluations in this many last steps, as runs may
            be evaluated at different intervals.
    """
    arms: dict[tuple[str, str], list[Path]] = {}
    for run in runs:
        config = read_config(run)
        given = ", ".join(f"{k} {v}" for k, v in config["env_kwargs"].items() if k != "env")
        env = config["env_kwargs"].get("env", config["env"]) + (f", {given}" if given else "")
        arms.setdefault((env, AGENTS[config["algorithm"]].__name__), []).append(run)
    lines = [
        f"| environment | algorithm | seeds | last {window:,} steps, each seed | mean | area | "
        "samples without a gradient | batches |",
        "|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for (env, algorithm), found in sorted(arms.items()):
        rows = [read_progress(run / "progress.csv") for run in found]
        rows = [[row for row in x if row["step"] <= (steps or row["step"])] for x in rows]
        curves = [column(x, "eval/return") for x in rows]
        last = [np.mean(y[x > x[-1] - window]) for x, y in curves]
        area = np.mean(statistics.areas(curves))
        vanished, batches = (
            np.mean([np.mean(column(x, name)[1]) for x in rows])
            for name in ("is/vanished", "is/batches")
        )
        each = ", ".join(f"{x:,.0f}" for x in last)
        cells = [env, algorithm, str(len(found)), each, f"{np.mean(last):,.0f}", f"{area:,.0f}"]
        lines.append(f"| {' | '.join([*cells, f'{100 * vanished:.1f} %', f'{batches:.1f}'])} |")
    return "\n".join(lines)


def main() -> None:
    """Print one line or a table, or write a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tools.scores")
    parser.add_argument("run", type=Path, nargs="+", help="run directories")
    parser.add_argument("--csv", type=Path, help="write one row per run to this file")
    parser.add_argument("--table", action="store_true", help="print one row per arm")
    parser.add_argument("--steps", type=int, help="with --table: ignore rows after this step")
    parser.add_argument("--window", type=int, default=200_000, help="steps of the final scores")
    options = parser.parse_args()
    try:
        if options.csv:
            write_csv(options.run, options.csv)
        elif options.table:
            print(table(options.run, options.steps, options.window))
        else:
            print(pooled(options.run))
    except (DiscError, OSError) as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
