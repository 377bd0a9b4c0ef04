"""The Python interface: acting, learning, stopping and metrics."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

from disc import PPO, PPOAMBER, SAC, DiscError
from disc.learning import minibatch
from disc.learning.networks import forward
from disc.learning.normalize import observations, scale
from disc.run import log
from disc.run.agent import Agent
from tests.support import environments as probes
from tests.support.compare import assert_equal_trees
from tests.support.small import QUIET, small


def test_predict_takes_one_observation_or_a_batch() -> None:
    agent = small().learn(512, **QUIET)
    batch = np.random.default_rng(0).standard_normal((5, 2, 3))
    actions, state = agent.predict(batch)
    assert actions.shape == (5, 2, 2)
    assert state is None
    one, _ = agent.predict(batch[3])
    np.testing.assert_allclose(one, actions[3], rtol=1e-5, atol=1e-7)
    assert agent.predict(batch[:1])[0].shape == (1, 2, 2)
    sampled, _ = agent.predict(batch, deterministic=False)
    assert not np.allclose(sampled, actions)
    with pytest.raises(DiscError, match=r"shape \(4,\)"):
        agent.predict(np.zeros(4))


def test_numpy_actions_match_the_network() -> None:
    agent = small().learn(512, **QUIET)
    x = np.random.default_rng(1).standard_normal((7, 2, 3)).astype(np.float32)
    snapshot = scale(agent.state.normalizer)
    mean = forward(agent.state.policy.parameters.mean, observations(snapshot, x.reshape(7, 6)))
    np.testing.assert_allclose(agent.predict(x)[0].reshape(7, 4), mean, rtol=1e-4, atol=1e-6)


def test_actions_are_clipped_only_if_asked() -> None:
    agent = small(horizon=256)
    x = 100.0 * np.ones((2, 3))
    agent.state.policy.parameters.mean[-1].bias.block_until_ready()
    far = jax.tree.map(lambda leaf: leaf + 3.0, agent.state.policy.parameters)
    agent.training.state = dataclasses.replace(
        agent.state, policy=agent.state.policy._replace(parameters=far)
    )
    assert np.max(agent.predict(x)[0]) > 0.5
    assert np.max(agent.predict(x, clip=True)[0]) <= 0.5


@pytest.mark.parametrize("clip", [False, True])
def test_environment_gets_clipped_actions_only_with_the_option(clip: bool) -> None:
    largest = 0.0

    class Watching(probes.Wide):
        def step(self, action: Any) -> Any:
            nonlocal largest
            largest = max(largest, float(np.max(action)))
            return super().step(action)

    agent = small(PPO, Watching, clip_actions=clip).learn(256, **QUIET)
    assert (largest <= 0.5) == clip
    assert agent.metrics[0]["train/actions_outside"] > 0.3


def test_non_finite_values_stop_the_run_before_it_saves(tmp_path: Path) -> None:
    def poison(agent: Agent, row: dict[str, float]) -> None:
        if agent.state.step == 512:
            bad = jax.tree.map(lambda x: x * np.nan, agent.state.value.parameters)
            value = agent.state.value._replace(parameters=bad)
            agent.training.state = dataclasses.replace(agent.state, value=value)

    with pytest.raises(DiscError, match="update at step 768 gave a non-finite value"):
        small().learn(2048, out=tmp_path / "run", checkpoint_every=256, callbacks=[poison], **QUIET)
    names = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert names[-1] == "step_000000000512.safetensors"


def test_non_finite_values_stop_off_policy_runs_at_the_next_update() -> None:
    def poison(agent: Agent, row: dict[str, float]) -> None:
        if agent.state.step == 512:
            bad = jax.tree.map(lambda x: x * np.nan, agent.state.value.parameters)
            value = agent.state.value._replace(parameters=bad)
            learned = agent.state.learned._replace(value=value)
            agent.training.state = dataclasses.replace(agent.state, learned=learned)

    with pytest.raises(DiscError, match="update at step 528 gave a non-finite value"):
        small(SAC).learn(2048, callbacks=[poison], **QUIET)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("raise", r"raised at step 310 .*motor is on fire"),
        ("nan-observation", "observation at step 310 is not finite"),
        ("inf-reward", "reward at step 310 is not finite"),
        ("shape", r"observation at step 310 has shape \(3,\)"),
    ],
)
def test_environment_faults_are_reported_with_single_steps(fault: str, says: str) -> None:
    probes.Bad.total = 0
    agent = small(SAC, lambda: probes.Bad(fault, 310), steps_per_update=1, updates_per_step=1.0)
    with pytest.raises(DiscError, match=says):
        agent.learn(512, **QUIET)
    assert np.isfinite(agent.predict(np.zeros(1))[0]).all()


def test_run_with_only_random_steps_gives_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    small(SAC, random_steps=256).learn(256, eval_every=0)
    assert "Nothing will be learned: the first 256 steps are random" in capsys.readouterr().err


def test_callbacks_see_every_row_and_can_stop_the_run() -> None:
    seen: list[float] = []

    def watch(agent: Agent, row: dict[str, float]) -> bool:
        seen.append(row["step"])
        return agent.state.step < 768

    agent = small().learn(5_000, callbacks=[watch], **QUIET)
    assert seen == [256, 512, 768] == [row["step"] for row in agent.metrics]


@pytest.mark.parametrize("answer", [0, None, True, np.zeros(2)])
def test_only_false_stops_a_run(answer: Any) -> None:
    agent = small(PPO).learn(512, callbacks=[lambda *_: answer], **QUIET)
    assert agent.state.step == 512


def test_ctrl_c_raises_after_the_iteration_is_finished() -> None:
    def press(agent: Agent, row: dict[str, float]) -> None:
        signal.raise_signal(signal.SIGINT)

    agent = small(PPO)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(2048, callbacks=[press], **QUIET)
    assert agent.state.step == 256


def test_run_length_and_learning_rate_do_not_recompile() -> None:
    small().learn(512, **QUIET)
    programs = minibatch.descend._cache_size()
    small(learning_rate=1e-3, j_targ=1e-2, epochs=2).learn(256, **QUIET)
    assert minibatch.descend._cache_size() == programs


def test_samples_can_be_seeded() -> None:
    policy = small().policy
    draws = []
    for seed in (1, 1, 2):
        policy.seed(seed)
        draws.append(policy.predict(np.zeros((2, 3)), deterministic=False)[0])
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_wrapped_environment_object_is_evaluated_on_a_copy() -> None:
    class Odd(gym.Wrapper[Any, Any, Any, Any]):
        """Does not report how it was made."""

    env = Odd(gym.make("Pendulum-v1"))
    agent = small(PPO, env)
    agent.learn(256, eval_every=256, eval_episodes=1, progress=False)
    assert agent.env.lanes[0].env is env
    assert "eval/return" in agent.metrics[-1]


def test_learn_continues_where_it_stopped() -> None:
    agent = small().learn(512, **QUIET).learn(512, **QUIET)
    assert [row["step"] for row in agent.metrics] == [256, 512, 768, 1024]


def test_later_columns_are_empty_in_earlier_rows(tmp_path: Path) -> None:
    """Nothing is learned in the first iteration, so nothing is measured."""
    agent = small(SAC, random_steps=256)
    agent.learn(768, out=tmp_path / "run", eval_every=0, progress=False)
    first, *others = log.read_progress(tmp_path / "run/progress.csv")
    assert "train/value_loss" not in first
    assert [row["step"] for row in others if "train/value_loss" in row] == [512, 768]
    header, *lines = (tmp_path / "run/progress.csv").read_text().splitlines()
    assert {line.count(",") for line in lines} == {header.count(",")}


def test_off_policy_horizon_does_not_change_learning() -> None:
    """The horizon of an off-policy run only sets how often a row is recorded."""
    short, long = (small(SAC, horizon=n).learn(512, **QUIET) for n in (128, 256))
    assert (len(short.metrics), len(long.metrics)) == (4, 2)
    assert_equal_trees(short.state.learned, long.state.learned)


def test_disc_records_all_its_metrics() -> None:
    agent = small()
    row = agent.learn(1024, eval_every=256, eval_episodes=2, progress=False).metrics[-1]
    assert list(row)[:2] == ["step", "time/elapsed"]
    wanted = """
        eval/return eval/return_std eval/length train/return train/length train/entropy train/std
        train/learning_rate train/value_loss train/explained_variance train/actions_outside
        is/j_is is/kl is/alpha is/rho_start is/rho_d_start is/rho_last is/rho_d_last is/vanished
        is/clipped_dimensions is/batches is/oldest_age is/effective_samples is/rho_d_age_0
        is/rho_d_age_3 time/sampling time/reading time/updating time/evaluating
    """
    assert set(wanted.split()) <= set(row)


def test_amber_with_one_batch_equals_ppo_bit_for_bit() -> None:
    ppo = small(PPO).learn(1024, **QUIET)
    amber = small(PPOAMBER, replay_length=1).learn(1024, **QUIET)
    learned = [(agent.state.policy, agent.state.value) for agent in (ppo, amber)]
    assert_equal_trees(*learned)
    timeless = [{k: v for k, v in agent.metrics[-1].items() if not k.startswith("time/")}
                for agent in (ppo, amber)]  # fmt: skip
    assert timeless[0] == timeless[1]
