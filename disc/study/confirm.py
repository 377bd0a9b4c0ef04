"""The best trials of a search on fresh seeds: the only numbers of `disc tune` that are results.

The best of many trials were partly lucky on the seeds of the search. So the best three and the
defaults run on seeds that the search did not use, and are compared there.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from disc import host
from disc.envs.factory import Maker
from disc.study import statistics
from disc.study.spec import Arm, Experiment, Figure
from disc.study.trials import Trial
from disc.study.tune import DEFAULTS, FRESH, SEARCH, Tuning, complete, name, run_score, shown

TOP = 3  # trials that run on fresh seeds
LEVEL = 0.95
BEST, SUMMARY = "best.toml", "summary.json"


def finalists(tuning: Tuning, trials: Sequence[Trial]) -> list[Trial]:
    """The defaults, and the best trials of the search that are different from each other."""
    arms = [tuning.arm({}, "")]
    found: list[Trial] = []
    for trial in sorted(complete(trials[1:]), key=lambda x: (-x.scores[-1], x.number)):
        arm = tuning.arm(trial.values, "")
        if arm not in arms and len(found) < TOP:
            arms.append(arm)
            found.append(trial)
    return [trials[0], *found]


def experiment(tuning: Tuning, chosen: Sequence[Trial]) -> Experiment:
    """The sweep that compares trials on the fresh seeds."""
    arms = tuple(tuning.arm(trial.values, name(trial)) for trial in chosen)
    title = f"{tuning.experiment.title}: fresh seeds"
    curves = Figure("Learning curves on the fresh seeds", window=1)
    plan = tuning.experiment
    return replace(plan, title=title, arms=arms, seeds=tuning.fresh, figures=(curves,))


@dataclass(frozen=True)
class Result:
    """An arm on the fresh seeds."""

    trial: Trial
    arm: Arm
    returns: tuple[float, ...] = ()  # the score of each seed; none if a run failed
    reason: str = ""  # of a failure
    difference: float = math.nan  # of the means: this arm's less that of the defaults
    interval: tuple[float, float] | None = None  # of the difference

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(self.returns)) if self.returns else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation over seeds."""
        return float(np.std(self.returns, ddof=1)) if self.returns else math.nan


def compare(
    tuning: Tuning, root: Path, chosen: Sequence[Trial], failed: Mapping[Path, str]
) -> list[Result]:
    """The results, the defaults first.

    Args:
        tuning: the study.
        root: its directory.
        chosen: the defaults and the other finalists.
        failed: reasons, by path of the run.
    """
    found = []
    for trial in chosen:
        arm = tuning.arm(trial.values, name(trial))
        cells = [tuning.cell(arm, seed, tuning.steps) for seed in tuning.fresh]
        scores = [run_score(root / FRESH, cell, tuning.last) for cell in cells]
        bad = [failed.get(x.path, "no finite score") for x in cells if x.path in failed]
        if bad or not np.isfinite(scores).all():
            found.append(Result(trial, arm, reason=next(iter(bad), "its scores are not finite")))
        else:
            found.append(Result(trial, arm, tuple(scores)))
    first, *others = found
    return [first, *(_against(x, first, len(others)) for x in others)]


def _against(result: Result, defaults: Result, count: int) -> Result:
    """The result with its difference from the defaults, if both have one."""
    if not result.returns or not defaults.returns:
        return result
    pair = np.array(result.returns), np.array(defaults.returns)
    level = 1.0 - (1.0 - LEVEL) / count  # corrects for choosing the best of several
    ends = statistics.difference_interval(*pair, level=level)
    return replace(result, difference=result.mean - defaults.mean, interval=ends)


@dataclass(frozen=True)
class TuningOutcome:
    """A study that has ended."""

    tuning: Tuning
    trials: list[Trial]
    results: list[Result]  # the defaults first
    importances: dict[str, float] = field(default_factory=dict)

    @property
    def best(self) -> Result | None:
        """The trial with the highest mean on the fresh seeds; None if there is none."""
        found = [result for result in self.results[1:] if result.returns]
        return max(found, key=lambda result: result.mean, default=None)

    @property
    def sentence(self) -> str:
        """Whether the search found something better than the defaults."""
        best, defaults = self.best, self.results[0]
        seeds = f"{len(self.tuning.fresh)} fresh seeds"
        if best is None:
            return "No trial other than the defaults ran to the end, so there is nothing to report."
        if not defaults.returns:
            return (
                f"The defaults failed on {seeds} ({defaults.reason}); trial {best.trial.number} "
                f"reached {shown(best.mean)}."
            )
        assert best.interval is not None
        low, high = best.interval
        count = sum(bool(result.returns) for result in self.results[1:])
        both = f"{shown(best.mean)} against {shown(defaults.mean)}"
        some = f", corrected for choosing the best of {count}" if count > 1 else ""
        ends = f"{100 * LEVEL:.0f} % interval {shown(low)} to {shown(high)}{some}"
        by = f"trial {best.trial.number} has {both}, a difference of {shown(best.difference)}"
        if low > 0.0:
            return f"Better than the defaults on {seeds}: {by} ({ends})."
        if best.difference <= 0.0:
            return f"Not better than the defaults on {seeds}: {by} ({ends})."
        return f"Not shown to be better than the defaults on {seeds}: {by} ({ends})."

    def as_json(self) -> str:
        """All numbers, for `summary.json`."""
        tuning = self.tuning
        results = [
            {
                "arm": result.arm.label,
                "trial": result.trial.number,
                "values": result.trial.values,
                "returns": dict(zip(map(str, tuning.fresh), result.returns, strict=False)),
                "mean": _number(result.mean),
                "std": _number(result.spread),
                "difference": _number(result.difference),
                "interval": result.interval,
                "failed": result.reason or None,
            }
            for result in self.results
        ]
        contents = {
            "study": tuning.given,
            "sentence": self.sentence,
            "results_on_fresh_seeds": results,
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
            "importances": self.importances,
            "versions": host.versions(),
            "commit": host.commit(),
        }
        return json.dumps(contents, indent=1) + "\n"

    def as_toml(self) -> str:
        """The defaults and the best trial as a file for `disc sweep`."""
        tuning, best = self.tuning, self.best
        plan = tuning.experiment
        top = {
            "title": f"{plan.title}: tuned against defaults",
            "note": self.sentence,
            "tasks": [tuning.task],
            "seeds": list(tuning.fresh),
            "steps": tuning.steps,
            "eval_every": plan.eval_every[tuning.task],
            "eval_episodes": plan.eval_episodes,
            "checkpoint_every": plan.checkpoint_every,
        }
        lines = [f"{key} = {toml(value)}" for key, value in top.items()]
        for result in [self.results[0], *([best] if best else [])]:
            label = f"tuned ({result.arm.label})" if result.trial.number else DEFAULTS
            lines += ["", "[[arms]]", f"label = {toml(label)}"]
            for key, value in {**tuning.base, **result.trial.values}.items():
                several = isinstance(value, list) and key != "widths"  # a list would be an axis
                lines.append(f"{key} = {toml([value] if several else value)}")
        return "\n".join(lines) + "\n"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(n)} = {toml(x)}" for n, x in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


def continue_commands(tuning: Tuning, root: Path, trial: Trial) -> Iterator[str]:
    """The commands that continue the runs of a paused trial to their full length."""
    arm = tuning.arm(trial.values, name(trial))
    for seed in tuning.experiment.seeds:
        cell = tuning.cell(arm, seed, tuning.steps)
        args = ["disc", "resume", str(root / SEARCH / cell.path), "--steps", str(tuning.steps)]
        yield shlex.join([*args, "--threads", "1", *Maker(cell.task, arm.env_kwargs).cli_args])
