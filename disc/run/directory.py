"""A run directory.

config.json · progress.csv · events · checkpoints/ · policy.disc · best.disc
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from disc import host, storage
from disc.policy.file import BEST
from disc.run import checkpoint, lock, log, saving
from disc.run.config import keeps_best, read_config, resume_args, resume_command
from disc.run.lock import Lock
from disc.run.trackers import About, Guarded, check_track
from disc.run.training import DEFAULT_TRACK, Best, OnNan, Plan, Track, Training
from disc.types import DiscError, Metrics


class RunDirectory:
    """The files of a run, locked by this process. Use `create` or `open`."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path, self.config = path, config
        self.checkpoints = path / "checkpoints"
        self.progress = log.ProgressFile(path / "progress.csv")
        self.events: log.Events | None = None
        self.trackers: list[Guarded] = []
        self.saved_step: int | None = None
        self.saved_pending = False  # the checkpoint has a row that is not evaluated yet
        self.purge_step: int | None = None
        self.lock: Lock | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        training: Training,
        plan: Plan,
        on_nan: OnNan,
        track: Sequence[Track] = DEFAULT_TRACK,
    ) -> RunDirectory:
        """Make the directory and write `config.json`.

        Raises:
            DiscError: it already holds something, or can't be written.
        """
        check_free(path)
        config = {
            "algorithm": training.algorithm.NAME,
            "env": training.maker.recipe,
            "env_name": training.maker.name,
            "env_kwargs": dict(training.maker.kwargs),
            "seed": training.seed,
            "num_envs": training.num_envs,
            "threads": training.threads,
            "workers": training.workers,
            "plan": dataclasses.asdict(plan),
            "on_nan": on_nan,
            "track": list(check_track(track)),
            "preset": training.preset,
            "config": dataclasses.asdict(training.config.for_steps(plan.steps)),
            "versions": host.versions(),
            "commit": host.commit(),
            "machine": host.facts(),
            "command": host.command(),
        }
        directory = cls(path, config)
        try:
            text = json.dumps(config, indent=2) + "\n"
            path.mkdir(parents=True, exist_ok=True)
            directory.lock = Lock.take(path)
            check_free(path)  # another process may have been faster
            for leftover in leftovers(path):
                leftover.unlink()
            storage.write_text(path / "config.json", text)
        except (OSError, TypeError, ValueError) as error:
            raise DiscError(f"{path}: can't be written ({error}).") from error
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run directory.

        Raises:
            DiscError: it holds no run, contains links out of it, or is locked by another process.
        """
        directory = cls(path, read_config(path))
        _check_links(path)
        directory.lock = Lock.take(path)
        for leftover in path.glob("**/.*.part"):
            leftover.unlink()  # of a process that was killed while it wrote
        return directory

    @property
    def plan(self) -> Plan:
        """The run's plan."""
        return Plan(**self.config["plan"])

    def extend(self, step: int, plan: Plan) -> None:
        """Note in `config.json` that the run was resumed at `step`, by which command and plan."""
        resumed = {
            "step": step,
            "plan": dataclasses.asdict(plan),
            "versions": host.versions(),
            "commit": host.commit(),
            "command": host.command(),
        }
        self.config["plan"] = dataclasses.asdict(plan)
        self.config.pop("ended", None)
        self.config["resumed"] = [*self.config.get("resumed", []), resumed]
        self._write_config()

    def note_rollback(self, step: int, failed: int, config: Any) -> None:
        """Note in `config.json` that the run returned from `failed` to `step`, and its options."""
        self.config["config"] = dataclasses.asdict(config)
        rollback = {"from": failed, "to": step}
        self.config["rollbacks"] = [*self.config.get("rollbacks", []), rollback]
        self._write_config()

    def note_end(self, step: int, early: bool, reason: str, best: Best | None) -> None:
        """Note in `config.json` that the run has ended, why, and its best evaluation."""
        self.config["ended"] = {"step": step, "early": early, "reason": reason}
        if best is not None:
            self.config["ended"]["best"] = best.evaluation
        self._write_config()

    def _write_config(self) -> None:
        with self._writing():
            storage.write_text(self.path / "config.json", json.dumps(self.config, indent=2) + "\n")

    def rewind(self, training: Training, plan: Plan) -> None:
        """Cut the files back to the run's step, and read its rows into `training.rows`.

        An evaluation that was made only because the run ended there is removed too, unless the
        plan ends there as well.
        """
        step, self.saved_pending = training.state.step, training.pending is not None
        end = step - 1 if self.saved_pending else step
        self.purge_step, self.saved_step = end + 1, step or None
        with self._writing():
            rows = [row for row in log.salvage(self.progress.path) if row["step"] <= end]
            last = bool(rows) and rows[-1]["step"] == step
            if last and not plan.evaluates(step - training.config.horizon, step):
                rows[-1] = {k: v for k, v in rows[-1].items() if not k.startswith("eval/")}
            self.progress.replace(rows)
        self.keep_best(training)
        training.rows = rows

    def start_trackers(self, say: Callable[[str], Any]) -> None:
        """Start the trackers other than TensorBoard, and note their names for this run."""
        names = [name for name in self._track if name != "tensorboard"]
        known = self.config.get("tracked_as", {})
        plan, others = self.config["plan"], ("algorithm", "env_name", "seed", "num_envs", "preset")
        options = {name: self.config.get(name) for name in others}
        options |= {**plan, **self.config["config"]}
        for name in names:
            self.trackers.append(Guarded(name, About(self.path, options, known.get(name)), say))
        found = {x.name: x.tracker.known_as for x in self.trackers if x.tracker is not None}
        if found.keys() - known.keys():
            self.config["tracked_as"] = {**known, **found}
            self._write_config()

    @property
    def _track(self) -> Sequence[str]:
        return self.config.get("track", DEFAULT_TRACK)

    def record(self, row: Metrics) -> None:
        """Append a row to `progress.csv`, to the events, and send it to other trackers.

        Raises:
            DiscError: it can't be written.
        """
        with self._writing():
            if self.events is None and "tensorboard" in self._track:
                self.events = log.Events(self.path / "events", self.purge_step)
            self.progress.append(row)
            if self.events is not None:
                self.events.append(row)
        for tracker in self.trackers:
            tracker.append(row)

    def keep_best(self, training: Training) -> None:
        """Write `best.disc`, if there is a best evaluation; remove an older one if not.

        Raises:
            DiscError: it can't be written; the previous one is kept.
        """
        with self._writing():
            if training.best is not None:
                saving.write_best(training.best, self.path / BEST)
            elif keeps_best(self.config):
                (self.path / BEST).unlink(missing_ok=True)

    def save_if_new(self, training: Training) -> None:
        """Save unless the newest checkpoint already holds all of it."""
        now = (training.state.step, training.pending is not None)
        if (self.saved_step, self.saved_pending) != now:
            self.save(training)

    def save(self, training: Training) -> None:
        """Write the policy file and a checkpoint.

        Raises:
            DiscError: they can't be written; the previous ones are kept.
        """
        actions = training.env.actions_since_reset
        shape = (training.num_envs, 0, training.env.spec.action_size)
        past = training.env.past
        own = past.step != training.state.step - training.num_envs * past.length
        contents = checkpoint.Checkpoint(
            training.state,
            np.concatenate(actions, axis=1) if actions else np.zeros(shape, np.float32),
            training.env.observations(),
            {
                "algorithm": training.algorithm.NAME,
                "elapsed": training.elapsed,
                "unscored": training.pending and checkpoint.row_to_json(training.pending),
                "versions": host.versions(),
                **({"reset_step": past.step} if own else {}),
            },
            training.best,
        )
        with self._writing():
            self.progress.flush()
            saving.write_policy(training, self.path / "policy.disc")
            checkpoint.save(self.checkpoints, contents)
        self.saved_step, self.saved_pending = training.state.step, training.pending is not None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """If writing fails, say what is saved and how to resume."""
        try:
            yield
        except OSError as error:
            step = self.saved_step
            saved = "not saved yet" if step is None else f"saved up to step {step:,}"
            command = resume_command(self.path, resume_args(self.config))
            raise DiscError(
                f"{self.path}: can't be written ({error.strerror or error}); the run is {saved}. "
                f"Fix this and resume with `{command}`."
            ) from error

    def close(self) -> None:
        """Close the events and trackers, and release the lock."""
        while self.trackers:
            self.trackers.pop().close()
        if self.events is not None:
            self.events.close()
            self.events = None
        if self.lock is not None:
            self.lock.release()
            self.lock = None


def _check_links(path: Path) -> None:
    """Refuse a directory that contains links to files outside of it, which may be overwritten.

    W&B links its logs within `wandb/`, where nothing else is written.
    """
    for inner in path.rglob("*"):
        own = inner.parent == path or inner.relative_to(path).parts[0] != "wandb"
        if own and inner.is_symlink() and not storage.within(inner, path):
            raise DiscError(
                f"{inner}: is a link out of the run directory; replace it with its target, or "
                "remove it."
            )


def leftovers(path: Path) -> Iterable[Path]:
    """Partial files of a process that was killed while it created a run directory."""
    return path.glob(".config.json.*.part")


def is_free(path: Path) -> bool:
    """Whether the path does not exist, or is a directory with nothing but what a kill left."""
    if not path.exists():
        return True
    return path.is_dir() and not {*path.iterdir()} - {*leftovers(path), path / lock.FILE}


def check_free(path: Path) -> None:
    """Refuse a directory that is not empty, or can't be written to."""
    if not is_free(path):
        raise DiscError(
            f"{path}: already exists; choose another --out, or resume it with `disc resume {path}`."
        )
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise DiscError(f"{path}: can't be created: {there} is not a writable folder.")
