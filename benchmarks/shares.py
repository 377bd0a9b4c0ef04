"""`python -m benchmarks.shares`: how each algorithm's training time is spent, on one core.

Each algorithm and preset runs in a separate process on one core. The first `--warm-up` steps are
excluded: programs compile, and DISC has no old batches yet. Also measures the peak speed of a
matrix product, which bounds the speed of learning. Prints a table and writes a JSON file.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import get_args

from rich.table import Table

from benchmarks.speed import Results, console, measure, write
from disc.algos import ALGORITHMS
from disc.learning.config import Preset

PRODUCT = "product | 640, 256, 256"


def main() -> None:
    """Measure every algorithm, print the table, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.shares")
    parser.add_argument("--env", nargs="+", default=["Hopper-v5"])
    parser.add_argument("--algo", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--preset", nargs="+", default=["paper"], choices=get_args(Preset))
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--warm-up", type=int, help="steps; by default two iterations")
    parser.add_argument("--out", type=Path, default=Path("shares.json"))
    options = parser.parse_args()
    results: Results = {PRODUCT: measure("product", 1, shape=(640, 256, 256))}
    warm_up = {"warm_up": options.warm_up} if options.warm_up else {}
    for env, name, preset in itertools.product(options.env, options.algo, options.preset):
        task = {"env": env, "algorithm": name, "preset": preset, "steps": options.steps}
        label = f"{env} | {name}" + (f", {preset}" if preset != "paper" else "")
        results[label] = measure("shares", 1, **task, **warm_up)
    write(options.out, results=results)
    peak = results[PRODUCT]["gflops"]
    table = Table(title=f"Training on one core (a product's peak: {peak:.0f} GFLOP/s)")
    columns = ("steps/s", "sampling, µs/step", "learning, µs/step", "batches")
    table.add_column("environment | algorithm")
    for column in columns:
        table.add_column(column, justify="right")
    for name, found in results.items():
        if "steps_per_second" in found:
            cells = ("steps_per_second", "sampling", "learning", "batches")
            table.add_row(name, *(f"{found[cell]:,.0f}" for cell in cells))
    console.print(table)


if __name__ == "__main__":
    main()
