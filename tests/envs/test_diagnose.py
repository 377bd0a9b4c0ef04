"""`disc check` names problems and remedies, and reports none for sound environments."""

from __future__ import annotations

import itertools
import random
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from disc import DiscError
from disc.algos import ALGORITHMS, ppo
from disc.cli import main
from disc.envs import diagnose
from disc.envs.factory import Maker
from faults import broken
from tests.support.command import run
from tests.support.diagnosis import check, glance
from tests.support.environments import Letters, Probe, Wide


class Fine(Probe):
    """Starts at random, moves by the action and ends after twenty steps."""

    def first(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)

    def step(self, action: Any) -> Any:
        self.time += 1
        self.state = np.clip(self.state + 0.1 * action, -1.0, 1.0).astype(np.float32)
        return self.observed(), self.reward(), False, self.ended(), {}

    def observed(self) -> Any:
        return self.state

    def reward(self) -> Any:
        return float(-abs(self.state[0]))

    def ended(self) -> bool:
        return self.time == 20


def found(kind: type[gym.Env[Any, Any]], steps: int = 100) -> dict[str, list[str]]:
    sorted_by_kind: dict[str, list[str]] = {"good": [], "note": [], "problem": []}
    for finding in check(Maker(kind), steps):
        sorted_by_kind[finding.kind].append(finding.text)
    return sorted_by_kind


def make(**changes: Any) -> type[Fine]:
    return type("Changed", (Fine,), changes)


def test_sound_environments_have_no_problems_or_notes() -> None:
    for kind in (Fine, Wide):
        told = found(kind)
        assert not told["problem"]
        assert not told["note"]
        assert "The same seed and actions give the same observations and rewards." in told["good"]


COUNTER = itertools.count()


def careful(self: Any, action: Any) -> Any:
    assert np.all(np.abs(action) <= 1.0), "too far"
    return Fine.step(self, action)


def only(self: Any) -> None:
    if broken.Sound.made:
        raise ConnectionError("the port is in use")
    broken.Sound.made += 1


def second(self: Any) -> Any:
    """Fails after the hundred steps that the first environment takes."""
    broken.Sound.taken += 1
    if broken.Sound.taken > 100:
        raise RuntimeError("this is not the arena I know")
    return self.state


PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": ({"observed": lambda self: np.full(1, np.nan, np.float32)}, "is not finite"),
    "infinity": ({"observed": lambda self: np.full(1, np.inf)}, "is not finite"),
    "shape": ({"observed": lambda self: np.zeros(3, np.float32)}, r"shape \(3,\)"),
    "reward NaN": ({"reward": lambda self: np.nan}, "reward at step 1 is not finite"),
    "reward array": ({"reward": lambda self: np.zeros(2)}, "not one number"),
    "reward text": ({"reward": lambda self: "much"}, "'much', not one number"),
    "reward None": ({"reward": lambda self: None}, "None, not one number"),
    "random rewards": ({"reward": lambda self: float(next(COUNTER))}, "rewards differ from step"),
    "text": ({"observed": lambda self: np.array(["left"])}, "not an array of numbers"),
    "column": ({"observed": lambda self: self.state[:, None]}, r"shape \(1, 1\)"),
    "exits": ({"observed": lambda self: sys.exit(0)}, "SystemExit"),
    "bounds": ({"step": careful}, "--clip-actions"),
    "one only": ({"__init__": only}, "the port is in use.*fix that"),
    "second fails": ({"observed": second}, "A second environment fails .*the arena"),
    "no limit": ({"ended": lambda self: False}, "TimeLimit"),
    "wide actions": (
        {"action_space": gym.spaces.Box(-100.0, 100.0, (1,), np.float32)},
        "RescaleAction",
    ),
    "narrow actions": (
        {"action_space": gym.spaces.Box(-0.01, 0.01, (1,), np.float32)},
        "RescaleAction",
    ),
    "blind": (
        {"observed": lambda self: np.zeros(1), "first": lambda self: np.zeros(1)},
        "never changes",
    ),
    "seed ignored": (
        {"first": lambda self: np.float32([np.sin(next(COUNTER))])},
        "Two resets with the same seed",
    ),
    "hidden state": (
        {"observed": lambda self: self.state + np.float32(1e-3 * next(COUNTER))},
        "observations differ from number",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_check_finds_the_problem(name: str) -> None:
    changes, words = PROBLEMS[name]
    broken.restart()
    problems = found(make(**changes))["problem"]
    assert len(problems) == 1
    assert re.search(words, problems[0])


def raises(self: Any, *_: Any, **__: Any) -> Any:
    raise RuntimeError("the motor is on fire")


@pytest.mark.parametrize(
    ("method", "what"),
    [("step", "The environment raised at step 1"), ("reset", "The reset at the start raised")],
)
def test_exception_in_step_or_reset_is_the_only_problem(method: str, what: str) -> None:
    problems = found(make(**{method: raises}))["problem"]
    assert problems == [f"{what} (RuntimeError: the motor is on fire); fix that first."]


def bare(self: Any, *_: Any, **__: Any) -> Any:
    raise AssertionError


@pytest.mark.parametrize("method", ["step", "reset", "__init__"])
def test_error_without_text_shows_file_and_line(method: str) -> None:
    where = f"AssertionError at {__file__}, line {bare.__code__.co_firstlineno + 1}"
    kind = make(**{method: bare})
    if method == "__init__":
        with pytest.raises(DiscError, match=re.escape(where)):
            check(Maker(kind), 10)
    else:
        assert where in found(kind)["problem"][0]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (broken.OldStep, "returned a tuple of 4 values at step 30, but five are needed"),
        (broken.OldReset, r"returned an array .* \(observation, info\) is needed"),
        (broken.OldPair, r"returned an array .* \(observation, info\) is needed"),
        (broken.LaterResetRaises, "The reset after step 40 raised .*fell off its table"),
        (broken.ObservationHuge, "beyond single precision"),
    ],
)
def test_check_finds_later_faults(kind: Any, says: str) -> None:
    broken.restart()
    problems = [x.text for x in check(Maker(lambda: kind(30)), 100) if x.kind == "problem"]
    assert len(problems) == 1
    assert re.search(says, problems[0])


def test_unusual_but_valid_environments_have_no_problems() -> None:
    broken.restart()
    for kind in (broken.CloseRaises, broken.RewardArray, broken.EndOne, broken.ActionSpoiled):
        assert not found(kind)["problem"]


def test_check_finds_a_wrapped_time_limit() -> None:
    def limited() -> Any:
        return gym.wrappers.TimeLimit(broken.Endless(), 500)

    texts = [finding.text for finding in check(Maker(limited), 100)]
    assert "Episodes end after at most 500 steps." in texts


NOTES: dict[str, tuple[dict[str, Any], str]] = {
    "large rewards": ({"reward": lambda self: 1e6}, "reward_scale"),
    "tiny rewards": ({"reward": lambda self: 1e-5}, "reward_scale"),
    "no rewards": ({"reward": lambda self: 0.0}, "All rewards were 0"),
    "large observations": ({"observed": lambda self: 1e5 * self.state}, "reaches"),
    "tiny observations": (
        {"observed": lambda self: 1e-6 * self.state, "first": lambda self: np.zeros(1)},
        "stays within",
    ),
    "outside its space": ({"observed": lambda self: self.state + 2.0}, "outside the space"),
    "bandit": ({"ended": lambda self: True}, "a bandit"),
    "unbounded actions": (
        {"action_space": gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)},
        "no bounds",
    ),
    "one start": ({"first": lambda self: np.zeros(1, np.float32)}, "Another seed"),
}


@pytest.mark.parametrize("name", NOTES)
def test_check_notes_the_oddity(name: str) -> None:
    changes, words = NOTES[name]
    told = found(make(**changes))
    assert not told["problem"]
    assert any(words in note for note in told["note"])


def test_check_of_a_slow_environment_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "PATIENCE", 0.1)

    def slow(self: Any) -> float:
        time.sleep(0.02)
        return 1.0

    told = found(make(reward=slow, ended=lambda self: True))
    assert not told["problem"]
    assert any("random steps per second: a million take" in note for note in told["note"])


def test_check_of_other_actions_raises() -> None:
    with pytest.raises(DiscError, match="Text actions"):
        check(Maker(Letters), 10)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["Pendulum-v1", "--steps", "50"], 0),
        (["tests.support.environments:bad", "--env-kwargs", "at", "0"], 1),
        (["CartPole-v1", "--steps", "50"], 0),
        (["tests.support.environments:Letters"], 2),
        (["NoSuchThing-v0"], 2),
        (["Pendulum-v1", "--steps", "0"], 2),
    ],
)
def test_check_command_sets_exit_status_and_output(
    words: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", *words) == status
    said = capsys.readouterr()
    assert bool(said.err) == (status == 2)
    assert ("problem" in said.out) == (status == 1)


def test_check_command_names_algorithms_of_other_packages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = SimpleNamespace(**{**vars(ppo), "NAME": "theirs"})
    monkeypatch.setattr(ALGORITHMS, "_known", {**ALGORITHMS, "theirs": theirs})
    assert run("check", "CartPole-v1", "--steps", "50") == 0
    assert "ppo-amber and theirs can learn them" in " ".join(capsys.readouterr().out.split())


# Before training


def test_glance_finds_problems_and_leaves_random_generators_unchanged() -> None:
    def noisy(self: Any) -> Any:
        return np.float32(np.random.standard_normal(1) + 0.0 * random.random())  # noqa: NPY002

    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    states = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    kind = make(observed=noisy, first=lambda self: np.zeros(1, np.float32))
    assert [x for x in glance(Maker(kind)) if "observations differ" in x.text]
    after = np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    assert (random.getstate(), after) == states


def test_glance_at_a_slow_environment_makes_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "GLANCE", 0.01)
    made = []

    def slow() -> Any:
        made.append(time.sleep(0.02))
        return make(ended=lambda self: time.sleep(0.001) is not None)()

    texts = [x.text for x in glance(Maker(slow))]
    assert len(made) == 1
    assert not [x for x in texts if "No episode ended" in x]


def test_glance_at_an_environment_that_cannot_be_made_is_silent() -> None:
    assert not glance(Maker(make(__init__=raises)))


def train(capfd: pytest.CaptureFixture[str], tmp_path: Any, *words: str) -> str:
    options = "--algo ppo --horizon 256 --gradient-steps 4 --epochs 2 --widths 16 16 --steps 256"
    env = "tests.support.environments:wide"
    plan = [*options.split(), "--eval-every", "0", "--out", str(tmp_path / f"run{len(words)}")]
    main.main(["train", env, *plan, *words])
    return capfd.readouterr().err


def test_train_prints_what_check_would_warn_about(
    capfd: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wide, "action_space", gym.spaces.Box(-50.0, 50.0, (2, 2), np.float32))
    said = train(capfd, tmp_path)
    lines = [x for x in said.splitlines() if x.startswith("tests.support.environments:wide: ")]
    assert len(lines) == 1
    assert re.search("problem: Actions range from -50 to 50.*RescaleAction", lines[0])
    assert "RescaleAction" not in train(capfd, tmp_path, "--no-check")
    rows = [(tmp_path / f"run{i}" / "progress.csv").read_text().splitlines() for i in (0, 1)]
    names = rows[0][0].split(",")
    pairs = zip(names, rows[0][1].split(","), rows[1][1].split(","), strict=True)
    assert all(a == b for name, a, b in pairs if not name.startswith("time/"))
