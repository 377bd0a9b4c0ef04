"""`python -m tools.slope STUDY.toml`: whether updates are too long or too short, by settings.

Each arm trains. Every new batch judges the update before it, in which it took no part:

    slope = correlation of Â and log π'/π,  J_IS = ½ mean (log π'/π)²

π is the policy before the update and π' the one after it, which collected the batch. If the slope
is positive, a longer step in the same direction would have been better, to first order; if it is
negative, a shorter one. Its standard error is about 1 / √N, for a batch of N steps. The output has
one row per iteration from the second on; the printed table has means over blocks of iterations.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disc.equations import advantages
from disc.learning import normalize, snapshot
from disc.study import spec
from disc.study.spec import Cell, Experiment
from disc.types import DiscError
from tools.step_quality import check_algorithm, config_of, log_ratio, train

COLUMNS = ("task", "seed", "arm", "iteration", "slope", "j_is")


def measure(cell: Cell, iterations: int) -> Iterator[dict[str, Any]]:
    """One row per update of a cell but the last."""
    before = None
    for iteration, (training, state) in enumerate(train(cell, iterations), 1):
        after = state.policy.parameters
        if before is not None:
            scale = normalize.scale(state.normalizer)
            config = config_of(cell, training)
            found = slope(config, before, after, state.value.parameters, scale, state.replay)
            values = (cell.task, cell.seed, cell.arm.label, iteration, *map(float, found))
            yield dict(zip(COLUMNS, values, strict=True))
        before = after


@partial(jax.jit, static_argnames="config")
def slope(
    config: Any, before: Any, after: Any, value: Any, scale: Any, replay: Any
) -> tuple[jax.Array, jax.Array]:
    """The slope and J_IS of an update, measured on the newest batch."""
    newest = replay.age == 0
    slot = jnp.argmax(newest)
    steps = snapshot.steps(config, value, scale, replay, newest)
    advantage = advantages.gae(*steps)[0].T[slot]
    observation = normalize.observations(scale, replay.observation[slot])
    log_rho = log_ratio(after, before, observation, replay.action[slot])
    return _correlation(advantage, log_rho), 0.5 * jnp.mean(jnp.square(log_rho))


def _correlation(x: jax.Array, y: jax.Array) -> jax.Array:
    """Pearson's; 0 if either is constant."""
    x, y = x - jnp.mean(x), y - jnp.mean(y)
    scale = jnp.sqrt(jnp.mean(jnp.square(x)) * jnp.mean(jnp.square(y)))
    return jnp.where(scale > 0.0, jnp.mean(x * y) / jnp.maximum(scale, 1e-30), 0.0)


def table(rows: list[dict[str, Any]], block: int) -> str:
    """Markdown: the mean slope of each arm in blocks of iterations, over all seeds."""
    last = max(row["iteration"] for row in rows)
    starts = range(2, last + 1, block)
    titles = " | ".join(f"{start} to {min(last, start + block - 1)}" for start in starts)
    lines = [f"| task | arm | {titles} |", f"|---|---|{'---:|' * len(starts)}"]
    for task, arm in dict.fromkeys((row["task"], row["arm"]) for row in rows):
        own = [row for row in rows if (row["task"], row["arm"]) == (task, arm)]
        means = [
            np.mean([row["slope"] for row in own if start <= row["iteration"] < start + block])
            for start in starts
        ]
        lines.append(f"| {task} | {arm} | {' | '.join(f'{mean:+.3f}' for mean in means)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write the rows as they come, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tools.slope",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, help="an experiment file, as for `disc sweep`")
    parser.add_argument("--iterations", type=int, default=210, help="of each run; default: 210")
    parser.add_argument("--block", type=int, default=30, help="iterations per mean; default: 30")
    parser.add_argument("--out", type=Path, default=Path("slope.csv"))
    options = parser.parse_args()
    try:
        study: Experiment = spec.read(options.study)
        check_algorithm(study)
        if options.iterations < 2 or options.block < 1:
            raise DiscError("--iterations must be at least 2, and --block at least 1.")
        rows: list[dict[str, Any]] = []
        with options.out.open("x", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for cell in study.cells():
                for row in measure(cell, options.iterations):
                    rows.append(row)
                    numbers = {k: f"{row[k]:.4g}" for k in COLUMNS[4:]}
                    writer.writerow({**row, **numbers})
                    file.flush()
        print(table(rows, options.block))
    except (DiscError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
