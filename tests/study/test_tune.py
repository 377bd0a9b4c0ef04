"""Tuning: search spaces, the driver with a stub in place of runs, and a small real study."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from disc import DiscError
from disc.algos import BUILT_IN
from disc.report import plots
from disc.run import log as run_log
from disc.study import confirm, space, spec, statistics, sweep, tune
from disc.study.confirm import TuningOutcome
from disc.study.spec import Cell
from disc.study.sweep import Board, Status
from disc.study.trials import JOURNAL, Journal, Trial
from disc.study.tune import Driver, Tuning
from tests.support.command import run
from tests.support.small import PPO
from tests.support.studies import toml
from tests.support.sweeps import config

RATE = {"low": 1e-4, "high": 1e-2, "log": True}
SPACE = {"learning_rate": RATE, "epochs": {"low": 1, "high": 4}, "gamma": {"choices": [0.9, 0.99]}}
BASE = {"task": "Pendulum-v1", "algo": "ppo", "steps": 1000, "eval_every": 50, "trials": 8}


def write(folder: Path, **changes: Any) -> Path:
    """A study's file."""
    contents = {**BASE, "space": SPACE, "random_trials": 3, **changes}
    lines = [f"{name} = {toml(x)}" for name, x in contents.items() if x is not None]
    path = folder / "study.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "PAUSE", 0.0)
    monkeypatch.setattr(plots, "save", lambda *_: None)


# Files


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"space": {"speed": RATE}}, r"\[space\] ppo has no option speed; it has horizon"),
        ({"space": {}}, r"\[space\] is empty"),
        ({"space": {"epochs": 3}}, r"\[space\] epochs must be a table, such as .*, not 3"),
        ({"space": {"epochs": {"low": 1}}}, "epochs must have low and high, or choices"),
        ({"space": {"epochs": {"low": 1, "hi": 3}}}, "epochs has no 'hi'; use low, high"),
        ({"space": {"epochs": {"low": 1.5, "high": 3}}}, "epochs.low must be a whole number"),
        ({"space": {"epochs": {"low": 5, "high": 3}}}, "epochs.low must be below high, 3, not 5"),
        ({"space": {"epochs": {"low": 1, "high": 4, "step": 2}}}, "step must be above 0 and div"),
        ({"space": {"lam": {"low": 0, "high": 1, "log": True}}}, "lam.low must be above 0 if log"),
        ({"space": {"lam": {"low": "a", "high": 1}}}, "lam.low must be a number, not 'a'"),
        ({"space": {"lam": {"low": 0.5, "high": 2}}}, r"lam: 2.0 is refused: lam must be within"),
        ({"space": {"widths": {"low": 1, "high": 2}}}, "widths can't be a range; give choices"),
        ({"space": {"widths": {"choices": [[64], [0]]}}}, r"widths: \[0\] is refused: widths must"),
        ({"space": {"widths": {"choices": [[64]]}}}, "widths.choices must be a list of two or"),
        ({"space": {"gamma": {"choices": [0.9, 0.9]}}}, "gamma.choices has a value twice"),
        ({"space": {"gamma": {"choices": [0.9, "a"]}}}, "gamma: a is refused: gamma must be a num"),
        ({"space": SPACE, "options": {"epochs": 2}}, r"epochs is in \[options\] and in \[space\]"),
        ({"options": {"speed": 2}}, "ppo has no option speed"),
        ({"options": {"label": "a"}}, "label is not one of the"),
        ({"algo": "alpha"}, "an arm's algo must be one of acktr, .*, not 'alpha'"),
        ({"preset": "best"}, "preset must be one of recommended, paper, not 'best'"),
        ({"tasks": ["a"]}, "a study has no entry 'tasks'; choose from algo, "),
        ({"steps": None}, "has no steps; add steps = 100_000"),
        ({"trials": 0}, "trials must be a whole number of at least 1, not 0"),
        ({"seeds": [3]}, "seeds must have at least two entries"),
        ({"seeds": [3, -1]}, "seed must be a whole number of at least 0"),
        ({"fresh_seeds": 1}, "fresh_seeds must be at least 2"),
        ({"eval_every": 0}, "eval_every must be at least 1"),
        ({"eval_every": 300}, "eval_every, 300, must be at most the steps of the first rung, 250"),
        ({"rungs": [0.5, 0.25]}, "rungs must be fractions between 0 and 1 that increase"),
        ({"rungs": 0.5}, "rungs must be a list"),
        ({"env_kwargs": {"name": "x" * 250}}, "name of the directory of 'defaults' .* is too long"),
    ],
)
def test_invalid_study_is_refused_in_a_sentence_before_anything_is_written(
    changes: dict[str, Any],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(DiscError, match=says) as raised:
        tune.read(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)
    monkeypatch.chdir(tmp_path)
    assert run("tune", path) == 2
    assert [x.name for x in tmp_path.iterdir()] == ["study.toml"]


def test_value_is_valid_if_compatible_with_some_value_of_other_options(tmp_path: Path) -> None:
    low = {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}  # below its floor, 1e-4
    with pytest.raises(DiscError, match="learning_rate: 1e-05 is refused: learning_rate_floor mus"):
        tune.read(write(tmp_path, space=low))
    floor = {"learning_rate_floor": {"choices": [0.0, 1e-5]}}
    assert set(tune.read(write(tmp_path, space={**low, **floor})).space) == {*low, *floor}
    assert tune.read(write(tmp_path, space=low, options={"learning_rate_floor": 0.0})).trials == 8


@pytest.mark.parametrize("algorithm", sorted(x.stem for x in space.SPACES.glob("*.toml")))
def test_default_space_is_valid_and_holds_the_defaults(algorithm: str, tmp_path: Path) -> None:
    tuning = tune.read(write(tmp_path, algo=algorithm, space=None))
    assert len(tuning.space) >= 6
    assert all(tuning.space[n].holds(value) for n, value in tuning.defaults.items() if value)


def test_every_built_in_algorithm_has_a_default_space_and_others_raise() -> None:
    assert {x.stem for x in space.SPACES.glob("*.toml")} == {x.NAME for x in BUILT_IN}
    with pytest.raises(DiscError, match=r"no default search space for theirs; add a table \[spac"):
        space.default("theirs")


def test_missing_optuna_is_reported_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    assert run("tune", write(tmp_path)) == 2
    assert capsys.readouterr().err == "disc: disc tune needs Optuna: pip install 'disc-rl[tune]'.\n"


def test_score_uses_scheduled_evaluations_up_to_the_rung() -> None:
    rows: list[run_log.Row] = [{"step": 80 * i, "eval/return": float(i)} for i in range(1, 11)]
    # Multiples of 100 are passed at 160, 240, 320, 400, 480 …; the run reaches 390 at 400.
    assert tune.score(rows, 390, 100, 2) == 4.5
    assert tune.score(rows[:6], 390, 100, 2) == 4.5  # continued or not
    assert tune.score(rows, 200, 100, 9) == 2.5
    assert math.isnan(tune.score(rows, 50, 100, 1))


# The driver


class Stub:
    """A backend whose runs end at once, with returns that depend on their options and seed.

    Args:
        jobs: that run in parallel.
        stop: number of started runs after which it raises, as if the driver was killed.
        broken: says which runs fail.
        slow: polls until a run ends.
    """

    def __init__(
        self,
        jobs: int = 1,
        stop: int = 10**9,
        broken: Callable[[Cell], bool] = lambda cell: False,
        slow: Callable[[Cell], int] = lambda cell: 1,
    ) -> None:
        self.jobs, self.stop, self.broken, self.slow = jobs, stop, broken, slow
        self.started: list[Cell] = []

    def slots(self) -> int:
        return self.jobs

    def start(self, root: Path, found: Status) -> Any:
        if len(self.started) == self.stop:
            raise ZeroDivisionError
        self.started.append(found.cell)
        return StubJob(root, found.cell, self.broken(found.cell), self.slow(found.cell))

    def close(self, root: Path) -> None:
        pass


class StubJob:
    def __init__(self, root: Path, cell: Cell, broken: bool, polls: int) -> None:
        self.root, self.cell, self.broken, self.polls = root, cell, broken, polls

    def poll(self) -> int | None:
        self.polls -= 1
        if self.polls > 0:
            return None
        if self.broken:
            return 1
        cell, path = self.cell, self.root / self.cell.path
        rate = {**cell.options}.get("learning_rate", 3e-4)
        height = -abs(math.log(rate / 2e-3)) + 0.1 * math.sin(1e6 * rate + cell.seed)
        rows = [f"{x},{x * height / 1000}\n" for x in range(50, cell.steps + 1, 50)]
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(config(cell)))
        (path / "progress.csv").write_text("".join(["step,eval/return\n", *rows]))
        (path / f"checkpoints/step_{cell.steps:012d}.safetensors").touch()
        return 0

    def rows(self) -> list[run_log.Row]:
        return []

    def stop(self, now: bool = False) -> None:
        self.polls, self.broken = 0, True

    def last_output(self) -> str:
        return "NonFinite: the loss is NaN"


def open_journal(tuning: Tuning, root: Path) -> Journal:
    arguments = (tuning.identity, tuning.space, tuning.defaults, tuning.seed)
    return Journal(root, *arguments, tuning.random_trials)


def search(
    tuning: Tuning, root: Path, stub: Stub, parallel: int = 1, said: list[str] | None = None
) -> list[Trial]:
    journal = open_journal(tuning, root)
    said = [] if said is None else said
    try:
        driver = Driver(tuning, root, journal, parallel, said.append)
        sweep.run(root / tune.SEARCH, [], stub, 0, lambda board: None, driver.more)
        assert journal.trials() == driver.trials
        return driver.trials
    finally:
        journal.close()


@pytest.fixture
def tuning(tmp_path: Path) -> Tuning:
    return tune.read(write(tmp_path))


@pytest.fixture
def whole(tuning: Tuning, tmp_path: Path) -> list[Trial]:
    """The trials of an undisturbed study."""
    return search(tuning, tmp_path / "whole", Stub())


def test_first_trial_has_the_defaults_and_bad_trials_are_paused(
    tuning: Tuning, tmp_path: Path
) -> None:
    stub, said = Stub(), list[str]()
    found = search(tuning, tmp_path / "a", stub, said=said)
    assert len(found) == len(said) == 8
    assert (found[0].values, found[0].outcome) == ({}, "complete")
    first = [cell for cell in stub.started if not cell.arm.options]
    assert [(cell.seed, cell.steps) for cell in first] == [(0, 1000), (1, 1000)]
    for trial in found[1:]:
        assert trial.values.keys() == SPACE.keys()
        assert 1e-4 <= trial.values["learning_rate"] <= 1e-2
        assert trial.values["epochs"] in range(1, 5)
    paused = [trial for trial in found if trial.outcome == "paused"]
    assert paused
    assert all(trial.number >= tune.COMPARED for trial in paused)
    assert {len(trial.scores) for trial in paused} <= {1, 2}
    for trial in paused:
        others = [x.scores[len(trial.scores) - 1] for x in found[: trial.number]
                  if len(x.scores) >= len(trial.scores)]  # fmt: skip
        assert trial.scores[-1] < np.median(others)
        assert f"Trial {trial.number}: paused at" in said[trial.number]
    with open(tmp_path / "a" / JOURNAL, encoding="utf-8") as lines:
        assert all(isinstance(json.loads(line), dict) for line in lines)


def test_study_killed_anywhere_equals_an_uninterrupted_one(
    tuning: Tuning, tmp_path: Path, whole: list[Trial]
) -> None:
    root, killed = tmp_path / "killed", 0
    for _ in range(30):
        try:
            found = search(tuning, root, Stub(stop=1))
            break
        except ZeroDivisionError:
            killed += 1
            with open(root / JOURNAL, "a") as file:
                file.write('{"op_code": 4, "wor')  # a line that was not completed
            (root / f"{JOURNAL}.lock").touch()
    assert killed > 8
    assert found == whole


def test_trials_do_not_depend_on_which_run_is_faster(tuning: Tuning, tmp_path: Path) -> None:
    quick = search(tuning, tmp_path / "a", Stub(4), 2)
    slow = Stub(4, slow=lambda cell: 1 + hash(cell.path.name) % 7)
    assert search(tuning, tmp_path / "b", slow, 2) == quick
    assert [trial.known for trial in quick] == [0, 0, 1, 2, 3, 4, 5, 6]


def test_failed_trial_is_recorded_with_its_reason_and_the_study_continues(
    tuning: Tuning, tmp_path: Path
) -> None:
    def broken(cell: Cell) -> bool:
        return cell.seed == 1 and cell.arm.options.get("epochs") in (1, 2)

    found = search(tuning, tmp_path / "a", Stub(broken=broken))
    failed = [trial for trial in found if trial.outcome == "failed"]
    assert failed
    assert all("seed1: NonFinite: the loss is NaN" in trial.reason for trial in failed)
    assert len(found) == 8
    assert len(tune.complete(found)) > 1


def test_incompatible_values_fail_their_trial_without_a_run(tmp_path: Path) -> None:
    both = {"horizon": {"choices": [1024, 1000]}, "gradient_steps": {"choices": [32, 8]}}
    tuning = tune.read(write(tmp_path, space=both, trials=10))
    stub = Stub()
    found = search(tuning, tmp_path / "a", stub)
    failed = [trial for trial in found if trial.outcome == "failed"]
    assert failed
    assert {trial.values["horizon"] for trial in failed} == {1000}
    assert "horizon must be divisible by gradient_steps" in failed[0].reason
    assert len({cell.path for cell in stub.started}) <= 8  # equal trials share their runs


def test_study_can_be_extended_but_not_changed_otherwise(
    tuning: Tuning, tmp_path: Path, whole: list[Trial]
) -> None:
    root = tmp_path / "whole"
    longer = tune.read(write(tmp_path, trials=10, fresh_seeds=3, title="Longer"))
    assert search(longer, root, Stub())[:8] == whole
    with pytest.raises(DiscError, match=r"is a different study \(seed is 0, not 1\); choose"):
        open_journal(tune.read(write(tmp_path, seed=1)), root)


def test_second_process_on_a_study_is_refused(tuning: Tuning, tmp_path: Path) -> None:
    journal = open_journal(tuning, tmp_path / "a")
    with pytest.raises(DiscError, match="is locked by another process"):
        open_journal(tuning, tmp_path / "a")
    journal.close()


@pytest.mark.parametrize("damage", ["{}\n", "[1]\n", "no\n", '{"op_code":4}\n', "\n", "link"])
def test_damaged_journal_is_reported_in_a_sentence(
    damage: str, tuning: Tuning, tmp_path: Path
) -> None:
    open_journal(tuning, tmp_path / "a").close()
    path = tmp_path / "a" / JOURNAL
    if damage == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([lines[0], damage, *lines[1:]]))
    with pytest.raises(DiscError, match=JOURNAL):
        open_journal(tuning, tmp_path / "a")


def test_run_that_is_still_locked_is_tried_again(tuning: Tuning, tmp_path: Path) -> None:
    journal = open_journal(tuning, tmp_path)
    driver = Driver(tuning, tmp_path, journal, 1, lambda line: None)
    first, _ = driver.more(Board(0))
    board = Board(2, failed={first.cell: "is locked"}, locked={first.cell})
    assert first.cell in [status.cell for status in driver.more(board)]
    assert driver.trials[0].outcome is None
    journal.close()


def test_importances_favour_the_option_that_matters(tuning: Tuning, tmp_path: Path) -> None:
    search(tune.read(write(tmp_path, trials=20, rungs=[])), tmp_path / "a", Stub())
    journal = open_journal(tune.read(write(tmp_path, trials=20, rungs=[])), tmp_path / "a")
    found = journal.importances()
    journal.close()
    assert next(iter(found)) == "learning_rate"
    assert sum(found.values()) == pytest.approx(1.0)


# Results


def outcome(tuning: Tuning, *means: float, spread: float = 1.0) -> TuningOutcome:
    """The defaults and other arms, with returns around means."""
    found = []
    for number, mean in enumerate(means):
        trial = Trial(number, {"epochs": number} if number else {}, 0, [mean], "complete")
        near = tuple(mean + spread * x for x in (-1.0, -0.5, 0.0, 0.5, 1.0))
        found.append(confirm.Result(trial, tuning.arm(trial.values, tune.name(trial)), near))
    others = [confirm._against(x, found[0], len(found) - 1) for x in found[1:]]
    return TuningOutcome(tuning, [x.trial for x in found], [found[0], *others])


def test_sentence_claims_no_more_than_the_interval(tuning: Tuning) -> None:
    assert outcome(tuning, 10.0, 30.0, 20.0).sentence.startswith(
        "Better than the defaults on 5 fresh seeds: trial 1 has 30.00 against 10.00, a difference "
        "of 20.00 (95 % interval 18."
    )
    unsure = outcome(tuning, 10.0, 10.5, 9.0).sentence
    assert unsure.startswith("Not shown to be better than the defaults")
    assert "corrected for choosing the best of 2" in unsure
    assert outcome(tuning, 10.0, 5.0).sentence.startswith("Not better than the defaults")
    assert outcome(tuning, 10.0).sentence.startswith("No trial other than the defaults")


def test_difference_interval_agrees_with_scipy(rng: np.random.Generator) -> None:
    x, y = rng.normal(3.0, 2.0, 5), rng.normal(1.0, 0.5, 4)
    known = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.98)
    assert statistics.difference_interval(x, y, 0.98) == pytest.approx(tuple(known))
    assert statistics.difference_interval(np.ones(3), np.zeros(3)) == (1.0, 1.0)


def test_finalists_are_the_defaults_and_the_three_best_different_trials(tuning: Tuning) -> None:
    scores = {0: 9.0, 1: 1.0, 2: 5.0, 3: 4.0, 4: 5.0, 5: 3.0}
    values = {0: {}, 1: {"epochs": 1}, 2: {"epochs": 2}, 3: {"epochs": 3}, 4: {"epochs": 2}}
    values[5] = {"epochs": 10}  # the default
    found = [Trial(n, values[n], n, [0, 0, x], "complete") for n, x in scores.items()]
    found.append(Trial(6, {"epochs": 4}, 6, [9.0], "paused"))
    assert [trial.number for trial in confirm.finalists(tuning, found)] == [0, 2, 3, 1]


# Real runs


class InProcess:
    """A backend that runs cells in this process, one after the other."""

    def slots(self) -> int:
        return 1

    def start(self, root: Path, found: Status) -> Any:
        code = run(*sweep.cli_args(root, found))
        job = StubJob(root, found.cell, code != 0, 1)
        job.poll = lambda: code  # type: ignore[method-assign]
        return job

    def close(self, root: Path) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


SMALL = {
    "task": "tests.support.studies:paced",
    "steps": 512,
    "eval_every": 256,
    "eval_episodes": 1,
    "rungs": [0.5],
    "trials": 2,
    "fresh_seeds": 2,
    "options": {**PPO, "widths": list(PPO["widths"])},
    "space": {"learning_rate": RATE},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small study that has ended."""
    folder = tmp_path_factory.mktemp("tune")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sweep, "PAUSE", 0.0)
        patch.setattr(plots, "save", lambda *_: None)  # most of the time goes there
        patch.setattr("disc.cli.tune.make_backend", lambda options: InProcess())
        assert run("tune", write(folder, **SMALL)) == 0
    return folder


def test_study_ends_with_results_on_fresh_seeds_only(study: Path) -> None:
    root = study / "runs/study"
    assert sorted(path.name for path in root.iterdir()) == [
        "best.toml", "fresh", "journal.log", "search", "summary.json", "tuning.html",
    ]  # fmt: skip
    seeds = {
        part: {json.loads(x.read_text())["seed"] for x in (root / part).rglob("config.json")}
        for part in (tune.SEARCH, tune.FRESH)
    }
    assert seeds == {"search": {0, 1}, "fresh": {2, 3}}
    summary = json.loads((root / "summary.json").read_text())
    first, second = summary["results_on_fresh_seeds"]
    assert (first["arm"], first["values"]) == ("defaults", {})
    assert set(second["returns"]) == {"2", "3"}
    assert second["mean"] - first["mean"] == pytest.approx(second["difference"])
    assert "the defaults on 2 fresh seeds" in summary["sentence"]


def test_best_arm_is_accepted_by_sweep_and_its_runs_are_done(study: Path) -> None:
    root = study / "runs/study"
    experiment = spec.read(root / "best.toml")
    assert [arm.label for arm in experiment.arms] == ["defaults", "tuned (trial 1)"]
    found = sweep.look(root / "fresh", experiment.cells())
    assert len(found) == 4
    assert all(status.done for status in found)


def test_page_shows_results_history_options_and_trials(study: Path) -> None:
    text = (study / "runs/study/tuning.html").read_text()
    for part in ("Results on fresh seeds", "History", "Options and scores", "All trials"):
        assert part in text
    assert "http" not in text.replace("http-equiv", "")
    assert json.loads((study / "runs/study/summary.json").read_text())["sentence"] in text


def test_repeating_the_command_of_a_finished_study_runs_nothing(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(study)
    monkeypatch.setattr("disc.cli.tune.make_backend", lambda options: Stub(stop=0))
    assert run("tune", "study.toml") == 0
    assert "the defaults on 2 fresh seeds" in capsys.readouterr().out


def test_paused_trial_continues_bit_for_bit(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tuning = tune.read(study / "study.toml")
    journal = open_journal(tuning, study / "runs/study")
    trial = journal.trials()[1]
    journal.close()
    arm = tuning.arm(trial.values, "")
    paused = tuning.cell(arm, 0, tuning.rungs[0])
    assert run(*paused.command(tmp_path / tune.SEARCH)) == 0
    command = next(confirm.continue_commands(tuning, tmp_path, trial))
    assert run(*command.split()[1:]) == 0
    whole, continued = (
        [
            {name: x for name, x in row.items() if not name.startswith("time/")}
            for row in run_log.read_progress(root / "search" / paused.path / "progress.csv")
        ]
        for root in (study / "runs/study", tmp_path)
    )
    assert whole == continued
    assert len(whole) == 2


def test_dry_run_shows_the_space_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("disc.study.estimate.estimate", lambda *_: {"cell": 3600.0})
    assert run("tune", write(tmp_path), "--dry-run", "--jobs", "2") == 0
    out = capsys.readouterr().out
    assert "at most 36 runs, about 18.00 h with 2 at a time if none is paused" in out
    assert "learning_rate" in out
    assert "0.0001 to 0.01 (log)" in out
    assert [x.name for x in tmp_path.iterdir()] == ["study.toml"]
