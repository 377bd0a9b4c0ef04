"""Estimates of the duration of runs on this machine, from a short trial of each kind.

Each trial runs `python -m disc.study.estimate CELL` in a separate process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from disc.study.local import ONE_CORE, end_with
from disc.study.spec import Arm, Cell
from disc.study.sweep import Status

SECONDS = 5.0  # of training, after the first iterations, which compile
WARM = 2  # iterations
LONGEST = 1_000  # steps of an episode, if the environment has no limit


class CellSpeed(NamedTuple):
    """The result of a trial."""

    step: float  # seconds per environment step, including learning
    evaluation: float  # seconds per evaluation, if its episodes have maximum length


def estimate(
    found: list[Status], jobs: int, tell: Callable[[str], None]
) -> dict[Cell, float | None]:
    """Seconds left for each cell on one core; None if the trial failed.

    If runs of the same task and arm have made progress, their speed is used instead of a trial.
    """
    speeds: dict[tuple[str, str], CellSpeed | None] = {}
    tried: dict[tuple[str, str], Cell] = {}
    for status in found:
        cell, elapsed = status.cell, status.rows[-1].get("time/elapsed") if status.rows else None
        if status.step > 0.2 * cell.steps and elapsed:
            speeds[cell.kind] = CellSpeed(elapsed / status.step, 0.0)  # evaluations are included
        elif not status.done:
            tried.setdefault(cell.kind, cell)
    kinds = [kind for kind in tried if kind not in speeds]
    for first in range(0, len(kinds), jobs):
        some = kinds[first : first + jobs]
        names = ", ".join(f"{arm} on {task}" for task, arm in some)
        tell(f"Timing {names} ({first + len(some)} of {len(kinds)}) …")
        tries = [(kind, _start(tried[kind])) for kind in some]
        speeds |= {kind: _finish(process) for kind, process in tries}
    left = [status for status in found if not status.done]
    return {status.cell: _seconds(status, speeds[status.cell.kind]) for status in left}


def _seconds(status: Status, speed: CellSpeed | None) -> float | None:
    if speed is None:
        return None
    left, every = max(0, status.cell.steps - status.step), status.cell.eval_every
    evaluations = left / every if every else 0.0
    return left * speed.step + evaluations * speed.evaluation


def _start(cell: Cell) -> subprocess.Popen[str]:
    encoded = json.dumps(dataclasses.astuple(cell))
    return subprocess.Popen(
        [sys.executable, "-m", "disc.study.estimate", encoded, str(os.getpid())],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **ONE_CORE},
    )


def _finish(process: subprocess.Popen[str]) -> CellSpeed | None:
    """The result of a trial: the last line of its output; environments may print others."""
    output, _ = process.communicate()
    if process.returncode != 0:
        return None
    return CellSpeed(*json.loads(output.strip().splitlines()[-1]))


def measure(cell: Cell) -> CellSpeed:
    """Train for a few seconds and evaluate once."""
    from disc.envs.evaluate import evaluate
    from disc.learning.config import make_config
    from disc.run.agents import AGENTS

    options = dict(cell.options)
    arm = cell.arm
    config = make_config(AGENTS[arm.algorithm].algorithm, options, arm.preset, arm.num_envs)
    if hasattr(config, "random_steps"):
        options["random_steps"] = config.horizon  # else nothing would be learned in a trial
    marks: list[tuple[int, float]] = []

    def stop(agent: Any, row: Any) -> bool:
        marks.append((agent.state.step, time.perf_counter()))
        return len(marks) <= WARM or marks[-1][1] - marks[WARM - 1][1] < SECONDS

    with AGENTS[cell.arm.algorithm](
        cell.task,
        seed=cell.seed,
        num_envs=cell.arm.num_envs,
        threads=1,
        env_kwargs=cell.arm.env_kwargs,
        preset=cell.arm.preset,
        **options,
    ) as agent:
        agent.learn(10**9, eval_every=0, checkpoint_every=0, callbacks=[stop], progress=False)
        with agent.maker.borrowed() as env:
            limit = (env.spec.max_episode_steps if env.spec else None) or LONGEST
            clock = time.perf_counter()
            lengths = evaluate(env, agent.policy, 2, 0, name=agent.maker.name).lengths
            step = (time.perf_counter() - clock) / max(1, sum(lengths))
    (first, start), (last, end) = marks[WARM - 1], marks[-1]
    return CellSpeed((end - start) / (last - first), step * limit * cell.eval_episodes)


def main() -> None:
    """Measure the cell on the command line and print the result."""
    end_with(int(sys.argv[2]))
    task, arm, *rest = json.loads(sys.argv[1])
    cell = Cell(task, Arm(*arm), *rest)
    print(json.dumps(measure(cell)))


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
