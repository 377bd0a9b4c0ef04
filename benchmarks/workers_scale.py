"""`python -m benchmarks.workers_scale`: several environments, in threads and in processes.

Steps per second and the speed-up over one environment in this process: of an environment that
computes in Python for 2 ms per step, of one that waits for 2 ms per step, and of Humanoid-v5.
Only sampling is measured, with a small policy. Prints tables and writes a JSON file.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import slow
from disc import host
from disc.envs.factory import Maker
from disc.envs.pool import Environments
from disc.envs.rollout import collect
from disc.policy.policies import Gaussian
from disc.types import Spec

SECONDS = 2e-3  # of a step
KINDS = ("threads", "processes")
WARM_UP = 2  # batches; with `threads`, as many as the trial needs that decides whether they help
console = Console(highlight=False, soft_wrap=True)


def policy(spec: Spec) -> Gaussian:
    """A 64-64 policy with random weights."""
    rng, sizes = np.random.default_rng(0), (spec.observation_size, 64, 64, spec.action_size)
    shapes = list(pairwise(sizes))
    return Gaussian(
        weights=tuple(0.1 * rng.standard_normal(shape, np.float32) for shape in shapes),
        biases=tuple(np.zeros(shape[1], np.float32) for shape in shapes),
        observation_mean=np.zeros(sizes[0], np.float32),
        observation_inverse_std=np.ones(sizes[0], np.float32),
        observation_shape=spec.observation_shape,
        action_low=spec.action_low,
        action_high=spec.action_high,
        action_shape=spec.action_shape,
        clip_actions=True,
        log_std=np.full(sizes[-1], -1.0, np.float32),
    )


def speed(
    env: str, kwargs: dict[str, Any], count: int, workers: str, steps: int, repeats: int
) -> dict[str, Any]:
    """Steps per second with `count` environments of `steps` steps per batch; the best batch."""
    made, threads = Environments(Maker(env, kwargs), count, workers), host.available_cores()
    clock = time.perf_counter()
    made.reset(0, 0)
    start, acting = time.perf_counter() - clock, policy(made.spec)

    def batch(number: int) -> float:
        """Seconds of a batch."""
        state = SimpleNamespace(seed=0, iteration=number, step=number * count * steps)
        clock = time.perf_counter()
        collect(made, lambda _: acting, state, count * steps, threads)
        return time.perf_counter() - clock

    tried = 0
    while tried < WARM_UP or (workers == "threads" and count > 1 and made.pace.chosen is None):
        batch(tried)
        tried += 1
    times = [batch(tried + i) for i in range(repeats)]
    made.close()
    return {
        "steps_per_second": count * steps / min(times),
        "start_seconds": start,
        "way": "in processes" if workers == "processes" else made.pace.chosen,
    }


def scale(
    env: str, kwargs: dict[str, Any], counts: list[int], steps: int, repeats: int
) -> dict[str, Any]:
    """The speed with each number of environments, for both kinds of workers."""
    single = speed(env, kwargs, 1, "threads", steps, repeats)
    results: dict[str, Any] = {"1 | threads": {**single, "way": "this process"}}
    for count in counts:
        for workers in KINDS:
            key = f"{count} | {workers}"
            if key not in results:
                results[key] = speed(env, kwargs, count, workers, steps, repeats)
    for found in results.values():
        found["speed_up"] = found["steps_per_second"] / single["steps_per_second"]
    return results


def show(title: str, results: dict[str, Any]) -> None:
    """Print a table: one row per number of environments."""
    table = Table(title=title, title_justify="left")
    for column in ("E", *(f"{kind} {what}" for what in ("steps/s", "× one") for kind in KINDS)):
        table.add_column(column, justify="right")
    table.add_column("with threads", justify="left")
    for count in dict.fromkeys(key.split(" | ")[0] for key in results):
        found = [results.get(f"{count} | {kind}", {}) for kind in KINDS]
        cells = [f"{x['steps_per_second']:,.0f}" if x else "" for x in found]
        cells += [f"{x['speed_up']:.2f}" if x else "" for x in found]
        table.add_row(count, *cells, str(found[0].get("way", "")))
    console.print(table)


def main() -> None:
    """Measure, print the tables, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.workers_scale")
    parser.add_argument("--quick", action="store_true", help="few and short measurements")
    parser.add_argument("--out", type=Path, default=Path("workers_scale.json"))
    options = parser.parse_args()
    quick = options.quick
    steps, repeats = (50, 2) if quick else (250, 5)
    turns = slow.turns_in(SECONDS)
    results = {}
    tasks: list[tuple[str, str, dict[str, Any], list[int], int]] = [
        ("Python loop of 2 ms", "benchmarks.slow:Busy", {"turns": turns}, [1, 2, 4, 8], steps),
        ("wait of 2 ms", "benchmarks.slow:Waiting", {"seconds": SECONDS}, [1, 2, 4, 8, 16], steps),
        ("Humanoid-v5", "Humanoid-v5", {}, [1, 2], 200 if quick else 1024),
    ]
    for title, env, kwargs, counts, number in tasks:
        wanted = [count for count in counts if count in (1, 2, 16)] if quick else counts
        results[title] = scale(env, kwargs, wanted, number, repeats)
        show(f"{title} ({host.available_cores()} cores)", results[title])
    about = {"versions": host.versions(), "commit": host.commit(), "machine": host.facts()}
    options.out.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
