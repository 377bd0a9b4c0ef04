"""Tuning: a search over an algorithm's options, then a test of the best on fresh seeds.

The trials run as cells of a sweep, in `search/`. A trial runs to a rung, a fraction of its steps.
If it is below the median there, it is paused: its runs are saved and can be resumed. The best of
many trials were partly lucky, so they and the defaults run on other seeds, in `fresh/`, and only
those scores are results.

A trial is drawn from, and compared with, the trials that had ended when it was drawn, and results
are recorded in the order of the trials. So a study does not depend on which run is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from disc.learning.config import DEFAULT_PRESET
from disc.options import convert, count
from disc.run import log
from disc.run.training import CHECKPOINT_EVERY, DEFAULT_TRACK, Track, due
from disc.study import space as spaces
from disc.study import spec, sweep
from disc.study.space import Space
from disc.study.spec import Arm, Cell, Experiment
from disc.study.sweep import Board, Status
from disc.study.trials import Journal, Trial
from disc.types import DiscError

SEARCH, FRESH = "search", "fresh"  # directories of the runs
DEFAULTS = "defaults"  # the label of their arm
EVALUATIONS = 20  # of a run, by default
COMPARED = 4  # scores at a rung, before a trial is paused there
KEYS = (
    "title", "task", "algo", "preset", "num_envs", "env_kwargs", "steps", "trials", "seeds",
    "fresh_seeds", "seed", "random_trials", "rungs", "eval_every", "eval_episodes",
    "checkpoint_every", "last_evaluations", "options", "space",
)  # fmt: skip
MAY_CHANGE = ("title", "trials", "fresh_seeds")  # when a study is continued


@dataclass(frozen=True)
class Tuning:
    """The contents of a study's file."""

    experiment: Experiment  # the search: one task, the defaults as its only arm
    base: dict[str, Any]  # the defaults as a table of a sweep's file
    space: Space
    trials: int
    fresh: tuple[int, ...]  # seeds
    seed: int  # of the sampler
    random_trials: int  # before the sampler uses results
    rungs: tuple[int, ...]  # steps; the last is the full length
    last: int  # evaluations in a score
    given: dict[str, Any]  # the file, with the defaults of missing entries

    @property
    def task(self) -> str:
        """The one task."""
        return self.experiment.tasks[0]

    @property
    def steps(self) -> int:
        """Steps of a full run."""
        return self.rungs[-1]

    def arm(self, values: Mapping[str, Any], label: str) -> Arm:
        """The arm of a trial; raises a `DiscError` if the values are incompatible."""
        return spec.single_arm({**self.base, **values, "label": label})

    def cell(self, arm: Arm, seed: int, steps: int) -> Cell:
        """A run."""
        return replace(self.experiment.cell(self.task, arm, seed), steps=steps)

    @property
    def defaults(self) -> dict[str, Any]:
        """The default values of the searched options."""
        arm = self.experiment.arms[0]
        config = self.experiment.cell(self.task, arm, 0).config(arm.options, arm.preset)
        found = {name: getattr(config, name) for name in self.space}
        return {n: list(x) if isinstance(x, tuple) else x for n, x in found.items()}

    @property
    def identity(self) -> dict[str, Any]:
        """What must not change when the study is continued."""
        return {name: x for name, x in self.given.items() if name not in MAY_CHANGE}


def read(path: Path) -> Tuning:
    """The study in a TOML file.

    Raises:
        DiscError: it can't be read, or an entry is invalid, which the message names.
    """
    contents = spec.read_toml(path)
    try:
        return _tuning(path.stem, contents)
    except DiscError as error:
        raise DiscError(f"{path}: {error}") from error


def _tuning(name: str, contents: dict[str, Any]) -> Tuning:
    for key in contents:
        if key not in KEYS:
            raise DiscError(f"a study has no entry {key!r}; choose from {spec.listed(KEYS)}.")
    for key, example in (("task", '"Pendulum-v1"'), ("algo", '"sac"'), ("steps", "100_000")):
        if key not in contents:
            raise DiscError(f"has no {key}; add {key} = {example}, or another.")
    task = convert("task", contents["task"], str)
    steps = count("steps", contents["steps"])
    options = spec.check_table("[options]", contents.get("options", {}))
    for key in options:
        if key in ("algo", "label", *Arm._fields):
            raise DiscError(f"{key} is not one of the [options] of the algorithm.")
    base = {"algo": contents["algo"], "preset": contents.get("preset", DEFAULT_PRESET)}
    base |= {n: contents[n] for n in ("num_envs", "env_kwargs") if n in contents}
    base |= options
    defaults = spec.single_arm({**base, "label": DEFAULTS})
    given_space = contents["space"] if "space" in contents else spaces.default(base["algo"])
    space = spaces.parse(given_space, base)
    counts = {
        "trials": 20,
        "fresh_seeds": 5,
        "seed": 0,
        "random_trials": 5,
        "eval_every": max(1, steps // EVALUATIONS),
        "eval_episodes": 10,
        "checkpoint_every": CHECKPOINT_EVERY,
        "last_evaluations": 5,
    }
    counts = {key: count(key, contents.get(key, x)) for key, x in counts.items()}
    seeds = spec.check_list("seeds", contents.get("seeds", [0, 1]), partial(count, "seed"))
    for key, least in (("eval_every", 1), ("checkpoint_every", 1), ("fresh_seeds", 2)):
        if counts[key] < least:
            raise DiscError(f"{key} must be at least {least} in a study, not {counts[key]}.")
    if len(seeds) < 2:
        raise DiscError("seeds must have at least two entries: the score of one seed is luck.")
    experiment = Experiment(
        name=name,
        title=contents.get("title", name),
        arms=(defaults,),
        tasks=(task,),
        seeds=seeds,
        steps={task: steps},
        anneal_steps={task: steps},
        eval_every={task: counts["eval_every"]},
        eval_episodes=counts["eval_episodes"],
        checkpoint_every=counts["checkpoint_every"],
    )
    widest = {key: entry.widest for key, entry in space.items()}
    long = defaults._replace(options={**defaults.options, **widest})
    spec.check_runs(replace(experiment, arms=(defaults, long._replace(label="any trial"))))
    rungs = _rungs(contents.get("rungs", [0.25, 0.5]), steps, counts["eval_every"])
    given = {
        "task": task, "steps": steps, "seeds": list(seeds), "rungs": list(rungs), **counts,
        **base, "space": {key: entry._asdict() for key, entry in space.items()},
    }  # fmt: skip
    return Tuning(
        experiment=experiment,
        base=base,
        space=space,
        trials=counts["trials"],
        fresh=tuple(max(seeds) + 1 + i for i in range(counts["fresh_seeds"])),
        seed=counts["seed"],
        random_trials=counts["random_trials"],
        rungs=rungs,
        last=counts["last_evaluations"],
        given=given,
    )


def _rungs(given: Any, steps: int, every: int) -> tuple[int, ...]:
    """The steps of each rung, from fractions of the full length."""
    if not isinstance(given, list):
        raise DiscError(f"rungs must be a list of fractions of the steps, not {given!r}.")
    shares = [convert("an entry of rungs", share, float) for share in given]
    if shares != sorted({*shares}) or not all(0.0 < share < 1.0 for share in shares):
        raise DiscError(f"rungs must be fractions between 0 and 1 that increase, not {given!r}.")
    rungs = (*(round(share * steps) for share in shares), steps)
    if rungs[0] < every:
        raise DiscError(
            f"eval_every, {every:,}, must be at most the steps of the first rung, {rungs[0]:,}, as "
            "trials are compared by their evaluations there."
        )
    return rungs


def score(rows: Sequence[log.Row], steps: int, every: int, last: int) -> float:
    """The mean of the last scheduled evaluations of a run up to a rung.

    An evaluation that is made only because a run pauses does not count, so the score is the same
    if the run has continued since. NaN if there is none.
    """
    found, before = [], 0
    for row in rows:
        if due(every, before, int(row["step"])) and "eval/return" in row:
            found.append(row["eval/return"])
        before = int(row["step"])
        if before >= steps:
            break
    return float(np.mean(found[-last:])) if found else math.nan


def run_score(root: Path, cell: Cell, last: int) -> float:
    """The score of a run directory at its cell's steps; NaN if its record can't be read."""
    try:
        rows = log.read_progress(root / cell.path / "progress.csv")
    except (OSError, ValueError):
        return math.nan
    return score(rows, cell.steps, cell.eval_every, last)


class Driver:
    """Asks for trials, runs them rung by rung and records their results.

    Args:
        tuning: the study.
        root: its directory.
        journal: its trials so far.
        parallel: trials at a time. The same number gives the same trials.
        say: receives a line for each trial that ends.
        track: trackers of the runs.
    """

    def __init__(
        self,
        tuning: Tuning,
        root: Path,
        journal: Journal,
        parallel: int,
        say: Callable[[str], None],
        track: tuple[Track, ...] = DEFAULT_TRACK,
    ) -> None:
        self.tuning, self.root, self.journal = tuning, root / SEARCH, journal
        self.parallel, self.say, self.track = parallel, say, track
        self.trials = journal.trials()
        self.told = sum(trial.outcome is not None for trial in self.trials)
        for trial in self.trials[self.told :]:
            self._judge(trial)

    def more(self, board: Board) -> list[Status]:
        """The cells to run next, for `sweep.run`."""
        while board.locked:  # by a process that is ending
            del board.failed[board.locked.pop()]  # tried again
        new: list[Cell] = []
        while True:
            while len(self.trials) < self.tuning.trials and self._open < self.parallel:
                self.trials.append(self.journal.ask(self.told))
            for trial in self.trials[self.told :]:
                new += self._advance(trial, board, {cell.path for cell in new})
            if not self._tell():
                break
        ended = [trial.outcome for trial in self.trials[: self.told]]
        parts = [f"{self.told} of {self.tuning.trials} trials done"]
        parts += [f"{ended.count('paused')} paused"] if "paused" in ended else []
        parts += [f"{ended.count('failed')} failed"] if "failed" in ended else []
        board.note = ", ".join(parts)
        return sweep.look(self.root, new)

    @property
    def _open(self) -> int:
        """Trials whose results are not recorded."""
        return len(self.trials) - self.told

    def _advance(self, trial: Trial, board: Board, queued: set[Path]) -> list[Cell]:
        """Record the rungs that a trial has reached, and return the cells of the next."""
        done = {(status.cell.path, status.cell.steps) for status in board.done}
        failed = {cell.path: reason for cell, reason in board.failed.items()}
        while trial.outcome is None:
            try:
                cells = self._cells(trial)
            except DiscError as error:  # the values are incompatible
                return self._fail(trial, str(error), board, set())
            own = {cell.path for cell in cells}
            if lost := sorted(own & failed.keys()):
                return self._fail(trial, f"{lost[0].name}: {failed[lost[0]]}", board, own)
            missing = [cell for cell in cells if (cell.path, cell.steps) not in done]
            if missing:
                busy = {status.cell.path for status, *_ in board.running}
                busy |= {status.cell.path for status in board.waiting}
                return [cell for cell in missing if cell.path not in busy | queued]
            for steps in self.tuning.rungs[len(trial.scores) : self._target(trial) + 1]:
                reached = [replace(cell, steps=steps) for cell in cells]
                scores = [run_score(self.root, cell, self.tuning.last) for cell in reached]
                if not np.isfinite(scores).all():
                    return self._fail(trial, "its evaluations are not finite", board, own)
                self.journal.report(trial, float(np.mean(scores)))
            self._judge(trial)
        return []

    def _target(self, trial: Trial) -> int:
        """The next rung at which the trial may be paused, or the last."""
        rungs = range(len(trial.scores), len(self.tuning.rungs) - 1)
        able = (rung for rung in rungs if math.isfinite(self._median(trial, rung)))
        return next(able, len(self.tuning.rungs) - 1)

    def _cells(self, trial: Trial) -> list[Cell]:
        tuning = self.tuning
        arm = tuning.arm(trial.values, name(trial))
        steps = tuning.rungs[self._target(trial)]
        cells = [tuning.cell(arm, seed, steps) for seed in tuning.experiment.seeds]
        return [replace(cell, track=self.track) for cell in cells]

    def _fail(self, trial: Trial, reason: str, board: Board, own: set[Path]) -> list[Cell]:
        trial.outcome, trial.reason = "failed", reason
        board.waiting[:] = [status for status in board.waiting if status.cell.path not in own]
        return []

    def _judge(self, trial: Trial) -> None:
        """Complete or pause a trial, or let it continue, by its newest score."""
        rung = len(trial.scores) - 1
        if rung == len(self.tuning.rungs) - 1:
            trial.outcome = "complete"
        elif rung >= 0 and trial.scores[rung] < self._median(trial, rung):
            trial.outcome = "paused"

    def _median(self, trial: Trial, rung: int) -> float:
        """Median of the scores at a rung that were known when the trial was drawn."""
        others = [x.scores[rung] for x in self.trials[: trial.known] if len(x.scores) > rung]
        return float(np.median(others)) if len(others) >= COMPARED else -math.inf

    def _tell(self) -> bool:
        """Record the outcome of the next trial in order, if it is known.

        One at a time, so that the results known to a draw do not depend on the speed of runs.
        """
        if self.told == len(self.trials) or self.trials[self.told].outcome is None:
            return False
        trial = self.trials[self.told]
        self.journal.tell(trial)
        self.say(self._line(trial))
        self.told += 1
        return True

    def _line(self, trial: Trial) -> str:
        start = f"Trial {trial.number}{' (the defaults)' if not trial.number else ''}"
        if trial.outcome == "failed":
            return f"{start} failed: {trial.reason}"
        reached, rung = trial.scores[-1], len(trial.scores) - 1
        if trial.outcome == "paused":
            return (
                f"{start}: paused at {self.tuning.rungs[rung]:,} steps, because its score of "
                f"{shown(reached)} is below the median of {shown(self._median(trial, rung))}"
            )
        best = max(x.scores[-1] for x in [*complete(self.trials[: self.told]), trial])
        return f"{start}: score {shown(reached)}{', the best so far' if reached == best else ''}"


def name(trial: Trial) -> str:
    """The label of a trial's arm."""
    return f"trial {trial.number}" if trial.number else DEFAULTS


def complete(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that ran to the end."""
    return [trial for trial in trials if trial.outcome == "complete"]


def shown(value: float) -> str:
    """A score in a sentence."""
    size = abs(value)
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3}f}"
