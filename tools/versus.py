"""`python -m tools.versus ROOT ARM OTHER`: two arms of a sweep, compared seed by seed.

For each task, the seeds that both arms have finished: the mean area under the curve and the mean of
the last ten evaluations of both, and the ratio of those means with a 95 % interval, which resamples
the pairs. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from disc.run.config import read_config
from disc.run.log import read_progress
from disc.study import statistics
from disc.study.statistics import Values
from disc.types import DiscError
from tools.keep import finished
from tools.scores import curve

RESAMPLES = 10_000
HEADER = (
    "| task | steps | seeds | area | | ratio (95 %) | last ten | | ratio (95 %) |\n"
    "|---|---:|---:|---:|---:|---|---:|---:|---|"
)


def ratio(ours: Values, theirs: Values) -> str:
    """mean(ours) / mean(theirs), with the interval of a paired bootstrap if there are two seeds."""
    value = f"{ours.mean() / theirs.mean():.2f}"
    if len(ours) < 2:
        return value
    drawn = np.random.default_rng(0).integers(len(ours), size=(RESAMPLES, len(ours)))
    ratios = ours[drawn].mean(axis=1) / theirs[drawn].mean(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return f"{value} ({low:.2f} to {high:.2f})"


def done(run: Path) -> bool:
    """Whether a run exists and has done all its steps."""
    return run.is_dir() and finished(read_config(run), read_progress(run / "progress.csv"))


def row(task: Path, arm: str, other: str) -> str | None:
    """The table's line of one task; None if no seed has both arms."""
    seeds = sorted(
        int(run.name.removeprefix(f"{arm}_seed"))
        for run in task.glob(f"{arm}_seed*")
        if all(map(done, (run, task / run.name.replace(arm, other, 1))))
    )
    if not seeds:
        return None
    curves = [[curve(task / f"{name}_seed{seed}") for seed in seeds] for name in (arm, other)]
    areas = [statistics.areas(some) for some in curves]
    finals = [statistics.final(some) for some in curves]
    config = read_config(task / f"{arm}_seed{seeds[0]}")
    cells = [config["env_name"], f"{config['plan']['steps']:,}", f"{len(seeds)}"]
    for ours, theirs in (areas, finals):
        cells += [f"{ours.mean():,.0f}", f"{theirs.mean():,.0f}", ratio(ours, theirs)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tools.versus")
    parser.add_argument("root", type=Path, help="the directory of a sweep")
    parser.add_argument("arm", help="the name of its directories, such as disc_recommended")
    parser.add_argument("other", help="likewise, such as ppo")
    options = parser.parse_args()
    try:
        tasks = sorted(path for path in options.root.iterdir() if path.is_dir())
        rows = [row(task, options.arm, options.other) for task in tasks]
        print("\n".join([HEADER, *filter(None, rows)]))
    except (DiscError, OSError) as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
