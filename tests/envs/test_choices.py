"""Discrete action spaces: what is read from them, and the actions that environments get."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from disc import DiscError
from disc.envs.evaluate import evaluate
from disc.envs.factory import Maker
from disc.envs.pool import Environments
from disc.envs.rollout import collect
from disc.envs.spaces import describe
from disc.learning import actor_critic, distribution, normalize, optim
from disc.types import Choices
from tests.support import environments as probes
from tests.support.diagnosis import check
from tests.support.environments import SPACES, Choosing

every_space = pytest.mark.parametrize("space", list(SPACES))


@pytest.mark.parametrize(
    ("space", "counts", "starts", "dtype", "shape"),
    [
        ("discrete", (3,), [-1], "int64", ()),
        ("multi", (3, 2, 4, 2), [-1, 0, 10, 5], "int64", (2, 2)),
        ("binary", (2, 2, 2, 2), [0, 0, 0, 0], "int8", (2, 2)),
        ("even", (3, 3), [0, 0], "int32", (2,)),
    ],
)
def test_discrete_spaces_are_described_as_choices(
    space: str, counts: tuple[int, ...], starts: list[int], dtype: str, shape: tuple[int, ...]
) -> None:
    spec = describe(Choosing(space), space)
    assert spec.choices is not None
    assert (spec.choices.counts, spec.choices.starts.tolist()) == (counts, starts)
    assert (spec.choices.dtype, spec.action_shape) == (dtype, shape)
    assert (spec.action_size, spec.outputs) == (len(counts), sum(counts))


@every_space
def test_every_choice_becomes_an_action_of_the_space(space: str) -> None:
    spec = describe(Choosing(space), space)
    assert spec.choices is not None
    for _ in range(30):
        sampled = SPACES[space].sample()
        index = np.reshape(sampled, -1) - spec.choices.starts
        assert spec.choices.contain(index.astype(np.float32))
        action = spec.choices.action(index.astype(np.float32), spec.action_shape)
        np.testing.assert_array_equal(action, sampled)


def test_offsets_beyond_single_precision_are_exact() -> None:
    class Far(probes.Probe):
        action_space = gym.spaces.Discrete(3, start=2**53 + 1)

    spec = describe(Far(), "far")
    assert spec.choices is not None
    assert spec.choices.action(np.float32([2]), ()) == 2**53 + 3


@pytest.mark.parametrize("index", [-1.0, 3.0, 0.5, np.nan, np.inf])
def test_numbers_outside_the_choices_are_not_contained(index: float) -> None:
    choices = Choices((3, 3), np.zeros(2, np.int64), "int64")
    assert choices.contain(np.float32([[0, 2], [1, 0]]))
    assert not choices.contain(np.float32([[0, 2], [index, 0]]))


def actor(space: str) -> Any:
    """A new policy of DISC for a space."""
    spec = describe(Choosing(space), space)
    rng = np.random.default_rng(0)
    policy = distribution.init(rng, (8,), spec, None, halve_std=False)
    state: Any = SimpleNamespace(policy=optim.init(policy), normalizer=normalize.init(6, 1))
    return actor_critic.act(SimpleNamespace(clip_actions=True), spec, state)


@every_space
@pytest.mark.parametrize("num_envs", [1, 2])
def test_rollout_stores_indices_and_logits(space: str, num_envs: int) -> None:
    """The environment raises if an action is not of its space's type."""
    env, acting = Environments(Maker(lambda: Choosing(space)), num_envs), actor(space)
    env.reset(0, 0)
    state = SimpleNamespace(seed=5, iteration=0, step=0)
    rollout = collect(env, lambda _: acting, state, 64)
    assert env.spec.choices is not None
    assert env.spec.choices.contain(rollout.action)
    assert rollout.mean.shape == (64, env.spec.outputs)
    logits = acting.logits(rollout.observation)
    np.testing.assert_allclose(rollout.mean, logits, rtol=1e-4, atol=1e-6)
    for d, count in enumerate(env.spec.choices.counts):
        assert len(np.unique(rollout.action[:, d])) == count


@every_space
def test_replayed_actions_restore_the_episodes(space: str) -> None:
    def fresh() -> Environments:
        env = Environments(Maker(lambda: Choosing(space)), 2)
        env.reset(0, 0)
        return env

    first, second, acting = fresh(), fresh(), actor(space)
    collect(first, lambda _: acting, SimpleNamespace(seed=5, iteration=0, step=0), 64)
    second.replay(np.concatenate(first.actions_since_reset, axis=1), acting.bound)
    np.testing.assert_array_equal(first.observations(), second.observations())


@pytest.mark.parametrize("wrong", [7.0, -1.0, np.nan])
def test_replaying_actions_that_are_not_choices_raises(wrong: float) -> None:
    env = Environments(Maker(probes.choosing), 1)
    env.reset(0, 0)
    with pytest.raises(DiscError, match="not among its choices"):
        env.replay(np.full((1, 3, 4), wrong, np.float32), actor("multi").bound)


@every_space
@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation_gives_actions_of_the_space(space: str, deterministic: bool) -> None:
    found = evaluate(Choosing(space), actor(space), 2, 0, deterministic=deterministic)
    assert np.isfinite(found.returns).all()


@pytest.mark.parametrize("steps", [1, 64])
def test_non_finite_observation_is_blamed_on_the_environment(steps: int) -> None:
    """Also if the policy then has to choose an action for it."""

    class Broken(Choosing):
        def step(self, action: Any) -> Any:
            _, *rest = super().step(action)
            return (np.full((2, 3), np.nan), *rest)

    env, acting = Environments(Maker(Broken), 1), actor("multi")
    env.reset(0, 0)
    state = SimpleNamespace(seed=5, iteration=0, step=0)
    with pytest.raises(DiscError, match="the observation at step 1 is not finite"):
        collect(env, lambda _: acting, state, steps)


@every_space
def test_check_finds_nothing_wrong_and_names_the_algorithms(space: str) -> None:
    found = check(Maker(lambda: Choosing(space)), 100)
    assert not [finding for finding in found if finding.kind == "problem"]
    told = [finding.text for finding in found if "Discrete actions" in finding.text]
    assert len(told) == 1
    assert "disc, ppo and ppo-amber can learn them" in told[0]


def test_check_command_accepts_discrete_actions(capsys: pytest.CaptureFixture[str]) -> None:
    from disc.cli import main

    main.main(["check", "CartPole-v1", "--steps", "50"])
    assert "Discrete actions: 1 dimension with 2 choices" in capsys.readouterr().out


def test_video_of_discrete_actions_is_recorded(tmp_path: Path) -> None:
    from disc.run.agents import AGENTS
    from disc.video import record

    with AGENTS["ppo"]("CartPole-v1", widths=(16, 16)) as agent:
        found = record.record(
            agent.maker.make, lambda x: agent.predict(x)[0], tmp_path / "v.gif", max_seconds=0.2
        )
    assert found.frames > 1
