"""Vector environments give the rows of single ones, in every autoreset mode."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import disc
from disc import PPO, SAC, DiscError
from disc.envs import contract
from disc.envs.factory import Maker
from disc.envs.pool import Environments
from disc.envs.rollout import collect
from disc.policy.layout import Layout
from disc.types import Rollout
from faults.outcome import differences
from tests.support import environments as probes
from tests.support.environments import Counter
from tests.support.rollouts import Actor
from tests.support.small import QUIET, small

MODES = list(AutoresetMode)


class Shifted(Counter):
    """A counter whose episodes of both kinds alternate in the other order."""

    episode = 0


def vector(*makers: Any, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> SyncVectorEnv:
    return SyncVectorEnv(list(makers), autoreset_mode=mode)


def gathered(source: Any, batches: int, n: int, num_envs: int = 1) -> list[Rollout]:
    env = Environments(Maker(source), Maker(source).num_envs(num_envs))
    env.reset(0, 0)
    found = []
    for iteration in range(batches):
        state = SimpleNamespace(seed=5, iteration=iteration, step=n * iteration)
        found.append(collect(env, lambda _: Actor(), state, n))
    env.close()
    return found


@pytest.mark.parametrize("mode", MODES)
def test_rows_have_true_final_observations_and_no_resets(mode: AutoresetMode) -> None:
    (rows,) = gathered(vector(Counter, Shifted, mode=mode), 1, 18)
    first, second = ({k: v[i : i + 9] for k, v in rows._asdict().items()} for i in (0, 9))
    np.testing.assert_array_equal(first["observation"][:, 0], [0, 1, 2, 0, 1, 2, 3, 0, 1])
    np.testing.assert_array_equal(first["next_observation"][:, 0], [1, 2, 3, 1, 2, 3, 4, 1, 2])
    np.testing.assert_array_equal(first["reward"], [1, 2, 3, 1, 2, 3, 4, 1, 2])
    np.testing.assert_array_equal(np.flatnonzero(first["terminated"]), [2])
    np.testing.assert_array_equal(np.flatnonzero(first["truncated"]), [6])
    np.testing.assert_array_equal(second["observation"][:, 0], [0, 1, 2, 3, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(second["next_observation"][:, 0], [1, 2, 3, 4, 1, 2, 3, 1, 2])
    np.testing.assert_array_equal(np.flatnonzero(second["truncated"]), [3])
    np.testing.assert_array_equal(np.flatnonzero(second["terminated"]), [6])
    np.testing.assert_array_equal(np.flatnonzero(rows.border), [8, 17])
    np.testing.assert_array_equal(rows.returns, [6, 10, 10, 6])
    np.testing.assert_array_equal(rows.lengths, [3, 4, 4, 3])
    np.testing.assert_array_equal(rows.mean, 10.0 * rows.observation)
    assert len(np.unique(rows.action - rows.mean)) > 16  # no two draws of noise are the same


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_vector_gives_the_rows_of_separate_environments(mode: AutoresetMode) -> None:
    class Ends(probes.Signal):
        """Random observations and ends of both kinds."""

        def step(self, action: Any) -> Any:
            end, value = self.np_random.random(2)
            return np.float32([value]), float(action[0]), end < 0.1, end > 0.9, {}

    wanted = gathered(Ends, 3, 90, num_envs=3)
    for rollout, own in zip(gathered(vector(*[Ends] * 3, mode=mode), 3, 90), wanted, strict=True):
        for x, y in zip(rollout, own, strict=True):
            np.testing.assert_array_equal(x, y)


def test_batch_after_unequal_resets_begins_where_each_episode_stands() -> None:
    """In next-step mode, environments fall behind by their resets."""

    class Short(Counter):
        def step(self, action: Any) -> Any:
            observation, reward, *_, info = super().step(action)
            return observation, reward, True, False, info

    class Long(Counter):
        def step(self, action: Any) -> Any:
            observation, reward, *_, info = super().step(action)
            return observation, reward, False, False, info

    first, second = gathered(vector(Short, Long), 2, 8)
    np.testing.assert_array_equal(first.observation[:, 0], [0, 0, 0, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(first.next_observation[:, 0], [1, 1, 1, 1, 1, 2, 3, 4])
    np.testing.assert_array_equal(second.next_observation[:4, 0], [1, 1, 1, 1])
    np.testing.assert_array_equal(second.observation[4:, 0], [7, 8, 9, 10])  # after 7 calls
    np.testing.assert_array_equal(second.returns, [1, 1, 1, 1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [PPO, SAC])
def test_agents_learn_from_a_vector_and_resume_exactly(
    kind: Any, mode: AutoresetMode, tmp_path: Path
) -> None:
    source = partial(vector, *[probes.Wide] * 2, mode=mode)
    options = {"checkpoint_every": 700, **QUIET}
    with small(kind, source()) as agent:
        assert agent.num_envs == 2
        agent.learn(1024, out=tmp_path / "whole", **options)
    with small(kind, source()) as agent:
        agent.learn(
            1024, out=tmp_path / "run", callbacks=[lambda a, _: a.state.step < 512], **options
        )
    with pytest.raises(DiscError, match=r"created in Python; use disc.resume\(…, env=…\)"):
        disc.resume(tmp_path / "run", progress=False)
    disc.resume(tmp_path / "run", 1024, env=source(), progress=False).close()
    assert differences(tmp_path / "whole", tmp_path / "run") == []


def test_evaluation_uses_one_environment_of_the_vector() -> None:
    assert isinstance(Maker(vector(probes.Wide, probes.Wide)).make(), probes.Wide)
    made = gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    assert Maker(made).name == "CartPole-v1"
    assert isinstance(Maker(made).make(), gym.Env)
    wrapped = gym.wrappers.vector.ClipReward(made, 0.0, 0.5)
    with pytest.raises(DiscError, match=r"single environment.*eval_every=0"):
        Maker(wrapped).make()


def test_environment_that_takes_one_seed_can_be_used() -> None:
    with PPO(gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")) as agent:
        agent.env.reset(0, 0)
        first = agent.env.observations()
        agent.env.reset(0, 0)
        np.testing.assert_array_equal(agent.env.observations(), first)


def test_async_vector_is_stepped_in_its_own_processes() -> None:
    makers: Any = [Counter, Shifted]
    mode = AutoresetMode.SAME_STEP
    source = AsyncVectorEnv(makers, context="spawn", autoreset_mode=mode)
    (rows,) = gathered(source, 1, 10)
    wanted = gathered(vector(Counter, Shifted, mode=AutoresetMode.SAME_STEP), 1, 10)
    for x, y in zip(rows, wanted[0], strict=True):
        np.testing.assert_array_equal(x, y)


class Unlabelled(SyncVectorEnv):
    """Does not say how it resets."""

    def __init__(self) -> None:
        super().__init__([probes.Wide])
        self.metadata = {}


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        (Unlabelled(), {}, "autoreset_mode.*is None.*num_envs"),
        (vector(probes.Wide, probes.Wide), {"num_envs": 3}, "has 2 environments.*can't be 3"),
        (vector(probes.Nested), {}, "Dict observations.*num_envs"),
        (vector(probes.Wide), {"workers": "processes"}, "object of this process.*threads"),
    ],
)
def test_vectors_that_cannot_be_used_are_refused(
    source: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(DiscError, match=says) as caught:
        PPO(source, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("raise", "raised at step 13 .*motor is on fire"),
        ("nan-observation", "observation at step 13 is not finite"),
        ("inf-reward", "reward at step 13 is not finite .* in environment 0"),
    ],
)
def test_faults_of_a_vector_name_the_step(fault: str, says: str) -> None:
    probes.Bad.total = 0
    source = vector(partial(probes.Bad, fault, 13), partial(probes.Bad, "none"))
    with pytest.raises(DiscError, match=f"^SyncVectorEnv: .*{says}"):
        gathered(source, 1, 32)


RIGHT = (np.zeros((2, 3), np.float32), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), {})


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the motor is on fire")


@pytest.mark.parametrize(
    ("reset", "says"),
    [
        (fails, "raised (RuntimeError: the motor is on fire)"),
        (lambda **_: RIGHT[0], "but (observations, info) is needed"),
        (lambda **_: (RIGHT[0][:1], {}), "shape (1, 3)"),
    ],
)
def test_bad_resets_of_a_vector_are_reported(reset: Any, says: str) -> None:
    with pytest.raises(contract.BadReset) as raised:
        contract.reset_vector(SimpleNamespace(num_envs=2, reset=reset), Layout.box((3,)), 0, {})
    assert says in raised.value.at("at step 7")


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (fails, "raised at step 7 (RuntimeError: the motor is on fire)"),
        (lambda _: RIGHT[:4], "but five are needed"),
        (lambda _: (RIGHT[0], [0.0, np.nan], *RIGHT[2:]), "in environment 1"),
        (lambda _: (*RIGHT[:2], [False, np.zeros(2)], *RIGHT[3:]), "not True or False"),
        (lambda _: (*RIGHT[:2], None, *RIGHT[3:]), "is not 2 of observation, reward"),
    ],
)
def test_bad_steps_of_a_vector_are_reported(step: Any, says: str) -> None:
    with pytest.raises(contract.Misbehaved) as raised:
        contract.step_vector(SimpleNamespace(num_envs=2, step=step), None, Layout.box((3,)))
    assert says in raised.value.at("at step 7")
