"""Agents learn from nested observations, and everything around them works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import disc
from disc import PPO, SAC, DiscError
from disc.envs.factory import Maker
from tests.support.compare import assert_equal_trees
from tests.support.diagnosis import check
from tests.support.environments import Camera, Image, Nested, Wide, Written, nested
from tests.support.small import QUIET, small

NESTED = "tests.support.environments:nested"


def flat() -> Any:
    return gym.wrappers.FlattenObservation(nested())


@pytest.mark.parametrize("kind", [PPO, SAC])
def test_nested_observations_train_as_if_flattened(kind: Any) -> None:
    """Bit for bit as with Gymnasium's wrapper, evaluations included."""
    options = {**QUIET, "eval_every": 256, "eval_episodes": 1}
    agents = [small(kind, env).learn(512, **options) for env in (nested, flat)]
    assert agents[0].env.spec == agents[1].env.spec._replace(
        action_low=agents[0].env.spec.action_low, action_high=agents[0].env.spec.action_high
    )
    assert_equal_trees(*(agent.state.parameters() for agent in agents))
    names = ("train/return", "eval/return")
    rows = [[[row[x] for x in names if x in row] for row in agent.metrics] for agent in agents]
    assert rows[0] == rows[1]
    assert any("eval/return" in row for row in agents[0].metrics)
    assert agents[1].policy.layout is None
    observation = Nested.observation_space.sample()
    flattened = gym.spaces.utils.flatten(Nested.observation_space, observation)
    np.testing.assert_array_equal(
        agents[0].predict(observation)[0], agents[1].predict(flattened)[0]
    )


def test_resumed_run_with_nested_observations_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    plan = {**QUIET, "checkpoint_every": 512}
    whole = small(PPO, NESTED, anneal_steps=1024).learn(1024, out=tmp_path / "whole", **plan)
    small(PPO, NESTED, anneal_steps=1024).learn(768, out=tmp_path / "run", **plan)
    resumed = disc.resume(tmp_path / "run", 1024, env=NESTED, progress=False)
    assert_equal_trees(resumed.state.parameters(), whole.state.parameters())
    np.testing.assert_array_equal(resumed.env.observations(), whole.env.observations())
    observation = Nested.observation_space.sample()
    for acting in (disc.load(tmp_path / "run"), PPO.load(tmp_path / "run", NESTED)):
        np.testing.assert_array_equal(acting.predict(observation)[0], whole.predict(observation)[0])


class Faulty(Nested):
    """Wrong from the third step on."""

    wrong: Any = None
    time = 0

    def nested(self, x: Any) -> dict[str, Any]:
        self.time += 1
        return super().nested(x) if self.time < 4 else self.wrong(super().nested(x))


def with_nan(x: Any) -> Any:
    return {**x, "arm": (np.float32([[0.0, np.nan]]), x["arm"][1])}


FAULTS: dict[str, tuple[Any, str]] = {
    "nan": (with_nan, r"the observation at step 3 is not finite \(arm\[0\]\[0, 1\] is NaN\)"),
    "missing": (lambda x: {"arm": x["arm"]}, "the observation at step 3 lacks the key 'gear'"),
    "category": (
        lambda x: {**x, "gear": 7},
        "entry gear of the observation at step 3 is 7, not a whole number from 1 to 2",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_nested_observations_name_the_entry_and_the_step(name: str) -> None:
    wrong, says = FAULTS[name]
    kind = type("Broken", (Faulty,), {"wrong": staticmethod(wrong)})
    with pytest.raises(DiscError, match=says):
        small(PPO, kind).learn(256, **QUIET)
    problems = [x.text for x in check(Maker(kind), 50) if x.kind == "problem"]
    assert len(problems) == 1
    assert "tep 3" in problems[0]


def test_check_of_nested_observations_names_entries() -> None:
    assert not [x for x in check(Maker(nested), 200) if x.kind != "good"]

    def large(self: Any, x: Any) -> Any:
        return {"gear": 1, "arm": (np.float32([[x[0, 0], 5e4]]), np.int8([0, 1]))}

    texts = [x.text for x in check(Maker(type("Large", (Nested,), {"nested": large})), 50)]
    assert any("Entry arm[0][0, 1] of the observation reaches 5e+04" in x for x in texts)
    assert any("(arm[0][0, 1], arm[1][0], arm[1][1] …)" in x for x in texts)

    def loose(self: Any, x: Any) -> Any:
        return {"gear": 1, "arm": (np.float32(x[0, :2]), np.int8([0, 1]))}

    found = check(Maker(type("Loose", (Nested,), {"nested": loose})), 50)
    problems = [x.text for x in found if x.kind == "problem"]
    assert len(problems) == 1
    assert problems[0].startswith("Entry arm[0] of the observation has shape (2,), not (1, 2)")


@pytest.mark.parametrize("kind", [Image, Camera, Written])
def test_check_and_training_refuse_a_space_with_the_same_sentence(kind: Any) -> None:
    sentences = []
    for use in (lambda: check(Maker(kind), 10), lambda: small(PPO, kind)):
        with pytest.raises(DiscError) as caught:
            use()
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]


@pytest.mark.parametrize("kind", [Wide, Nested])
def test_stacked_frames_work_from_check_to_predict(kind: Any, tmp_path: Path) -> None:
    """The example in docs/deployment.md, for arrays and nested observations."""

    def make() -> Any:
        return gym.wrappers.FrameStackObservation(kind(), 3)

    assert not [x for x in check(Maker(make), 100) if x.kind != "good"]
    with small(PPO, make) as agent:
        assert agent.env.spec.observation_size == 18
        agent.learn(256, out=tmp_path / "run", **QUIET)
        observation, _ = make().reset(seed=0)
        found, _ = disc.load(tmp_path / "run").predict(observation)
        assert found.shape == (2, 2)
        np.testing.assert_array_equal(found, agent.predict(observation)[0])
