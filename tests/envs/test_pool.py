"""Which environments are accepted, and the errors for the others."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from disc.envs.factory import Maker
from disc.envs.packages import package_of
from disc.envs.pool import Environments
from disc.envs.spaces import describe
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
        (probes.Letters, "Text actions, but float Box, Discrete, MultiDiscrete or MultiBinary"),
        (probes.Whole, "integer Box actions"),
        (probes.Crowded, r"2 dimensions with up to 1,000,000 choices each, .* fewer"),
        (probes.Image, "image observations .* wrap it"),
        (probes.Camera, r"image observations of shape \(40, 40, 3\) in entry eye.* wrap it"),
        (probes.Written, "has Text observations in entry note, .* wrap it"),
        ("Hoper-v5", "no such environment.*disc list"),
        ("no.such.module:thing", "can't be imported"),
        ("tests.support.environments:missing", "can't be imported"),
        ("tests.support.environments:nothing", "returned type int, not a gymnasium.Env"),
        (lambda: 1 / 0, "creating the environment failed .ZeroDivisionError"),
    ],
)
def test_unusable_environments_raise_one_line_errors(source: Any, says: str) -> None:
    with pytest.raises(DiscError, match=says) as caught:
        Environments(Maker(source), 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "dm_control/walker-walk-v0",
            "shimmy.dm-control.*name it as shimmy:dm_control/walker-walk-v0",
        ),
        ("ALE/Pong-v5", "registered by ale_py: .*ale-py.*name it as ale_py:ALE/Pong-v5"),
        ("FetchReach-v4", "gymnasium-robotics.*name it as gymnasium_robotics:FetchReach-v4"),
        ("gymnasium_robotics:HandReach-v0", "can't be imported|pip install 'gymnasium-robotics'"),
        ("nowhere:Thing-v0", "No module named 'nowhere'"),
    ],
)
def test_unknown_namespace_names_its_package(
    source: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(DiscError, match=says) as caught:
        Maker(source).make()
    assert "\n" not in str(caught.value)


def test_installed_package_must_be_named_to_be_imported(tmp_path: Path) -> None:
    assert "it is registered by shimmy: name it as" in _with_package("dm_control/a-b-v0")
    assert "registers no such id" in _with_package("shimmy:dm_control/a-b-v0")


def _with_package(id: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda *_: object())
        return package_of(id) or ""


def test_id_of_a_package_is_registered_by_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not because a file says so."""
    code = "import gymnasium as gym\n"
    code += "gym.register('there/Wide-v0', 'tests.support.environments:Wide')\n"
    (tmp_path / "registering_package.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    id = "registering_package:there/Wide-v0"
    with pytest.raises(DiscError, match=r"file must not choose; if you trust it, name it"):
        Maker.from_file("p.disc", id, {})
    assert "registering_package" not in sys.modules
    with Environments(Maker(id), 1).lanes[0].env as env:
        assert isinstance(env.unwrapped, probes.Wide)
    gym.registry.pop("there/Wide-v0")


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
