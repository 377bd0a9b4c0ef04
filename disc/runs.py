"""A run directory.

config.json · progress.csv · events · checkpoints/ · policy.disc
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from disc import checkpoint, files, logs, machine, saving, untrusted
from disc.tasks import Maker
from disc.train import Plan, due
from disc.types import DiscError, Metrics

if TYPE_CHECKING:
    from disc.agent import Agent

EVAL_EVERY = 100_000
CHECKPOINT_EVERY = 100_000


OnNan = Literal["stop", "rollback"]
MAY_BE_ZERO = ("seed", "eval_every", "checkpoint_every")
MAY_BE_NONE = ("steps", "threads", "jobs")
MOST = {
    "seed": 2**128,  # numpy's draw 128 bits
    "num_envs": 1_000,
    "threads": 1_000,
    "episodes": 10**6,
    "eval_episodes": 10**6,
}
LARGEST = 2**62  # of all other counts


def check_counts(**counts: int | None) -> None:
    """Refuse what is no whole number, or below 1 (or 0, where that means something)."""
    for name, value in counts.items():
        low = 0 if name in MAY_BE_ZERO else 1
        if value is None and name in MAY_BE_NONE:
            continue
        if not isinstance(value, int | np.integer) or value < low:
            raise DiscError(f"{name} must be a whole number of at least {low}, not {value!r}.")
        if value > (most := MOST.get(name, LARGEST)):
            raise DiscError(f"{name} must be a whole number of at most {most:,}, not {value!r}.")


def check_plan(plan: Plan) -> None:
    """Refuse a plan that makes no sense, naming the option."""
    check_counts(**dataclasses.asdict(plan))


def check_on_nan(choice: str, written: bool) -> None:
    """Refuse what is no choice, or one that needs a run directory where there is none."""
    if choice not in get_args(OnNan):
        raise DiscError(f"on_nan must be one of {', '.join(get_args(OnNan))}, not {choice!r}.")
    if choice == "rollback" and not written:
        raise DiscError("on_nan='rollback' goes back to a checkpoint, and so needs out=…")


class RunDirectory:
    """Where a run keeps its files. Use `create` or `open`."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path, self.config = path, config
        self.checkpoints = path / "checkpoints"
        self.progress = logs.ProgressFile(path / "progress.csv")
        self.events: logs.Events | None = None
        self.saved_step: int | None = None
        self.unscored = False  # what is saved still has to be evaluated
        self.purge_step: int | None = None
        self.lock: int | None = None

    @classmethod
    def create(cls, path: Path, agent: Agent, plan: Plan, on_nan: OnNan) -> RunDirectory:
        """Make the directory and write `config.json`.

        Raises:
            DiscError: something is there already, or nothing can be written.
        """
        check_free(path)
        config = {
            "algorithm": agent.algorithm.NAME,
            "env": agent.maker.recipe,
            "env_name": agent.maker.name,
            "env_kwargs": dict(agent.maker.kwargs),
            "seed": agent.seed,
            "num_envs": agent.num_envs,
            "threads": agent.threads,
            "plan": dataclasses.asdict(plan),
            "on_nan": on_nan,
            "preset": agent.preset,
            "config": dataclasses.asdict(agent.config.planned(plan.steps)),
            "versions": machine.versions(),
            "commit": machine.commit(),
            "machine": machine.facts(),
            "command": machine.command(),
        }
        directory = cls(path, config)
        try:
            text = json.dumps(config, indent=2) + "\n"
            path.mkdir(parents=True, exist_ok=True)
            directory.lock = _lock(path)
            check_free(path)  # another may have been a moment earlier
            for left in half(path):
                left.unlink()
            files.write_text(path / "config.json", text)
        except (OSError, TypeError, ValueError) as error:
            raise DiscError(f"{path}: can't be written ({error}).") from error
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A run directory that is there, for this process alone.

        Raises:
            DiscError: it holds no run, or leads elsewhere, or another process works on it.
        """
        directory = cls(path, read_config(path))
        _check_links(path)
        directory.lock = _lock(path)
        for left in path.glob("**/.*.part"):
            left.unlink()  # what a killed process was writing
        return directory

    @property
    def plan(self) -> Plan:
        """What the run was to do."""
        return Plan(**self.config["plan"])

    def extend(self, step: int, plan: Plan) -> None:
        """Write down that the run goes on from `step`, by which command and to where."""
        resumed = {
            "step": step,
            "plan": dataclasses.asdict(plan),
            "versions": machine.versions(),
            "commit": machine.commit(),
            "command": machine.command(),
        }
        self.config["plan"] = dataclasses.asdict(plan)
        self.config["resumed"] = [*self.config.get("resumed", []), resumed]
        self._write_config()

    def roll_back(self, step: int, where: int, config: Any) -> None:
        """Write down that the run goes on from `step` with other options, after one at `where`."""
        taken = {"from": where, "to": step}
        self.config["config"] = dataclasses.asdict(config)
        self.config["rollbacks"] = [*self.config.get("rollbacks", []), taken]
        self._write_config()

    def _write_config(self) -> None:
        with self._writing():
            files.write_text(self.path / "config.json", json.dumps(self.config, indent=2) + "\n")

    def rewind(self, agent: Agent) -> list[Metrics]:
        """Cut the record back to where the agent is, and goes on from; return what is left.

        An evaluation that was made only because the run ended there goes too.
        """
        step, self.unscored = agent.state.step, agent.unscored is not None
        end = step - 1 if self.unscored else step
        self.purge_step, self.saved_step = end + 1, step or None
        with self._writing():
            rows = [row for row in logs.salvage(self.progress.path) if row["step"] <= end]
            every, before = self.config["plan"]["eval_every"], step - agent.config.horizon
            if rows and rows[-1]["step"] == step and not due(every, before, step):
                rows[-1] = {k: v for k, v in rows[-1].items() if not k.startswith("eval/")}
            self.progress.replace(rows)
        return rows

    def record(self, row: Metrics) -> None:
        """Write a row everywhere.

        Raises:
            DiscError: the disk does not take it.
        """
        with self._writing():
            if self.events is None:
                self.events = logs.Events(self.path / "events", self.purge_step)
            self.progress.append(row)
            self.events.append(row)

    def has(self, agent: Agent) -> bool:
        """Whether all of the agent is saved."""
        owed = agent.unscored is not None
        return (self.saved_step, self.unscored) == (agent.state.step, owed)

    def save(self, agent: Agent) -> None:
        """Write the policy as it is, and a checkpoint, after which nothing is left to do.

        Raises:
            DiscError: the disk does not take it; what was saved before is still there.
        """
        taken = agent.env.taken
        shape = (agent.num_envs, 0, agent.env.spec.action_size)
        contents = checkpoint.Checkpoint(
            agent.state,
            np.concatenate(taken, axis=1) if taken else np.zeros(shape, np.float32),
            agent.env.where(),
            {
                "algorithm": agent.algorithm.NAME,
                "elapsed": agent.elapsed,
                "unscored": agent.unscored and checkpoint.row_to_json(agent.unscored),
                "versions": machine.versions(),
            },
        )
        with self._writing():
            self.progress.flush()
            saving.write_policy(agent, self.path / "policy.disc")
            checkpoint.save(self.checkpoints, contents)
        self.saved_step, self.unscored = agent.state.step, agent.unscored is not None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Say of what fails what is saved and how to go on."""
        try:
            yield
        except OSError as error:
            step = self.saved_step
            saved = "not saved yet" if step is None else f"saved up to step {step:,}"
            words = Maker(self.config["env"], self.config["env_kwargs"]).words
            raise DiscError(
                f"{self.path}: can't be written ({error.strerror or error}); the run is {saved}. "
                f"Mend that and go on with `{command(self.path, words)}`."
            ) from error

    def close(self) -> None:
        """Flush what is open, and let others have the directory."""
        if self.events is not None:
            self.events.close()
            self.events = None
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


def _check_links(path: Path) -> None:
    """Refuse a directory in which something that is to be written or removed lies elsewhere."""
    for inner in path.rglob("*"):
        if inner.is_symlink() and not files.within(inner, path):
            raise DiscError(
                f"{inner}: is a link that leads out of the run directory; put what it leads to in "
                "its place, or remove it."
            )


def _lock(path: Path) -> int | None:
    """Hold a directory for this process until the number is closed or the process ends.

    Raises:
        DiscError: another process holds it.
    """
    number = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(number)
        raise DiscError(
            f"{path}: another process trains in it just now; wait for it, or choose another --out."
        ) from error
    except OSError:  # a file system without locks
        os.close(number)
        return None
    return number


def command(path: Path, words: Iterable[str]) -> str:
    """The command that goes on with a run, given the words that name its environment."""
    return shlex.join(["disc", "resume", str(path), *words])


def half(path: Path) -> Iterable[Path]:
    """What a process left that was killed while it made a run directory."""
    return path.glob(".config.json.*.part")


def check_free(path: Path) -> None:
    """Refuse a directory that holds something or can't be written to."""
    if path.exists() and (not path.is_dir() or {*path.iterdir()} - {*half(path)}):
        raise DiscError(
            f"{path}: is there already; choose another --out, or go on with `disc resume {path}`."
        )
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise DiscError(f"{path}: can't be made, as {there} is not a writable folder.")


def read_config(path: Path) -> dict[str, Any]:
    """The `config.json` of a run directory.

    Raises:
        DiscError: there is none, or no run wrote it.
    """
    try:
        config = untrusted.parse(untrusted.read_text(path / "config.json"))
        _check_config(config)
    except OSError as error:
        raise DiscError(f"{path}: not a run directory ({error.strerror}: config.json).") from error
    except (DiscError, *untrusted.MALFORMED) as error:
        why = str(error).removesuffix(".")
        raise DiscError(f"{path}: its config.json is damaged ({why}).") from error
    return config


def _check_config(config: Any) -> None:
    """Raise if a run's `config.json` lacks something, or holds something else in its place."""
    if not isinstance(config["algorithm"], str) or not isinstance(config["env"], str | None):
        raise TypeError("algorithm and env must be names")
    if not all(isinstance(config[name], dict) for name in ("env_kwargs", "plan", "config")):
        raise TypeError("env_kwargs, plan and config must be tables")
    counts = {name: config[name] for name in ("seed", "num_envs", "threads")}
    counts |= dataclasses.asdict(Plan(**config["plan"]))
    if None in counts.values():
        raise TypeError("a number is missing")
    check_counts(**counts)
    for name in ("resumed", "rollbacks"):
        entries = config.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(x, dict) for x in entries):
            raise TypeError(f"{name} is {entries!r}")
