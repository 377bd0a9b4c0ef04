"""Faults of environments are reported with name, step and remedy, or tolerated."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import disc
from disc import DiscError
from disc.envs import contract, evaluate
from disc.envs.factory import Maker
from disc.envs.pool import Environments
from disc.envs.rollout import collect
from disc.envs.spaces import describe
from disc.policy.policies import Gaussian
from disc.run import terminal
from disc.types import Rollout
from faults import broken
from tests.support.small import small

REMEDY = r"; fix the environment .*`disc check`.*`disc resume`\.$"
NUMBERS, FIVE = "not an array of numbers", "five are needed: observation, reward, terminated"


@pytest.fixture(autouse=True)
def _restart() -> Iterator[None]:
    broken.restart()
    contract._warn_once.cache_clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=DeprecationWarning, module="disc")
        yield


class Still:
    """An `Actor` whose actions are zero."""

    log_std = np.zeros(2, np.float32)

    def noise(self, rng: Any, count: int) -> Any:
        return rng.standard_normal((count, 2), np.float32)

    def __call__(self, observation: Any, noise: Any) -> Any:
        return np.zeros(2, np.float32), np.zeros(2, np.float32)

    def episode(self, *name: int) -> Still:
        return self

    def bound(self, action: Any) -> Any:
        return action


def gather(kind: type[broken.Sound], n: int = 32) -> Rollout:
    def robot() -> Any:
        return kind(10)

    env = Environments(Maker(robot), 1)
    env.reset(0, 0)
    state = SimpleNamespace(seed=0, iteration=0, step=0)
    return collect(env, lambda _: Still(), state, n)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("StepRaises", r"raised at step 10 \(RuntimeError: the motor is on fire\)"),
        ("StepExits", r"raised at step 10 \(SystemExit: 0\)"),
        ("FirstResetRaises", "the reset at step 0 raised .*no robot is plugged in"),
        ("LaterResetRaises", "the reset after step 20 raised .*fell off its table"),
        ("OldStep", f"returned a tuple of 4 values at step 10, but {FIVE}"),
        ("StepNone", f"returned None at step 10, but {FIVE}"),
        ("OldReset", r"reset at step 0 returned an array .*\(observation, info\) is needed"),
        ("OldPair", r"reset at step 0 returned an array .*\(observation, info\) is needed"),
        ("OldSeed", "the reset at step 0 raised .*argument 'seed'"),
        ("ObservationNaN", r"observation at step 10 is not finite \(number 1 is NaN\)"),
        ("ObservationInf", r"observation at step 10 is not finite \(number 2 is infinite"),
        ("FinalNaN", r"observation at step 20 is not finite \(number 0"),
        ("ResetNaN", "the reset after step 20 gave an observation that is not finite"),
        ("Bigger", r"observation at step 10 has shape \(4,\), not \(3,\)"),
        ("FinalSmaller", r"observation at step 20 has shape \(2,\), not \(3,\)"),
        ("ObservationScalar", r"observation at step 10 has shape \(\), not \(3,\)"),
        ("ObservationOne", r"observation at step 10 has shape \(1,\), not \(3,\)"),
        ("ObservationText", f"observation at step 10 is an array .*, {NUMBERS}"),
        ("ObservationDict", f"observation at step 10 is a dict, {NUMBERS}"),
        ("ObservationNone", f"observation at step 10 is None, {NUMBERS}"),
        ("ObservationRagged", f"observation at step 10 is a list, {NUMBERS}"),
        ("RewardNaN", r"reward at step 10 is not finite \(it is NaN\)"),
        ("RewardPair", r"reward at step 10 is an array of shape \(2,\) .*, not one number"),
        ("RewardNone", "reward at step 10 is None, not one number"),
        ("RewardText", "reward at step 10 is '1.0', not one number"),
        ("EndPair", "terminated at step 10 is an array .*, not True or False"),
    ],
)
def test_rollout_faults_name_environment_step_and_remedy(name: str, says: str) -> None:
    with pytest.raises(DiscError, match=f"^robot: .*{says}.*{REMEDY}") as caught:
        gather(getattr(broken, name))
    assert "\n" not in str(caught.value)


UNUSUAL = """
    Column Double Listed Reused RewardArray RewardScalarArray EndNumpy EndArray EndOne EndNone
    Talkative
"""


@pytest.mark.parametrize("name", UNUSUAL.split())
def test_unusual_but_valid_environments_give_the_same_rollout(name: str) -> None:
    expected = gather(broken.Sound)
    broken.restart()
    for a, b in zip(expected, gather(getattr(broken, name)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_fault_after_out_of_bounds_action_suggests_clip_actions() -> None:
    class Far(Still):
        def __call__(self, observation: Any, noise: Any) -> Any:
            return np.full(2, 1.5, np.float32), np.zeros(2, np.float32)

    env = Environments(Maker(broken.ActionsChecked), 1)
    env.reset(0, 0)
    state = SimpleNamespace(seed=0, iteration=0, step=0)
    with pytest.raises(
        DiscError, match=r"step 1, given an action beyond its bounds \(--clip-actions"
    ):
        collect(env, lambda _: Far(), state, 8)


def act(observation_clip: float | None = 10.0) -> Gaussian:
    rng = np.random.default_rng(0)
    return Gaussian(
        weights=(rng.standard_normal((3, 2)).astype(np.float32),),
        biases=(np.zeros(2, np.float32),),
        log_std=np.zeros(2, np.float32),
        observation_mean=np.zeros(3, np.float32),
        observation_inverse_std=np.ones(3, np.float32),
        observation_clip=observation_clip,
        observation_shape=(3,),
        action_low=-np.ones(2, np.float32),
        action_high=np.ones(2, np.float32),
        action_shape=(2,),
    )


@pytest.mark.parametrize("every", [1000, 4])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("StepRaises", "raised at step 10 of {} .*the motor is on fire"),
        ("LaterResetRaises", "the reset of {} raised .*fell off its table"),
        ("OldStep", "returned a tuple of 4 values at step 10 of {}"),
        ("ObservationNaN", "observation at step 10 of {} is not finite"),
        ("ObservationInf", "observation at step 10 of {} is not finite"),
        ("ObservationScalar", "observation at step 10 of {} has shape"),
        ("ResetNaN", "the reset of {} gave an observation that is not finite"),
        ("RewardNaN", "reward at step 10 of {} is not finite"),
        ("RewardPair", "reward at step 10 of {} is an array .*, not one number"),
    ],
)
def test_evaluation_faults_name_environment_step_and_remedy(
    name: str, says: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "LOOK_EVERY", every)
    episode = 2 if "reset" in says else 1
    says = says.format(f"episode {episode} of the evaluation at step 64")
    with pytest.raises(DiscError, match=f"^robot: .*{says}.*{REMEDY}"):
        evaluate.evaluate(getattr(broken, name)(10), act(), 3, 0, 64, name="robot")


def test_endless_evaluation_episode_is_cut_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "MAX_EPISODE_STEPS", 50)
    said: list[str] = []
    found = evaluate.evaluate(broken.Endless(), act(), 2, 0, name="robot", say=said.append)
    assert found.lengths.tolist() == [50, 50]
    assert len(set(said)) == 1
    assert said[0].startswith("robot: an episode of an evaluation did not end within 50 steps")
    for remedy in ("TimeLimit", "--eval-every 0"):
        assert remedy in said[0]


PLAN: dict[str, Any] = {"checkpoint_every": 256, "eval_every": 512, "eval_episodes": 2}


def test_endless_episode_warning_appears_once_per_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate, "MAX_EPISODE_STEPS", 50)
    small(env=broken.Endless).learn(1024, **PLAN)
    assert capsys.readouterr().err.count("did not end within 50 steps") == 1


def test_run_can_be_resumed_after_a_fault_in_evaluation(tmp_path: Path) -> None:
    agent = small(env=broken.EvaluationNaN)
    with pytest.raises(DiscError, match=r"^Observing: .*evaluation at step 512"):
        agent.learn(1024, out=tmp_path / "run", progress=False, **PLAN)
    resumed = disc.resume(tmp_path / "run", env=broken.Sound, progress=False)
    assert resumed.state.step == 1024


def test_failure_to_make_an_evaluation_environment_raises_before_training(tmp_path: Path) -> None:
    with pytest.raises(DiscError, match=r"^MadeOnce: .*needed to evaluate in.*port is in use"):
        small(env=broken.MadeOnce).learn(512, out=tmp_path / "run", progress=False, **PLAN)
    assert not (tmp_path / "run").exists()


def test_failure_to_remake_an_environment_at_a_checkpoint_is_reported() -> None:
    env = Environments(Maker(broken.MadeOnce), 1)
    env.reset(0, 0)
    with pytest.raises(DiscError, match=f"needed at step 64, .*the port is in use.*{REMEDY}"):
        env.reset(0, 64)


def test_error_while_closing_an_environment_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with small(env=broken.CloseRaises) as agent:
        agent.learn(512, progress=False, **PLAN)
    assert agent.state.step == 512
    assert (
        caplog.text.count("closing the environment raised (RuntimeError: the door is stuck)") == 1
    )


def test_environment_may_modify_its_action_in_place() -> None:
    """The recorded actions stay as they were."""
    env = Environments(Maker(broken.ActionSpoiled), 1)
    actions = np.random.default_rng(0).standard_normal((1, 5, 2)).astype(np.float32)
    env.reset(0, 0)
    env.replay(actions.copy(), lambda action: action)
    np.testing.assert_array_equal(env.actions_since_reset[0], actions)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (broken.StepRaises, "raised at step 4 of 8 that restore the episode .*on fire"),
        (broken.OldStep, f"returned a tuple of 4 values at step 4 of 8 that .*, but {FIVE}"),
        (broken.RewardNone, "the reward at step 4 of 8 that .* is None, not one number"),
    ],
)
def test_faults_while_replaying_an_episode_are_reported(kind: Any, says: str) -> None:
    def robot() -> Any:
        return kind(4)

    env = Environments(Maker(robot), 1)
    env.reset(0, 0)
    with pytest.raises(DiscError, match=f"^robot: .*{says}.*{REMEDY}"):
        env.replay(np.zeros((1, 8, 2), np.float32), lambda action: action)


def test_environment_without_spaces_raises() -> None:
    with pytest.raises(DiscError, match=r"^robot: has NoneType actions"):
        describe(broken.NoSpaces(), "robot")


def test_console_does_not_turn_names_into_emoji(monkeypatch: pytest.MonkeyPatch) -> None:
    """`:Sound:` must not become a loudspeaker."""
    console = terminal.make_console(True)
    file = io.StringIO()
    monkeypatch.setattr(Console, "file", file)
    console.print("disc on broken:Sound: 64/128 steps")
    assert file.getvalue() == "disc on broken:Sound: 64/128 steps\n"
