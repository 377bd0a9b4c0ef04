"""Small experiment files, slow or failing environments, and `disc` as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import tyro

from disc.algos import ALGORITHMS
from disc.cli.options import parse_values, with_options
from disc.learning.config import make_config
from disc.study import spec, sweep
from disc.study.spec import Cell, Experiment
from disc.study.sweep import Board, Status
from tests.support.environments import Wide
from tests.support.small import OFF_POLICY, PPO
from tests.support.sweeps import config

ROOT = Path(__file__).parents[2]
STEPS = 2560  # ten iterations
REFUSED, SPOILING = 99, 98  # statuses of jobs that can't start, or that leave a different run
PLAN = {"eval_every": 512, "eval_episodes": 1, "checkpoint_every": 512}


class Paced(Wide):
    """Slow while a file `slow` exists in the current folder, and very slow if it has contents."""

    def step(self, action: Any) -> Any:
        with suppress(OSError):
            time.sleep(0.02 if os.path.getsize("slow") else 0.002)
        return super().step(action)


class Fragile(Wide):
    """Raises from step `at` of the process on; only once if `mended` names a file to leave."""

    count = 0

    def __init__(self, at: int, mended: str) -> None:
        self.at, self.mended = at, mended

    def step(self, action: Any) -> Any:
        Fragile.count += 1
        if Fragile.count >= self.at and not (self.mended and os.path.exists(self.mended)):
            if self.mended:
                Path(self.mended).touch()
            raise RuntimeError("the motor is on fire")
        return super().step(action)


def paced() -> Paced:
    return Paced()


def fragile(at: int = 10**9, mended: str = "") -> Fragile:
    print("An environment may print what it likes.")
    return Fragile(at, mended)


def toml(value: Any) -> str:
    """A value as TOML writes it, which is nearly JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(n)} = {toml(x)}" for n, x in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def write(path: Path, **contents: Any) -> Path:
    """Write an experiment file."""
    given = {"tasks": ["hopper"], "steps": STEPS, "seeds": [0], "arms": [{"algo": "ppo"}]}
    lines = [f"{name} = {toml(value)}" for name, value in {**given, **contents}.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def study(tmp_path: Path, **contents: Any) -> Experiment:
    """The experiment of a file with these contents."""
    return spec.read(write(tmp_path / "study.toml", **contents))


def both(**changes: Any) -> dict[str, Any]:
    """Contents of a study with a learner that replays batches and one that replays steps."""
    arms = [{"label": "DISC", "algo": "disc", **PPO}, {"label": "SAC", "algo": "sac", **OFF_POLICY}]
    return {"tasks": ["tests.support.studies:paced"], "arms": arms, **PLAN, **changes}


def record(root: Path, cell: Cell, *steps: int, saved: int | None = None, **changes: Any) -> Path:
    """Write a run directory with one row per step and, if `saved`, a checkpoint."""
    path = root / cell.path
    (path / "checkpoints").mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({**config(cell), **changes}))
    rows = [f"{step},{step / 100},{step / 10}\n" for step in steps]
    (path / "progress.csv").write_text("".join(["step,time/elapsed,eval/return\n", *rows]))
    if saved is not None:
        (path / f"checkpoints/step_{saved:012d}.safetensors").touch()
    return path


def assert_understood(cell: Cell) -> None:
    """The real command line parses a cell's command to the cell's run."""
    words = cell.command(Path("some where"))
    assert words[0] == "train"
    command: Any = tyro.cli(with_options(words[1:]), args=words[1:])
    run = command.run
    assert (run.env, run.algo, run.seed) == (cell.task, cell.arm.algorithm, cell.seed)
    plan = (run.steps, run.eval_every, run.eval_episodes, run.checkpoint_every)
    assert plan == (cell.steps, cell.eval_every, cell.eval_episodes, cell.checkpoint_every)
    assert (run.best, run.stop_at, run.patience) == (cell.best, cell.stop_at, cell.patience)
    assert (run.out, run.threads) == (Path("some where") / cell.path, 1)
    assert (run.video, run.check) == (False, False)
    assert run.num_envs == cell.arm.num_envs
    kwargs = parse_values(run.env_kwargs)
    assert kwargs == cell.arm.env_kwargs
    algorithm = ALGORITHMS[cell.arm.algorithm]
    assert command.config == make_config(algorithm, cell.options, cell.arm.preset)


class Job:
    """Ends at the third poll with an exit status, after all its steps or half of them.

    With `stubborn` it ignores requests to stop.
    """

    def __init__(self, root: Path, cell: Cell, code: int, stubborn: bool) -> None:
        self.root, self.cell, self.code, self.stubborn = root, cell, code, stubborn
        self.looks, self.asked = 0, list[bool]()

    def poll(self) -> int | None:
        self.looks += 1
        if True in self.asked or (self.asked and not self.stubborn):
            return 130
        if self.looks < 3:
            return None
        steps = [512, 1024] if self.code == 0 else [512]
        other = {"seed": 5} if self.code == SPOILING else {}
        record(self.root, self.cell, *steps, saved=steps[-1], **other)
        return self.code

    def rows(self) -> list[dict[str, float]]:
        return []

    def stop(self, now: bool = False) -> None:
        self.asked.append(now)

    def last_output(self) -> str:
        return "ValueError: no"


class Here:
    """A backend whose jobs end with the given statuses, by seed, and then with 0."""

    def __init__(self, size: int, stubborn: bool = False, **codes: list[int]) -> None:
        self.size, self.stubborn, self.codes = size, stubborn, codes
        self.started, self.closed = list[Job](), False

    def slots(self) -> int:
        return self.size

    def start(self, root: Path, found: Status) -> Job:
        code = (self.codes.get(f"seed{found.cell.seed}") or [0]).pop(0)
        if code == REFUSED:
            raise OSError("no more processes")
        self.started.append(Job(root, found.cell, code, self.stubborn))
        return self.started[-1]

    def close(self, root: Path) -> None:
        self.closed = True

    def run(
        self, root: Path, cells: list[Cell], show: Callable[[Board], object] = lambda _: None
    ) -> Board:
        return sweep.run(root, sweep.look(root, cells), self, 2, show)

    @property
    def seeds(self) -> list[int]:
        return [job.cell.seed for job in self.started]


class Running(Job):
    """A running job with these rows."""

    def __init__(self, rows: list[dict[str, float]]) -> None:
        self.given = rows

    def rows(self) -> list[dict[str, float]]:
        return self.given


def disc(directory: Path, *words: str) -> subprocess.Popen[str]:
    """Start `disc` with these arguments in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "disc", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit status, standard output and standard error."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def wait_for(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until a condition holds."""
    limit = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > limit:
            raise TimeoutError
        time.sleep(0.05)


def working_on(root: Path) -> list[int]:
    """The `disc` processes that run in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            here = Path(os.readlink(process / "cwd"))
        except OSError:
            continue  # it has ended, or is another user's
        if here == root and b"disc" in words:
            found.append(int(process.name))
    return found
