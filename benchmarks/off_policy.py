"""`python -m benchmarks.off_policy`: training speed of SAC and TD3, here and in SB3 and SBX.

All use the same networks and batch size, and one gradient step per environment step. They run one
after the other, each in a separate process, with repeats to detect noise. Steps before learning
starts, and compilation, are excluded. Also measures the time to compute an action, in numpy and
compiled. Prints tables and writes a JSON file; compare ratios.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.speed import (
    Results,
    add_options,
    console,
    measure,
    measure_peer,
    peers,
    say,
    versions_of,
    write,
)

ALGORITHMS = ("sac", "td3")
RANDOM_STEPS, WARM_UP = 1_000, 1_500


def training(
    env: str, steps: int, repeats: int, cores_tried: list[int], python: Path | None
) -> Results:
    """Steps per second of training: the best of the repeats, and all of them."""
    results: Results = {}
    libraries = ("disc", "sb3", "sbx") if python else ("disc",)
    runs = itertools.product(ALGORITHMS, cores_tried, range(repeats), libraries)
    for algorithm, cores, repeat, library in runs:
        task: dict[str, Any] = {"algorithm": algorithm, "env": env, "warm_up": WARM_UP}
        if library == "disc":
            options = {"random_steps": RANDOM_STEPS}
            found = measure("shares", cores, **task, options=options, steps=steps)
        else:
            task |= {"library": library, "random_steps": RANDOM_STEPS}
            found = measure_peer(python, cores, **task, steps=WARM_UP + steps)
        rate = found["steps_per_second"]
        name = f"{env} | {algorithm} | {cores} | {library}"
        entry = results.setdefault(name, {"steps_per_second": 0.0, "each": []})
        entry["each"].append(rate)
        if rate > entry["steps_per_second"]:
            entry |= found
        say(f"{name}, {repeat + 1} of {repeats}: {rate:,.0f} steps/s")
    return results


def main() -> None:
    """Measure, print the tables, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.off_policy")
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 1])
    add_options(parser, "off_policy.json")
    options = parser.parse_args()
    with peers(options) as python:
        versions = versions_of(python)
        names = ("ddpg", "td3", "sac", "sql")
        acting = {name: measure("acting", 1, algorithm=name, env=options.env) for name in names}
        results = training(options.env, options.steps, options.repeats, options.cores, python)
    contents = {"steps": options.steps, "acting": acting, "results": results}
    write(options.out, peers=versions, **contents)
    table = Table(title=f"{options.env}, steps per second of training", title_justify="left")
    for column in ("algorithm", "cores", "disc", "sb3", "sbx", "÷ sb3", "÷ sbx"):
        table.add_column(column, justify="right")
    for algorithm in ALGORITHMS:
        for cores in options.cores:

            def rate(library: str, start: str = f"{options.env} | {algorithm} | {cores}") -> float:
                found = results.get(f"{start} | {library}", {})
                return found.get("steps_per_second", float("nan"))

            ours, *theirs = (rate(library) for library in ("disc", "sb3", "sbx"))
            cells = [f"{x:,.0f}" for x in (ours, *theirs)] + [f"{ours / x:.2f}" for x in theirs]
            table.add_row(algorithm, str(cores), *cells)
    console.print(table)
    table = Table(title="One action, one core, µs", title_justify="left")
    for column in ("algorithm", "numpy", "compiled"):
        table.add_column(column, justify="right")
    for name, found in acting.items():
        table.add_row(name, f"{found['numpy']:.0f}", f"{found['compiled']:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
