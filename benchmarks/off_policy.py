"""`python -m benchmarks.off_policy`: training speed of SAC and TD3, here and in SB3 and SBX.

All use the same networks and batch size, and one gradient step per environment step. They run one
after the other, each in a separate process, with repeats to detect noise. Steps before learning
starts, and compilation, are excluded. Also measures the time to compute an action, in numpy and
compiled. Prints tables and writes a JSON file; compare ratios.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.speed import HERE, Results, console, measure, peers_python, pinned, say, versions_of
from disc import host

ALGORITHMS = ("sac", "td3")
RANDOM_STEPS, WARM_UP = 1_000, 1_500


def of_peer(python: Path, cores: int, task: dict[str, Any]) -> Results:
    """Measure a peer, in a new process."""
    limits = {"NPROC": "1"} if cores == 1 else {}
    command = [str(python), str(HERE / "peers.py"), json.dumps({**task, "cores": cores})]
    return json.loads(pinned(command, cores, **limits).splitlines()[-1])


def training(
    env: str, steps: int, repeats: int, cores_tried: list[int], python: Path | None
) -> Results:
    """Steps per second of training: the best of the repeats, and all of them."""
    results: Results = {}
    task: dict[str, Any]
    libraries = ("disc", "sb3", "sbx") if python else ("disc",)
    for algorithm in ALGORITHMS:
        for cores in cores_tried:
            for repeat in range(repeats):
                for library in libraries:
                    if library == "disc":
                        options = {"random_steps": RANDOM_STEPS}
                        task = {"algorithm": algorithm, "env": env, "options": options}
                        found = measure("shares", cores, **task, steps=steps, warm_up=WARM_UP)
                    else:
                        assert python is not None
                        task = {"library": library, "algorithm": algorithm, "env": env}
                        task |= {"random_steps": RANDOM_STEPS, "warm_up": WARM_UP}
                        found = of_peer(python, cores, {**task, "steps": WARM_UP + steps})
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
    parser.add_argument(
        "--no-peers", action="store_true", help="leave Stable-Baselines3 and SBX out"
    )
    parser.add_argument("--peers", type=Path, help="a virtual environment to keep the peers in")
    parser.add_argument("--out", type=Path, default=Path("off_policy.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = None if options.no_peers else peers_python(options.peers or Path(folder, "peers"))
        versions = versions_of(python) if python else {}
        acting = {name: measure("acting", 1, algorithm=name, env=options.env) for name in
                  ("ddpg", "td3", "sac", "sql")}  # fmt: skip
        results = training(options.env, options.steps, options.repeats, options.cores, python)
    about = {"versions": host.versions(), "commit": host.commit(), "machine": host.facts()}
    contents = {**about, "peers": versions, "steps": options.steps, "acting": acting}
    options.out.write_text(json.dumps({**contents, "results": results}, indent=1) + "\n")

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
