"""Environments that misbehave: each is told in a sentence with the last checkpoint whole, or works.

The environments are in `broken.py`. Each is trained by the command line, by an algorithm that
learns from whole batches and by one that learns step by step, with a checkpoint before its fault;
then it is mended, and the run goes on to its end.
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
from faults import broken
from faults.outcome import Outcome, run, said_plainly

MODULE = broken.__name__
STEPS, EVERY = 192, 64
FAMILIES = {
    "disc": "--gradient-steps 4 --epochs 1 --replay-length 4",
    "sac": "--steps-per-update 16 --updates-per-step 0.125 --random-steps 48 --replay-size 256 "
    "--batch-size 8",
}
PLAN = f"--horizon {EVERY} --widths 8 --steps {STEPS} --checkpoint-every {EVERY}"

# What is said of each, and where; episodes end at steps 84 and 104.
AT, LAST = "at step 100", "at step 104"
JUDGED = "at step 1 of episode 2 of the evaluation at step 128"
NUMBERS, FIVE = "not an array of numbers", "five are needed: observation, reward, terminated"
RAISING = {
    "StepRaises": rf"raised {AT} \(RuntimeError: the motor is on fire\)",
    "StepExits": rf"raised {AT} \(SystemExit: 0\)",
    "FirstResetRaises": r"the reset at step 0 raised \(RuntimeError: no robot is plugged in\)",
    "LaterResetRaises": r"the reset after step 104 raised \(RuntimeError: the robot fell off",
    "MadeOnce": "a new environment was needed at step 64, and making it .*the port is in use",
}
INTERFACE = {
    "OldStep": f"returned 4 values {AT}, and {FIVE}",
    "OldReset": r"the reset at step 0 returned an array .*\(observation, info\) is needed",
    "OldPair": r"the reset at step 0 returned an array .*\(observation, info\) is needed",
    "OldSeed": "the reset at step 0 raised .*unexpected keyword argument 'seed'",
    "StepNone": f"returned None {AT}, and {FIVE}",
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
BOUNDS = r"raised at step \d+, given an action beyond its bounds \(--clip-actions holds"
FROM_THE_START = "FirstResetRaises OldReset OldPair OldSeed MadeOnce ActionsChecked"


class Said(NamedTuple):
    """How a command ended."""

    status: int
    err: str
    out: str

    @property
    def plainly(self) -> bool:
        """Whether it ended in one sentence instead of a stack trace."""
        return self.status == 2 and self.err.count("disc: ") == 1 and "Traceback" not in self.err

    @property
    def quietly(self) -> bool:
        """Whether neither a stack trace nor a warning was shown."""
        return "Traceback" not in self.err and "Warning" not in self.err

    @property
    def sentence(self) -> str:
        """The last line."""
        return (self.err.strip().splitlines() or [""])[-1]


def command(*words: str | Path) -> Said:
    """Run the command line in this process."""
    broken.restart()
    err, out, status = io.StringIO(), io.StringIO(), 0
    with redirect_stderr(err), redirect_stdout(out), warnings.catch_warnings():
        warnings.filterwarnings("error", category=DeprecationWarning, module="disc")
        try:
            main.main([str(word) for word in words])
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        except Exception as error:  # what the command line let through
            status, text = 1, f"Traceback: {type(error).__name__}: {error}"
            err.write(text)
    return Said(status, err.getvalue(), out.getvalue())


def train(name: str, family: str, path: Path, *words: str) -> Said:
    """`disc train` of a broken environment."""
    options = f"--algo {family} {PLAN} {FAMILIES[family]} --threads 1".split()
    return command("train", f"{MODULE}:{name}", *options, *words, "--out", path)


def told(name: str, family: str, path: Path, says: str, *words: str) -> str:
    """Train what misbehaves, mend it and go on; what went wrong with that, if anything."""
    said = train(name, family, path, *words)
    if not said.plainly:
        return f"{name}, {family}: status {said.status}, {said.err[-300:]!r}"
    return _complaint(name, family, said.sentence, says) or _goes_on(name, family, path)


def _complaint(name: str, family: str, sentence: str, says: str) -> str:
    """What a sentence lacks."""
    for wanted in (f"^disc: {MODULE}:{name}: ", says, "; mend the environment.*`disc resume`"):
        if not re.search(wanted, sentence):
            return f"{name}, {family}: {wanted!r} is not in {sentence!r}"
    return ""


def _goes_on(name: str, family: str, path: Path) -> str:
    """Resume a run with what the environment is once mended."""
    found = sorted(file.name for file in path.glob("checkpoints/*"))
    saved = int(found[-1].removeprefix("step_").split(".")[0]) if found else 0
    if not saved and name not in FROM_THE_START.split():
        return f"{name}, {family}: there is no checkpoint"
    agent = disc.resume(path, env=broken.Sound, progress=False)
    start = json.loads((path / "config.json").read_text())["resumed"][-1]["step"]
    if (start, agent.state.step) != (saved, STEPS):
        return f"{name}, {family}: went on from {start}, not {saved}, to {agent.state.step}"
    return ""


def works(name: str, family: str, path: Path, *words: str) -> str:
    """Train to the end; what went wrong with that, if anything."""
    drawing = ("curves", "diagnostics")  # takes a second, and sees no environment
    with mock.patch.multiple(plots, **dict.fromkeys(drawing, mock.DEFAULT)):
        said = train(name, family, path, *words)
    if said.status or not said.quietly:
        return f"{name}, {family}: status {said.status}, {said.err[-300:]!r}"
    rows = log.read_progress(path / "progress.csv")
    action, _ = disc.load(path / "policy.disc").predict(np.zeros(3, np.float32))
    if rows[-1]["step"] != STEPS or not np.isfinite(action).all():
        return f"{name}, {family}: ended at step {rows[-1]['step']} with action {action}"
    return ""


def outcome(what: str, complaints: list[str], promise: str) -> Outcome:
    """One line of the table."""
    lost = [complaint for complaint in complaints if complaint]
    held = len(complaints) - len(lost)
    return Outcome("environments", what, len(complaints), held, "; ".join(lost) or promise)


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """Train on everything in `broken.py`; a smaller scale takes fewer of each kind."""

    def some(names: list[str]) -> list[str]:
        count = max(1, min(len(names), round(scale * len(names))))
        return [names[i] for i in sorted(rng.permutation(len(names))[:count])]

    quiet = ("--eval-every", "0")
    promise = "named with step and fix, checkpoint whole, goes on once mended"
    for what, table, plan in (
        ("step, reset or make raises", RAISING, quiet),
        ("another interface", INTERFACE, quiet),
        ("observations that are none", OBSERVATIONS, quiet),
        ("rewards and ends that are none", REWARDS, quiet),
        ("only in evaluation", EVALUATION, ("--eval-every", "128", "--eval-episodes", "3")),
    ):
        found = [
            told(name, family, scratch / family / name, table[name], *plan)
            for name in some(list(table))
            for family in FAMILIES
        ]
        yield outcome(what, found, promise)
    found = [
        works(name, family, scratch / family / name, "--eval-every", "96", "--eval-episodes", "2")
        for name in some(WORKING.split())
        for family in FAMILIES
    ]
    yield outcome("unusual, but sound", found, "trains to its end")
    found = [
        told("ActionsChecked", "disc", scratch / "told", BOUNDS, *quiet),
        works("ActionsChecked", "disc", scratch / "clipped", "--clip-actions", *quiet),
        works("ActionsChecked", "sac", scratch / "bounded", *quiet),
    ]
    yield outcome("refuses actions beyond its bounds", found, "named, or within them")
    found = [_on_threads(name, scratch) for name in some(["StepRaises", "OldStep", "ResetNaN"])]
    yield outcome("several environments, on threads", found, promise)
    yield outcome("never ends", [_endless(family, scratch) for family in FAMILIES], "said once")
    found = [_check(name) for name in some([*_all(), *WORKING.split()])]
    yield outcome("disc check", found, "problems are named; what works passes")
    found = [_as_process(name, scratch) for name in some(["StepRaises", "OldStep", "ResetNaN"])]
    yield outcome("in a process of its own", found, promise)


def _on_threads(name: str, scratch: Path) -> str:
    says = re.sub("step [0-9]+", r"step \\d+", _all()[name])
    words = ("--num-envs", "2", "--threads", "2", "--eval-every", "0")
    return told(name, "disc", scratch / "threads" / name, says, *words)


def _endless(family: str, scratch: Path) -> str:
    """An evaluation of episodes without end ends, and says so once."""
    with mock.patch.object(evaluate, "MAX_EPISODE_STEPS", 100):
        path = scratch / family / "Endless"
        said = train("Endless", family, path, "--eval-every", "64", "--eval-episodes", "2")
    times = len(re.findall("did not end within 100 steps.*TimeLimit.*--eval-every 0", said.err))
    return "" if (said.status, times) == (0, 1) else f"said {times} times: {said.err[-300:]!r}"


def _all() -> dict[str, str]:
    return {**RAISING, **INTERFACE, **OBSERVATIONS, **REWARDS}


def _check(name: str) -> str:
    """`disc check` exits with status 1 where it names a problem, and 0 where training works."""
    at = "30" if name in _all() else "0"  # what works all the same does so from the start
    said = command("check", f"{MODULE}:{name}", "--steps", "60", "--env-kwargs", "at", at)
    expected = 1 if name in _all() or name in ("Column", "Unseeded") else 0
    if said.status == expected and said.quietly and not said.err:
        return ""
    return f"{name}: status {said.status}, {(said.err or said.out)[-300:]!r}"


def _as_process(name: str, scratch: Path) -> str:
    words = f"train {MODULE}:{name} {PLAN} {FAMILIES['disc']} --eval-every 0 --out".split()
    result = run([*words, scratch / "process" / name], scratch)
    if not said_plainly(result):
        return f"{name}: status {result.returncode}, {result.stderr[-300:]!r}"
    sentence = result.stderr.strip().splitlines()[-1]
    return _complaint(name, "disc", sentence, _all()[name])
