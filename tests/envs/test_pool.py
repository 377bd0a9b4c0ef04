"""Which environments are accepted, and the errors for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from disc.envs.factory import Maker
from disc.envs.pool import Environments, describe
from disc.envs.tasks import TASKS
from disc.types import DiscError
from tests.support import environments as probes


@pytest.mark.parametrize("name", list(TASKS))
def test_short_names_make_the_papers_tasks(name: str) -> None:
    env = Maker(name).make()
    spec, task = describe(env, name), TASKS[name]
    assert (spec.observation_size, spec.action_size) == (task.observation_size, task.action_size)
    assert env.spec is not None
    assert env.spec.id == Maker(name).name == task.id


@pytest.mark.parametrize(
    ("source", "kwargs"),
    [
        ("Hopper-v5", {"exclude_current_positions_from_observation": False}),
        ("tests.support.environments:wide", {}),
        (probes.wide, {}),
        (probes.Wide, {}),
        (probes.Wide(), {}),
        (gym.make("Pendulum-v1"), {}),
    ],
)
def test_environments_can_be_ids_objects_or_functions(source: Any, kwargs: dict[str, Any]) -> None:
    env = Environments(Maker(source, kwargs), 1)
    env.reset(0, 0)
    assert env.observations().shape == (1, env.spec.observation_size)


def test_keyword_arguments_reach_the_environment() -> None:
    kwargs = {"exclude_current_positions_from_observation": False}
    assert describe(Maker("Hopper-v5", kwargs).make(), "").observation_size == 12


def test_spaces_of_any_shape_are_flattened() -> None:
    spec = describe(probes.Wide(), "wide")
    assert (spec.observation_size, spec.observation_shape) == (6, (2, 3))
    assert (spec.action_size, spec.action_shape) == (4, (2, 2))
    np.testing.assert_array_equal(spec.action_high, np.full(4, 0.5, np.float32))
    assert np.isposinf(describe(probes.Unbounded(), "unbounded").action_high).all()


def test_bounds_are_rounded_inwards() -> None:
    class Double(probes.Wide):
        action_space = gym.spaces.Box(
            np.array([-0.3, -0.1]), np.array([0.1, 0.3]), dtype=np.float64
        )

    spec, space = describe(Double(), "double"), Double.action_space
    for bound in (spec.action_low, spec.action_high):
        assert bound.dtype == np.float32
        assert space.contains(bound.astype(np.float64))
        np.testing.assert_allclose(np.abs(bound), [0.3, 0.1][:: 1 if bound[0] < 0 else -1])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("CartPole-v1", "Discrete actions, and these algorithms need continuous"),
        (probes.Discrete, "Discrete actions"),
        (probes.Image, "image observations .* wrap it"),
        (probes.Mapping, "Dict observations.*FlattenObservation"),
        ("Hoper-v5", "no such environment.*disc list"),
        ("no.such.module:thing", "can't be imported"),
        ("tests.support.environments:missing", "can't be imported"),
        ("tests.support.environments:nothing", "made a int, not a gymnasium.Env"),
        (lambda: 1 / 0, "making the environment failed .ZeroDivisionError"),
    ],
)
def test_unusable_environments_raise_one_line_errors(source: Any, says: str) -> None:
    with pytest.raises(DiscError, match=says) as caught:
        Environments(Maker(source), 1)
    assert "\n" not in str(caught.value)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*_: Any, **__: Any) -> Any:
        raise gym.error.DependencyNotInstalled("box2d is not installed")

    monkeypatch.setattr(gym, "make", make)
    with pytest.raises(DiscError, match=r"a package it needs is missing.*box2d.*install"):
        Maker("BipedalWalker-v3").make()


def test_one_object_cannot_serve_as_several_environments() -> None:
    with pytest.raises(DiscError, match="pass a function"):
        Environments(Maker(probes.Wide()), 2)


def test_environment_object_is_used_for_training_and_copied_for_evaluation() -> None:
    env = probes.Wide()
    maker = Maker(env)
    assert Environments(maker, 1).lanes[0].env is env
    assert maker.make() is not env


def test_mujoco_leaves_no_log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Maker("HalfCheetah-v5").make()
    assert not list(tmp_path.iterdir())
