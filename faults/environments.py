"""Environments that misbehave: training ends in one sentence with a good checkpoint, or works.

The environments are in `broken.py`. Each is trained from the command line, with an algorithm that
learns from whole batches and one that learns step by step, and has a checkpoint before its fault;
then it is fixed, and the run is resumed to its end.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

import disc
from disc.cli import main
from disc.envs import evaluate
from disc.report import plots
from disc.run import log
from faults import broken, short
from faults.outcome import Outcome, reported_cleanly, run

MODULE = broken.__name__
STEPS, EVERY = 192, 64

# The message for each, with the step; episodes end at steps 84 and 104.
AT, LAST = "at step 100", "at step 104"
JUDGED = "at step 1 of episode 2 of the evaluation at step 128"
NUMBERS, FIVE = "not an array of numbers", "five are needed: observation, reward, terminated"
RAISING = {
    "StepRaises": rf"raised {AT} \(RuntimeError: the motor is on fire\)",
    "StepExits": rf"raised {AT} \(SystemExit: 0\)",
    "FirstResetRaises": r"the reset at step 0 raised \(RuntimeError: no robot is plugged in\)",
    "LaterResetRaises": r"the reset after step 104 raised \(RuntimeError: the robot fell off",
    "MadeOnce": "a new environment was needed at step 64, but creating it .*the port is in use",
}
INTERFACE = {
    "OldStep": f"returned 4 values {AT}, but {FIVE}",
    "OldReset": r"the reset at step 0 returned an array .*\(observation, info\) is needed",
    "OldPair": r"the reset at step 0 returned an array .*\(observation, info\) is needed",
    "OldSeed": "the reset at step 0 raised .*unexpected keyword argument 'seed'",
    "StepNone": f"returned None {AT}, but {FIVE}",
}
OBSERVATIONS = {
    "ObservationNaN": rf"observation {AT} is not finite \(number 1 is NaN\)",
    "ObservationInf": rf"observation {AT} is not finite \(number 2 is infinite",
    "ObservationHuge": rf"observation {AT} is not finite \(number 0 .* beyond single precision",
    "FinalNaN": f"observation {LAST} is not finite",
    "ResetNaN": "the reset after step 104 gave an observation that is not finite",
    "Bigger": rf"observation {AT} has shape \(4,\), not \(3,\)",
    "Smaller": rf"observation {AT} has shape \(2,\), not \(3,\)",
    "FinalSmaller": rf"observation {LAST} has shape \(2,\), not \(3,\)",
    "ObservationScalar": rf"observation {AT} has shape \(\), not \(3,\)",
    "ObservationOne": rf"observation {AT} has shape \(1,\), not \(3,\)",
    "ObservationEmpty": rf"observation {AT} has shape \(0,\), not \(3,\)",
    "ObservationText": f"observation {AT} is an array .*{NUMBERS}",
    "ObservationDict": f"observation {AT} is a dict, {NUMBERS}",
    "ObservationNone": f"observation {AT} is None, {NUMBERS}",
    "ObservationRagged": f"observation {AT} is a list, {NUMBERS}",
}
REWARDS = {
    "RewardNaN": rf"reward {AT} is not finite \(it is NaN\)",
    "RewardInf": rf"reward {AT} is not finite \(it is infinite",
    "RewardHuge": f"reward {AT} is not finite .*beyond single precision",
    "RewardPair": f"reward {AT} is an array .*, not one number",
    "RewardNone": f"reward {AT} is None, not one number",
    "RewardText": f"reward {AT} is '1.0', not one number",
    "EndPair": f"terminated {AT} is an array .*, not True or False",
}
EVALUATION = {
    "EvaluationRaises": rf"raised {JUDGED} \(RuntimeError: this is not the arena I know\)",
    "EvaluationNaN": f"observation {JUDGED} is not finite",
    "EvaluationInf": f"observation {JUDGED} is not finite",
    "EvaluationScalar": rf"observation {JUDGED} has shape \(\), not \(3,\)",
    "EvaluationRewardNaN": f"reward {JUDGED} is not finite",
}
WORKING = """
    Sound CloseRaises Column Double Whole Truths Listed Outside Reused ActionSpoiled RewardArray
    RewardScalarArray RewardWhole RewardMillion EndNumpy EndArray EndOne EndNone Bandit Unseeded
    Talkative
"""
BOUNDS = r"raised at step \d+, given an action beyond its bounds \(--clip-actions keeps"
FROM_THE_START = "FirstResetRaises OldReset OldPair OldSeed MadeOnce ActionsChecked"


class Result(NamedTuple):
    """The result of a command."""

    status: int
    err: str
    out: str

    @property
    def clean_error(self) -> bool:
        """Whether it ended with a one-sentence error instead of a stack trace."""
        return self.status == 2 and self.err.count("disc: ") == 1 and "Traceback" not in self.err

    @property
    def silent(self) -> bool:
        """Whether there was neither a stack trace nor a warning."""
        return "Traceback" not in self.err and "Warning" not in self.err

    @property
    def sentence(self) -> str:
        """The last line."""
        return (self.err.strip().splitlines() or [""])[-1]


def command(*cli_args: str | Path) -> Result:
    """Run the command line in this process."""
    broken.restart()
    err, out, status = io.StringIO(), io.StringIO(), 0
    with redirect_stderr(err), redirect_stdout(out), warnings.catch_warnings():
        warnings.filterwarnings("error", category=DeprecationWarning, module="disc")
        try:
            main.main([str(word) for word in cli_args])
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        except Exception as error:  # not handled by the command line
            status, text = 1, f"Traceback: {type(error).__name__}: {error}"
            err.write(text)
    return Result(status, err.getvalue(), out.getvalue())


def train(name: str, family: str, path: Path, *cli_args: str) -> Result:
    """`disc train` of a broken environment."""
    return command("train", f"{MODULE}:{name}", *_options(family), *cli_args, "--out", path)


def _options(family: str) -> list[str]:
    plan = {"steps": STEPS, "checkpoint_every": EVERY, "algo": family, "threads": 1}
    options = {**plan, **short.OPTIONS[family], "horizon": EVERY}
    return [*short.cli_args(options), "--no-check"]


def reported(name: str, family: str, path: Path, says: str, *cli_args: str) -> str:
    """Train, fix the environment and resume; returns what went wrong, if anything."""
    result = train(name, family, path, *cli_args)
    if not result.clean_error:
        return f"{name}, {family}: status {result.status}, {result.err[-300:]!r}"
    return _complaint(name, family, result.sentence, says) or _resumes(name, family, path)


def _complaint(name: str, family: str, sentence: str, says: str) -> str:
    """What is missing in a sentence."""
    for wanted in (f"^disc: {MODULE}:{name}: ", says, "; fix the environment.*`disc resume`"):
        if not re.search(wanted, sentence):
            return f"{name}, {family}: {wanted!r} is not in {sentence!r}"
    return ""


def _resumes(name: str, family: str, path: Path) -> str:
    """Resume a run with the fixed environment."""
    found = sorted(file.name for file in path.glob("checkpoints/*"))
    saved = int(found[-1].removeprefix("step_").split(".")[0]) if found else 0
    if not saved and name not in FROM_THE_START.split():
        return f"{name}, {family}: there is no checkpoint"
    agent = disc.resume(path, env=broken.Sound, progress=False)
    start = json.loads((path / "config.json").read_text())["resumed"][-1]["step"]
    if (start, agent.state.step) != (saved, STEPS):
        return f"{name}, {family}: resumed from {start}, not {saved}, to {agent.state.step}"
    return ""


def works(name: str, family: str, path: Path, *cli_args: str) -> str:
    """Train to the end; returns what went wrong, if anything."""
    drawing = ("curves", "diagnostics")  # slow, and independent of the environment
    with mock.patch.multiple(plots, **dict.fromkeys(drawing, mock.DEFAULT)):
        result = train(name, family, path, *cli_args)
    if result.status or not result.silent:
        return f"{name}, {family}: status {result.status}, {result.err[-300:]!r}"
    rows = log.read_progress(path / "progress.csv")
    action, _ = disc.load(path / "policy.disc").predict(np.zeros(3, np.float32))
    if rows[-1]["step"] != STEPS or not np.isfinite(action).all():
        return f"{name}, {family}: ended at step {rows[-1]['step']} with action {action}"
    return ""


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """Train on everything in `broken.py`; with a smaller scale, on fewer of each kind."""

    def some(names: list[str]) -> list[str]:
        count = max(1, min(len(names), round(scale * len(names))))
        return [names[i] for i in sorted(rng.permutation(len(names))[:count])]

    quiet = ("--eval-every", "0")
    promise = "reported with step and remedy, checkpoint intact, resumes once fixed"
    for what, table, plan in (
        ("step, reset or make raises", RAISING, quiet),
        ("another interface", INTERFACE, quiet),
        ("invalid observations", OBSERVATIONS, quiet),
        ("invalid rewards and ends", REWARDS, quiet),
        ("only in evaluation", EVALUATION, ("--eval-every", "128", "--eval-episodes", "3")),
    ):
        found = [
            reported(name, family, scratch / family / name, table[name], *plan)
            for name in some(list(table))
            for family in short.FAMILIES
        ]
        yield Outcome.of("environments", what, found, promise)
    found = [
        works(name, family, scratch / family / name, "--eval-every", "96", "--eval-episodes", "2")
        for name in some(WORKING.split())
        for family in short.FAMILIES
    ]
    yield Outcome.of("environments", "unusual, but valid", found, "trains to its end")
    found = [
        reported("ActionsChecked", "disc", scratch / "told", BOUNDS, *quiet),
        works("ActionsChecked", "disc", scratch / "clipped", "--clip-actions", *quiet),
        works("ActionsChecked", "sac", scratch / "bounded", *quiet),
    ]
    yield Outcome.of(
        "environments", "raises for actions beyond its bounds", found, "reported, or within bounds"
    )
    found = [_on_threads(name, scratch) for name in some(["StepRaises", "OldStep", "ResetNaN"])]
    yield Outcome.of("environments", "several environments, on threads", found, promise)
    yield Outcome.of(
        "environments",
        "never ends",
        [_endless(family, scratch) for family in short.FAMILIES],
        "warns once",
    )
    found = [_check(name) for name in some([*_all(), *WORKING.split()])]
    yield Outcome.of(
        "environments", "disc check", found, "problems are reported; valid environments pass"
    )
    found = [_as_process(name, scratch) for name in some(["StepRaises", "OldStep", "ResetNaN"])]
    yield Outcome.of("environments", "in a separate process", found, promise)


def _on_threads(name: str, scratch: Path) -> str:
    says = re.sub("step [0-9]+", r"step \\d+", _all()[name])
    cli_args = ("--num-envs", "2", "--threads", "2", "--eval-every", "0")
    return reported(name, "disc", scratch / "threads" / name, says, *cli_args)


def _endless(family: str, scratch: Path) -> str:
    """An evaluation with endless episodes ends, and warns once."""
    with mock.patch.object(evaluate, "MAX_EPISODE_STEPS", 100):
        path = scratch / family / "Endless"
        result = train("Endless", family, path, "--eval-every", "64", "--eval-episodes", "2")
    times = len(re.findall("did not end within 100 steps.*TimeLimit.*--eval-every 0", result.err))
    once = (result.status, times) == (0, 1)
    return "" if once else f"warned {times} times: {result.err[-300:]!r}"


def _all() -> dict[str, str]:
    return {**RAISING, **INTERFACE, **OBSERVATIONS, **REWARDS}


def _check(name: str) -> str:
    """`disc check` exits with status 1 if it reports a problem, and 0 if training works."""
    at = "30" if name in _all() else "0"  # valid environments are unusual from the start
    result = command("check", f"{MODULE}:{name}", "--steps", "60", "--env-kwargs", "at", at)
    expected = 1 if name in _all() or name in ("Column", "Unseeded") else 0
    if result.status == expected and result.silent and not result.err:
        return ""
    return f"{name}: status {result.status}, {(result.err or result.out)[-300:]!r}"


def _as_process(name: str, scratch: Path) -> str:
    options = [*_options("disc"), "--eval-every", "0", "--out", f"process/{name}"]
    result = run(["train", f"{MODULE}:{name}", *options], scratch)
    if not reported_cleanly(result):
        return f"{name}: status {result.returncode}, {result.stderr[-300:]!r}"
    sentence = result.stderr.strip().splitlines()[-1]
    return _complaint(name, "disc", sentence, _all()[name])
