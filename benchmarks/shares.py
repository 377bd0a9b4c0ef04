"""`python -m benchmarks.shares`: how each algorithm's training time is spent, on one core.

Each algorithm runs in a separate process on one core, with its default options; the first
iterations, which compile, are excluded. Also measures the peak speed of a matrix product, which
bounds the speed of learning. Prints a table and writes a JSON file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table

from benchmarks.speed import Results, console, measure, write
from disc.algos import ALGORITHMS

PRODUCT = "product | 640, 256, 256"


def main() -> None:
    """Measure every algorithm, print the table, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.shares")
    parser.add_argument("--env", nargs="+", default=["Hopper-v5"])
    parser.add_argument("--algo", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--out", type=Path, default=Path("shares.json"))
    options = parser.parse_args()
    results: Results = {PRODUCT: measure("product", 1, shape=(640, 256, 256))}
    for env in options.env:
        for name in options.algo:
            task = {"env": env, "algorithm": name, "steps": options.steps}
            results[f"{env} | {name}"] = measure("shares", 1, **task)
    write(options.out, results=results)
    peak = results[PRODUCT]["gflops"]
    table = Table(title=f"Training on one core (a product's peak: {peak:.0f} GFLOP/s)")
    for column in ("environment | algorithm", "steps/s", "sampling, µs/step", "learning, µs/step"):
        table.add_column(column, justify="left" if "|" in column else "right")
    for name, found in results.items():
        if "steps_per_second" in found:
            columns = (found["steps_per_second"], found["sampling"], found["learning"])
            table.add_row(name, *(f"{value:,.0f}" for value in columns))
    console.print(table)


if __name__ == "__main__":
    main()
