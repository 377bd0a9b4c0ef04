"""The trials of `disc tune`, in an Optuna journal: a file with one JSON object per line.

A new trial is one line, written whole or not at all, with the values of its options. They depend
only on the study's seed, the trial's number and the results known when it was drawn, so an
interrupted study continues like an uninterrupted one.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from disc import storage
from disc.run.lock import Lock
from disc.study.space import Choices, Range, Space
from disc.types import DiscError

JOURNAL = "journal.log"
NAME = "tune"  # of the study in its journal
TOP = 0.3  # share of the trials that count as good for the importances
FEWEST = 5  # trials from which importances are estimated
TrialOutcome = Literal["complete", "paused", "failed"]


@dataclass
class Trial:
    """Values of the searched options, and their results."""

    number: int
    values: dict[str, Any]  # none in trial 0, which has the defaults
    known: int  # trials whose results were known when it was drawn
    scores: list[float] = field(default_factory=list)  # at each rung
    outcome: TrialOutcome | None = None  # None while it runs
    reason: str = ""  # of a failure


def optuna() -> Any:
    """The module; raises a `DiscError` if it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise DiscError("disc tune needs Optuna: pip install 'disc-rl[tune]'.") from error
    optuna.logging.set_verbosity(logging.ERROR)
    return optuna


class Journal:
    """The trials of one study, locked by this process; close it at the end.

    Args:
        root: the study's directory, which is made.
        identity: what must not change while the study is continued.
        space: the searched options.
        defaults: their default values.
        seed: the sampler's.
        startup: number of trials before the sampler uses results.

    Raises:
        DiscError: the directory has another study, is locked, damaged, or can't be written.
    """

    def __init__(
        self,
        root: Path,
        identity: dict[str, Any],
        space: Space,
        defaults: dict[str, Any],
        seed: int,
        startup: int,
    ) -> None:
        self.optuna, self.root, self.space = optuna(), root, space
        self.defaults, self.seed, self.startup = defaults, seed, startup
        states = self.optuna.trial.TrialState
        self.states: dict[TrialOutcome, Any]
        self.states = {"complete": states.COMPLETE, "paused": states.PRUNED, "failed": states.FAIL}
        self.distributions = {n: self._distribution(entry) for n, entry in space.items()}
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.lock = Lock.take(root)
        except OSError as error:
            raise DiscError(f"{root}: can't be written ({error}).") from error
        try:
            self.study = self._open(root / JOURNAL)
            self._check(identity)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> Any:
        path = path.absolute()
        if not storage.within(path, path.parent):
            raise DiscError(f"{path}: is a link that leads out of {path.parent}; remove it.")
        backend = self.optuna.storages.journal
        path.with_name(f"{JOURNAL}.lock").unlink(missing_ok=True)  # a kill left it
        try:
            if path.is_file():
                _complete_lines(path)
            lock = backend.JournalFileOpenLock(str(path))
            journal = backend.JournalFileBackend(str(path), lock)
            return self.optuna.create_study(
                storage=self.optuna.storages.JournalStorage(journal),
                study_name=NAME,
                direction="maximize",
                load_if_exists=True,
            )
        except (OSError, KeyError, TypeError, ValueError, AssertionError) as error:
            raise DiscError(f"{path}: can't be read or written ({error}).") from error

    def _check(self, identity: dict[str, Any]) -> None:
        there = self.study.user_attrs.get("identity")
        if there is None:
            self.study.set_user_attr("identity", identity)
            return
        names = sorted({*there, *identity})
        other = [
            f"{name} is {json.dumps(there.get(name))}, not {json.dumps(identity.get(name))}"
            for name in names
            if there.get(name) != json.loads(json.dumps(identity.get(name)))
        ]
        if other:
            raise DiscError(
                f"{self.root}: is a different study ({'; '.join(other)}); choose another --out."
            )

    def _distribution(self, entry: Range | Choices) -> Any:
        found = self.optuna.distributions
        if isinstance(entry, Choices):
            return found.CategoricalDistribution(entry.labels)
        if entry.whole:
            return found.IntDistribution(
                int(entry.low), int(entry.high), log=entry.log, step=int(entry.step or 1)
            )
        return found.FloatDistribution(entry.low, entry.high, log=entry.log, step=entry.step)

    def trials(self) -> list[Trial]:
        """All trials, in order; raises a `DiscError` if the journal is damaged."""
        names = {state: name for name, state in self.states.items()}
        try:
            return [
                Trial(
                    trial.number,
                    dict(trial.user_attrs["values"]),
                    int(trial.user_attrs["known"]),
                    [float(value) for _, value in sorted(trial.intermediate_values.items())],
                    names.get(trial.state),
                    str(trial.user_attrs.get("reason", "")),
                )
                for trial in self.study.get_trials(deepcopy=False)
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise DiscError(f"{self.root / JOURNAL}: is damaged ({error!r}).") from error

    def ask(self, known: int) -> Trial:
        """Draw a new trial; the first has the defaults.

        Args:
            known: trials whose results are recorded.
        """
        number = len(self.study.get_trials(deepcopy=False))
        if number:
            params = self._draw(number)
            values = {name: entry.value(params[name]) for name, entry in self.space.items()}
        else:
            values = {}
            inside = {n: x for n, x in self.defaults.items() if self.space[n].holds(x)}
            params = {n: self._internal(n, x) for n, x in inside.items()}
        self.study.add_trial(
            self.optuna.create_trial(
                state=self.optuna.trial.TrialState.RUNNING,
                params=params,
                distributions={name: self.distributions[name] for name in params},
                user_attrs={"values": values, "known": known},
            )
        )
        return Trial(number, values, known)

    def _internal(self, name: str, value: Any) -> Any:
        """A value as Optuna knows it."""
        entry = self.space[name]
        return entry.labels[entry.values.index(value)] if isinstance(entry, Choices) else value

    def _draw(self, number: int) -> dict[str, Any]:
        """Draw from a copy of the study, which leaves no trace in the journal."""
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        sampler = self.optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=self.startup, constant_liar=True
        )
        copy = self._copy(sampler, self.study.get_trials(deepcopy=False))
        return dict(copy.ask(self.distributions).params)

    def _copy(self, sampler: Any, trials: Iterable[Any]) -> Any:
        """A study in memory with the trials that have values of all searched options."""
        copy = self.optuna.create_study(sampler=sampler, direction="maximize")
        copy.add_trials([x for x in trials if x.params.keys() == self.space.keys()])
        return copy

    def report(self, trial: Trial, score: float) -> None:
        """Record the score at the next rung."""
        self.study._storage.set_trial_intermediate_value(
            self._id(trial.number), len(trial.scores), score
        )
        trial.scores.append(score)

    def tell(self, trial: Trial) -> None:
        """Record the outcome."""
        assert trial.outcome is not None
        if trial.reason:
            self.study._storage.set_trial_user_attr(self._id(trial.number), "reason", trial.reason)
        value = trial.scores[-1] if trial.outcome == "complete" else None
        self.study.tell(trial.number, value, state=self.states[trial.outcome])

    def _id(self, number: int) -> int:
        return int(self.study.get_trials(deepcopy=False)[number]._trial_id)

    def importances(self) -> dict[str, float]:
        """How much each option matters for a trial to be among the best, by PED-ANOVA; sums to 1.

        Completed trials rank before paused ones, and these by how far they got. Empty if there are
        too few trials.
        """
        ended = [x for x in self.trials() if x.outcome in ("complete", "paused")]
        ended.sort(key=lambda x: (len(x.scores), x.scores[-1]))
        rank = {x.number: float(i) for i, x in enumerate(ended)}
        frozen = [x for x in self.study.get_trials(deepcopy=False) if x.number in rank]
        ranked = [
            self.optuna.create_trial(
                value=rank[x.number], params=x.params, distributions=x.distributions
            )
            for x in frozen
        ]
        copy = self._copy(None, ranked)
        if len(copy.get_trials(deepcopy=False)) < FEWEST or len(self.space) < 2:
            return {}
        evaluator = self.optuna.importance.PedAnovaImportanceEvaluator(target_quantile=TOP)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.optuna.importance.get_param_importances(copy, evaluator=evaluator)
        return {name: float(x) for name, x in found.items()}

    def close(self) -> None:
        """Release the lock."""
        self.lock.release()


def _complete_lines(path: Path) -> None:
    """Cut off an incomplete last line, left by a killed process."""
    with open(path, "r+b") as file:
        contents = file.read()
        file.truncate(contents.rfind(b"\n") + 1)
