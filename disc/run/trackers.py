"""Experiment trackers besides TensorBoard: Weights & Biases and MLflow.

A tracker receives each row of `progress.csv`. One that fails (offline, not logged in) is reported
once, and the run continues without it.
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args
from uuid import uuid4

from disc.options import convert
from disc.run.training import Track
from disc.types import DiscError, Metrics

PROJECT = "disc"  # of W&B, and the experiment of MLflow, unless their own settings name another
TIMEOUT = 30  # seconds for a server to answer
LONGEST = 500  # characters of an option in MLflow


def check_track(names: Sequence[str]) -> tuple[Track, ...]:
    """The trackers of a run.

    Raises:
        DiscError: there is no such tracker, or its package is not installed.
    """
    given = convert("track", names, tuple[Track, ...])
    for name in given:
        if name != "tensorboard" and importlib.util.find_spec(name) is None:
            raise DiscError(f"track: {name} is not installed: pip install 'disc-rl[track]'.")
    return tuple(name for name in get_args(Track) if name in given)


class About(NamedTuple):
    """What a tracker should know about a run."""

    path: Path  # of the run directory
    options: dict[str, Any]  # of the run, flat
    known_as: str | None  # what the tracker called it before it was resumed

    @property
    def name(self) -> str:
        """The last two parts of the path: within a sweep, the task and the arm."""
        return "/".join(self.path.resolve().parts[-2:])


class Tracker(Protocol):
    """A run in a tracker."""

    known_as: str

    def append(self, row: Metrics) -> None:
        """Send a row; only finite values."""
        ...

    def close(self) -> None:
        """Send the remaining rows."""
        ...


class WandB:
    """A run in Weights & Biases; recorded offline, in the run directory, without a login."""

    def __init__(self, about: About, say: Callable[[str], Any]) -> None:
        import wandb

        self.known_as = about.known_as or uuid4().hex[:8]
        settings = wandb.Settings(silent=True, console="off", init_timeout=TIMEOUT)
        if settings.mode == "online" and not wandb.login(prompt=False):
            settings.mode = "offline"
            say(
                "wandb: not logged in (`wandb login`), so the run is recorded offline; "
                f"`wandb sync {about.path / 'wandb'}/offline-run-*` uploads it."
            )
        self.run = wandb.init(
            project=settings.project or PROJECT,
            id=self.known_as,
            name=about.name,
            config=about.options,
            dir=str(about.path),
            resume="allow",
            settings=settings,
        )

    def append(self, row: Metrics) -> None:
        """A row of a step that was sent before the run was resumed is ignored by W&B."""
        values = {name: x for name, x in row.items() if name != "step"}
        self.run.log(values, step=int(row["step"]))

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """A run in MLflow, at its tracking URI."""

    def __init__(self, about: About, say: Callable[[str], Any]) -> None:
        from mlflow import MlflowClient, entities

        self.client, self.entities = MlflowClient(), entities
        if about.known_as is not None:
            self.known_as = about.known_as
            self.client.update_run(self.known_as, status="RUNNING")
            return
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self.client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self.client.create_experiment(experiment)
        self.known_as = self.client.create_run(number, run_name=about.name).info.run_id
        options = [entities.Param(k, str(v)[:LONGEST]) for k, v in about.options.items()]
        self.client.log_batch(self.known_as, params=options)

    def append(self, row: Metrics) -> None:
        now, step = int(1000 * time.time()), int(row["step"])
        values = [self.entities.Metric(name, x, now, step) for name, x in row.items()]
        self.client.log_batch(self.known_as, metrics=values)

    def close(self) -> None:
        self.client.set_terminated(self.known_as)


SERVICES: dict[str, Callable[[About, Callable[[str], Any]], Tracker]] = {
    "wandb": WandB,
    "mlflow": MLflow,
}


class Guarded:
    """A tracker whose failure does not affect the run.

    Args:
        name: the tracker's name.
        about: what it should know about the run.
        say: receives one warning.
    """

    def __init__(self, name: str, about: About, say: Callable[[str], Any]) -> None:
        self.name, self.say = name, say
        self.tracker: Tracker | None = None
        self._attempt(lambda: setattr(self, "tracker", SERVICES[name](about, say)))

    def append(self, row: Metrics) -> None:
        """Send the finite values of a row."""
        finite = {name: x for name, x in row.items() if math.isfinite(x)}
        if (tracker := self.tracker) is not None:
            self._attempt(lambda: tracker.append(finite))

    def close(self) -> None:
        """Send the remaining rows."""
        if (tracker := self.tracker) is not None:
            self._attempt(tracker.close)
        self.tracker = None

    def _attempt(self, do: Callable[[], Any]) -> None:
        try:
            do()
        except Exception as error:  # a service may raise anything
            self.tracker = None
            why = " ".join(str(error).split()) or type(error).__name__
            self.say(f"{self.name}: failed ({why}); the run continues without it.")
