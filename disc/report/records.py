"""Run directories as they are read for a report, and what tells some of them apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from disc import logs, plots, runs, untrusted
from disc.statistics import Curve
from disc.types import DiscError

UNREADABLE = (OSError, *untrusted.MALFORMED)


class Run(NamedTuple):
    """What a run directory holds."""

    path: Path  # within the directory of all runs
    config: dict[str, Any]  # its config.json
    curves: dict[str, Curve]  # by metric
    steps: int  # done
    seconds: float
    written: float  # when its record was, in seconds since 1970

    @property
    def planned(self) -> int:
        """Steps that it was to do."""
        return int(self.config["plan"]["steps"])

    @property
    def resumed(self) -> list[dict[str, Any]]:
        """What is known of each time it went on."""
        return list(self.config.get("resumed", []))

    def versions(self, name: str) -> set[str]:
        """Of a package, at the start and whenever the run went on."""
        parts = [self.config, *self.resumed]
        found = [part.get("versions", {}).get(name) for part in parts]
        return {str(version) for version in found if version is not None}


def read(root: Path, path: Path, metrics: Iterable[str]) -> Run:
    """Read a run directory; of its record, only the metrics that are asked for.

    Raises:
        DiscError: it is damaged, with the reason alone.
    """
    record = root / path / "progress.csv"
    try:
        config = runs.read_config(root / path)
        rows = logs.read_progress(record)
        if not rows:
            raise ValueError("progress.csv has no rows")
        steps, _ = plots.column(rows, "step")
        if (np.diff(steps) <= 0).any():
            raise ValueError("the steps in progress.csv go back")
        curves = {name: plots.column(rows, name) for name in metrics}
        seconds = max(row.get("time/elapsed", 0.0) for row in rows)
        known = {name: curve for name, curve in curves.items() if len(curve[0])}
        run = Run(path, config, known, int(steps[-1]), seconds, record.stat().st_mtime)
        _ = run.planned, run.versions("mujoco"), {**config["env_kwargs"], **config["config"]}
        _ = config["env_name"] + config["algorithm"], datetime.fromtimestamp(run.written)
        return run
    except DiscError as error:
        raise DiscError(str(error).removeprefix(f"{root / path}: ").removesuffix(".")) from error
    except UNREADABLE as error:
        raise DiscError(f"can't be read ({said(error)})") from error


def said(error: Exception) -> str:
    """What went wrong, as a part of a sentence."""
    return str(error).rstrip(".") or type(error).__name__


def told_apart(there: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Runs by environment and label: the algorithm and the options in which its runs differ."""
    alike: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in there:
        alike[run.config["env_name"], run.config["algorithm"]].append(run)
    return {
        (env, label): members
        for (env, _), some in sorted(alike.items())
        for label, members in sorted(_labelled(some).items())
    }


def _labelled(some: list[Run]) -> dict[str, list[Run]]:
    """Runs of one algorithm on one task; a seed that is there twice is told by its folder."""
    values: dict[str, set[str]] = defaultdict(set)
    for run in some:
        for name, value in _options(run).items():
            values[name].add(value)
    several = sorted(name for name in values if len(values[name]) > 1)

    def label(run: Run) -> str:
        options = _options(run)
        told = [f"{name} = {options[name]}" for name in several if name in options]
        return ", ".join([run.config["algorithm"], *told])

    groups = _by(label, some)
    groups = _split(groups, lambda run: f"{label(run)} ({run.path.parent})")
    return _split(groups, lambda run: f"{label(run)} ({run.path})")


def _split(groups: dict[str, list[Run]], label: Callable[[Run], str]) -> dict[str, list[Run]]:
    """Groups in which a seed is there twice, divided by another label."""
    found: dict[str, list[Run]] = {}
    for name, members in groups.items():
        twice = len({run.config["seed"] for run in members}) < len(members)
        found.update(_by(label, members) if twice else {name: members})
    return found


def _by(label: Callable[[Run], str], some: list[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in some:
        found[label(run)].append(run)
    return dict(found)


def _options(run: Run) -> dict[str, str]:
    own = {"num_envs": run.config["num_envs"], "steps": run.planned}
    options = {**run.config["config"], **run.config["env_kwargs"], **own}
    return {name: str(value) for name, value in options.items()}
