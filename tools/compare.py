"""`python -m tools.compare OLD NEW`: check that two checkouts train identically, bit for bit.

Every algorithm trains for some iterations on a MuJoCo task in both, with the same seed, and the
columns of progress.csv are compared, except times. A run directory of the old checkout is also
resumed by the new one. With `--speed ROUNDS`, both train alternately instead, ROUNDS times on
one core, and the ratio of their speeds is printed. Needs only git checkouts; both run in this
Python environment.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

STEPS = 6_144
SPEED_STEPS = 40_960
OFF_POLICY_STEPS = 1_000
OFF_POLICY = ("ddpg", "td3", "sac", "sql")
OPTIONS = {
    **dict.fromkeys(("disc", "ppo", "ppo-amber"), f"--anneal-steps {STEPS}"),
    **dict.fromkeys(OFF_POLICY, "--random-steps 500"),
}
PLAN = "--seed 3 --threads 1 --eval-episodes 2 --eval-every 2000 --checkpoint-every 4000"
ALGORITHMS = ["disc", "ppo", "ppo-amber", "trpo", "acktr", "trust-pcl", "ddpg", "td3", "sac", "sql"]


def disc(checkout: Path, *cli_args: str) -> None:
    """Run the command line of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "disc", *cli_args]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{checkout}: {' '.join(cli_args)} failed:\n{done.stderr}")


def rows(run: Path) -> list[dict[str, str]]:
    """The rows of a run's record, without the time columns."""
    with open(run / "progress.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read]


def compare(old: Path, new: Path, task: str, algorithm: str, folder: Path) -> str:
    """Train in both, resume the old run in the new; describes a difference, or is empty."""
    steps = OFF_POLICY_STEPS if algorithm in OFF_POLICY else STEPS
    options = [*PLAN.split(), "--algo", algorithm, *OPTIONS.get(algorithm, "").split()]
    runs = {name: folder / f"{algorithm}_{name}" for name in ("old", "new", "resumed")}
    for name, checkout, length in (("old", old, steps), ("new", new, steps), ("resumed", old, 1)):
        disc(checkout, "train", task, *options, "--steps", str(length), "--out", str(runs[name]))
    disc(new, "resume", str(runs["resumed"]), "--steps", str(steps))
    first, *others = (rows(runs[name]) for name in ("old", "new", "resumed"))
    for how, found in zip(("trained", "resumed"), others, strict=True):
        if len(first) != len(found):
            return f"{how}: {len(first)} rows, then {len(found)}"
        for one, other in zip(first, found, strict=True):
            differing = [name for name in one if one[name] != other.get(name)]
            if differing:
                return f"{how}: step {one['step']} differs in {', '.join(differing)}"
    return ""


def speed(checkout: Path, task: str, algorithm: str, run: Path) -> float:
    """Steps per second of sampling and learning: the median over the rows after the first three."""
    off_policy = algorithm in OFF_POLICY
    options = [*OPTIONS.get(algorithm, "").split(), "--algo", algorithm, "--threads", "1"]
    plan = f"--steps {SPEED_STEPS // 10 if off_policy else SPEED_STEPS} --eval-every 0".split()
    disc(checkout, "train", task, *options, *plan, "--out", str(run))
    with open(run / "progress.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    times = ("time/sampling", "time/reading", "time/updating")
    seconds = [sum(float(row.get(name) or 0.0) for name in times) for row in read]
    return (int(read[1]["step"]) - int(read[0]["step"])) / median(seconds[3:])


def compare_speed(
    old: Path, new: Path, task: str, algorithm: str, rounds: int, folder: Path
) -> str:
    """Both speeds, the best of all rounds, and their ratio."""
    best = {old: 0.0, new: 0.0}
    for i in range(rounds):
        for checkout in best:
            run = folder / f"{algorithm}_{i}_{checkout == new}"
            best[checkout] = max(best[checkout], speed(checkout, task, algorithm, run))
    return f"{best[old]:9,.0f} {best[new]:9,.0f} steps/s, new / old {best[new] / best[old]:.3f}"


def main() -> None:
    """Compare, print one line per algorithm, and exit with status 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tools.compare")
    parser.add_argument("old", type=Path, help="the old checkout")
    parser.add_argument("new", type=Path, help="the new checkout")
    parser.add_argument("--task", default="HalfCheetah-v5")
    parser.add_argument("--algo", nargs="+", default=ALGORITHMS, choices=ALGORITHMS)
    parser.add_argument("--speed", type=int, metavar="ROUNDS", help="compare the speed instead")
    options = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        for algorithm in options.algo:
            paths = (options.old.absolute(), options.new.absolute())
            if options.speed:
                rates = compare_speed(*paths, options.task, algorithm, options.speed, Path(folder))
                print(f"{algorithm:10} {rates}", flush=True)
                continue
            found = compare(*paths, options.task, algorithm, Path(folder))
            different += bool(found)
            print(f"{algorithm:10} {found or 'equal'}", flush=True)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
