"""Reading run directories for a report, and labelling the runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from disc import storage
from disc.report import plots
from disc.run import log
from disc.run.config import read_config, stopped_early
from disc.study import spec
from disc.study.spec import Arm, Cell, Experiment, Figure
from disc.study.statistics import Curve
from disc.types import DiscError

UNREADABLE = (OSError, *storage.MALFORMED)


class Run(NamedTuple):
    """The contents of a run directory."""

    path: Path  # within the directory of all runs
    config: dict[str, Any]  # its config.json
    curves: dict[str, Curve]  # by metric
    steps: int  # done
    seconds: float
    written: float  # modification time of its record, in seconds since 1970

    @property
    def planned(self) -> int:
        """Planned steps."""
        return int(self.config["plan"]["steps"])

    @property
    def eval_every(self) -> int:
        """Planned steps between evaluations."""
        return int(self.config["plan"]["eval_every"])

    @property
    def stopped_early(self) -> bool:
        """Whether a limit on its evaluations ended it."""
        return stopped_early(self.config)

    @property
    def last(self) -> float | None:
        """The last evaluated return."""
        return float(self.curves[RETURN][1][-1]) if RETURN in self.curves else None

    @property
    def best(self) -> dict[str, Any]:
        """The best evaluation: `return`, `step` and, if the run has ended, `reevaluated`."""
        if "best" in (ended := self.config.get("ended", {})):
            return dict(ended["best"])
        if RETURN not in self.curves:
            return {}
        steps, values = self.curves[RETURN]
        return {"return": float(values.max()), "step": int(steps[values.argmax()])}

    @property
    def resumed(self) -> list[dict[str, Any]]:
        """An entry for each time the run was resumed."""
        return list(self.config.get("resumed", []))

    def versions(self, name: str) -> set[str]:
        """Versions of a package, at the start and whenever the run was resumed."""
        parts = [self.config, *self.resumed]
        found = [part.get("versions", {}).get(name) for part in parts]
        return {str(version) for version in found if version is not None}


def read(root: Path, path: Path, metrics: Iterable[str]) -> Run:
    """Read a run directory and the given metrics of its record.

    Raises:
        DiscError: it is damaged; the message is only the reason.
    """
    record = root / path / "progress.csv"
    try:
        config = read_config(root / path)
        rows = log.read_progress(record)
        if not rows:
            raise ValueError("progress.csv has no rows")
        steps, _ = plots.column(rows, "step")
        if (np.diff(steps) <= 0).any():
            raise ValueError("the steps in progress.csv decrease")
        curves = {name: plots.column(rows, name) for name in metrics}
        seconds = max(row.get("time/elapsed", 0.0) for row in rows)
        known = {name: curve for name, curve in curves.items() if len(curve[0])}
        run = Run(path, config, known, int(steps[-1]), seconds, record.stat().st_mtime)
        _ = (
            run.planned,
            run.eval_every,
            run.versions("mujoco"),
            {**config["env_kwargs"], **config["config"]},
        )
        _ = config["env_name"] + config["algorithm"], datetime.fromtimestamp(run.written)
        return run
    except DiscError as error:
        raise DiscError(str(error).removeprefix(f"{root / path}: ").removesuffix(".")) from error
    except UNREADABLE as error:
        raise DiscError(f"can't be read ({reason_of(error)})") from error


def reason_of(error: Exception) -> str:
    """The error message, as part of a sentence."""
    return str(error).rstrip(".") or type(error).__name__


def by_label(there: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
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
    """Label runs of one algorithm on one task; duplicate seeds are labelled by folder."""
    values: dict[str, set[str]] = defaultdict(set)
    for run in some:
        for name, value in _options(run).items():
            values[name].add(value)
    several = sorted(name for name in values if len(values[name]) > 1)

    def label(run: Run) -> str:
        options = _options(run)
        shown = [f"{name} = {options[name]}" for name in several if name in options]
        return ", ".join([run.config["algorithm"], *shown])

    groups = _by(label, some)
    groups = _split(groups, lambda run: f"{label(run)} ({run.path.parent})")
    return _split(groups, lambda run: f"{label(run)} ({run.path})")


def _split(groups: dict[str, list[Run]], label: Callable[[Run], str]) -> dict[str, list[Run]]:
    """Split groups that contain a seed twice, by another label."""
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


RETURN = "eval/return"
BATCHES = "is/batches"  # that an iteration learned from
PROTOCOL = ("eval_every", "eval_episodes", "checkpoint_every")  # may differ; the run is still used


@dataclass(frozen=True)
class Group:
    """The runs of one arm on one task."""

    task: str
    arm: str  # its label
    steps: int  # of each run
    seeds: int  # planned
    shortened: bool = False
    finished: list[Run] = field(default_factory=list)
    unfinished: list[Run] = field(default_factory=list)

    @property
    def runs(self) -> list[Run]:
        """The runs used: the finished ones, or the unfinished ones if there are no others."""
        return self.finished or self.unfinished

    @property
    def everything(self) -> list[Run]:
        """All runs, finished or not."""
        return [*self.finished, *self.unfinished]

    def curves(self, metric: str = RETURN) -> list[Curve]:
        """The curve of each used run that has the metric, up to the planned steps."""
        return [
            run.curves[metric]
            if run.planned <= self.steps
            else _cut(run.curves[metric], self.steps)
            for run in self.runs
            if metric in run.curves
        ]

    @property
    def eval_every(self) -> list[int]:
        """Steps between evaluations of its runs, without duplicates."""
        return sorted({run.eval_every for run in self.runs})

    @property
    def reused_nothing(self) -> bool:
        """Whether its runs could reuse old batches but never did."""
        able = [run for run in self.runs if run.config["config"].get("replay_length", 1) > 1]
        counts = [run.curves[BATCHES][1] for run in able if BATCHES in run.curves]
        return bool(counts) and all((count <= 1.0).all() for count in counts)

    def add(self, run: Run) -> None:
        """Add a run."""
        done = run.stopped_early or run.steps >= self.steps
        (self.finished if done else self.unfinished).append(run)


class Study(NamedTuple):
    """An experiment and its runs."""

    experiment: Experiment
    groups: dict[tuple[str, str], Group]  # by task and label
    otherwise: list[str]  # deviations of its runs from the evaluation protocol

    @property
    def runs(self) -> list[Run]:
        """All existing runs of the experiment."""
        return [run for group in self.groups.values() for run in group.everything]


class LeftOut(NamedTuple):
    """A file or directory that could not be used."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Results:
    """The contents of a directory."""

    root: Path
    studies: list[Study]
    runs: dict[Path, Run]
    left_out: list[LeftOut]
    planned: dict[Path, int]  # steps of each existing or planned run
    asked: set[Path]  # the runs planned by the experiments

    def finished(self, run: Run) -> bool:
        """Whether it has done all its steps, or was stopped early by its limits."""
        return run.stopped_early or run.steps >= self.planned[run.path]

    @property
    def groups(self) -> list[Group]:
        """The groups of all experiments."""
        return [group for study in self.studies for group in study.groups.values()]

    @property
    def used(self) -> set[Path]:
        """The runs that belong to an experiment."""
        return {run.path for study in self.studies for run in study.runs}

    @property
    def strays(self) -> list[Run]:
        """The runs that belong to no experiment."""
        return [run for path, run in self.runs.items() if path not in self.used]


def load(root: Path) -> Results:
    """Load the experiments in a directory with their runs, or, without experiments, all runs.

    Raises:
        DiscError: it contains no readable run.
    """
    if not root.is_dir():
        raise DiscError(f"{root}: no such directory.")
    found, left_out = _experiments(root)
    metrics = {name for x in found for figure in x.figures for name in figure.metric}
    metrics |= {RETURN, BATCHES}
    there: dict[Path, Run] = {}
    for record in sorted(root.rglob("progress.csv")):
        path = record.parent.relative_to(root)
        try:
            there[path] = read(root, path, metrics)
        except DiscError as error:
            left_out.append(LeftOut(path, str(error)))
    if not there:
        broken = f"; {len(left_out)} can't be read" if left_out else ""
        raise DiscError(f"{root}: contains no runs to report on (*/progress.csv{broken}).")
    planned = {path: run.planned for path, run in there.items()}
    if not found:
        return Results(root, [_loose(root, there.values())], there, left_out, planned, set())
    found.sort(key=lambda x: (not (x.table and x.paper), not x.table, x.name))
    studies = [_study(root, x, there, left_out) for x in found]
    longest: dict[Path, int] = {}
    for cell in (cell for x in found for cell in x.cells()):
        longest[cell.path] = max(longest.get(cell.path, 0), cell.steps)
    return Results(root, studies, there, left_out, {**planned, **longest}, set(longest))


def _experiments(root: Path) -> tuple[list[Experiment], list[LeftOut]]:
    found, left_out = [], []
    for path in sorted(root.glob("*.json")):
        try:
            text = storage.read_text(path)
            contents = storage.parse(text)
            if isinstance(contents, dict) and {"arms", "tasks", "seeds"} <= contents.keys():
                found.append(spec.from_json(text, path))
        except (DiscError, *UNREADABLE) as error:
            reason = f"can't be read ({reason_of(error)})"
            left_out.append(LeftOut(path.relative_to(root), reason))
    return found, left_out


def _cut(curve: Curve, steps: int) -> Curve:
    """The curve up to a step, for runs with more planned steps."""
    kept = int(np.searchsorted(curve[0], steps, side="right"))
    return curve[0][:kept], curve[1][:kept]


def _study(
    root: Path, experiment: Experiment, there: Mapping[Path, Run], left_out: list[LeftOut]
) -> Study:
    study = Study(experiment, {}, [])
    more = {run.config["seed"] for run in there.values()} - set(experiment.seeds)
    for task in experiment.tasks:
        for arm in experiment.arms:
            cells = [experiment.cell(task, arm, seed) for seed in (*experiment.seeds, *more)]
            steps, planned = cells[0].steps, len(experiment.seeds)
            shortened = steps < experiment.steps[task]
            group = Group(task, arm.label, steps, planned, shortened)
            study.groups[task, arm.label] = group
            for cell in cells:
                if cell.path in there:
                    _place(there[cell.path], cell, group, study, left_out)
                elif (root / cell.path / "config.json").exists():
                    _leave(left_out, cell.path, "progress.csv is missing or damaged")
    return study


def _place(run: Run, cell: Cell, group: Group, study: Study, left_out: list[LeftOut]) -> None:
    """Add a run to its group, unless it does not match the cell."""
    try:
        other = cell.differences(run.config)
    except (DiscError, *UNREADABLE) as error:
        _leave(left_out, run.path, f"its options can't be read ({reason_of(error)})")
        return
    serious = [text for text in other if text.split()[0] not in PROTOCOL]
    if serious:
        reason = f"does not match the experiment {study.experiment.name} ({'; '.join(serious)})"
        _leave(left_out, run.path, reason)
        return
    study.otherwise.extend(text for text in other if text.startswith("eval_"))
    group.add(run)


def _leave(left_out: list[LeftOut], path: Path, reason: str) -> None:
    if path not in {entry.path for entry in left_out}:
        left_out.append(LeftOut(path, reason))


def _loose(root: Path, there: Collection[Run]) -> Study:
    """All runs, by environment, algorithm and the options in which they differ."""
    groups: dict[tuple[str, str], Group] = {}
    arms: dict[str, Arm] = {}
    for (env, label), members in by_label(there).items():
        arms[label] = Arm(label, members[0].config["algorithm"])
        group = Group(env, label, max(run.planned for run in members), len(members))
        groups[env, label] = group
        for run in members:
            group.add(run)
    tasks = tuple(dict.fromkeys(env for env, _ in groups))
    steps = {
        env: max(run.planned for run in there if run.config["env_name"] == env) for env in tasks
    }
    title = f"All runs in {root.absolute().name}"
    figures = (Figure("Learning curves"),)
    labelled = tuple(arms.values())
    plain = Experiment("runs", title, labelled, tasks, (), steps, {}, {}, figures=figures)
    return Study(plain, groups, [])
