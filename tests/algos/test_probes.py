"""Each algorithm learns the known values and best actions of small environments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.algos import acktr, trust_pcl
from disc.learning import normalize, off_policy
from disc.learning.networks import forward
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from tests.support import environments as probes
from tests.support.probe_options import GAMMA, OPTIONS

pytestmark = pytest.mark.usefixtures("_optimised")

OFF_POLICY_NAMES = ("ddpg", "td3", "sac", "sql")


def trained(algorithm: str, env: Any, steps: int, **options: Any) -> Agent:
    agent = AGENTS[algorithm](env, seed=1, gamma=GAMMA, **{**OPTIONS[algorithm], **options})
    steps = steps // 4 if algorithm in OFF_POLICY_NAMES else steps
    return agent.learn(steps, eval_every=0, progress=False)


def value(agent: Agent, observation: float) -> float:
    """V in unnormalised rewards; for off-policy algorithms, Q of the policy's action."""
    if agent.algorithm.NAME in OFF_POLICY_NAMES:
        return action_value(agent, observation)
    value = agent.state.value.parameters
    if agent.algorithm is trust_pcl:
        return float(trust_pcl.values(value, np.float32([[observation]]))[0])
    scale = normalize.scale(agent.state.normalizer)
    x = normalize.observations(scale, np.float32([[observation]]))
    activation = jax.nn.elu if agent.algorithm is acktr else jnp.tanh
    return float(forward(value, x, activation)[0, 0]) / float(scale.reward)


def action_value(agent: Agent, observation: float) -> float:
    """The critics' minimum Q(s, π(s)), averaged over 500 actions, which may be sampled."""
    x = np.full((500, 1), observation, np.float32)
    action, _ = agent.predict(x)
    critics = agent.state.value.parameters
    critics = critics.q if agent.algorithm.NAME == "sac" else critics
    if agent.algorithm.NAME == "ddpg":
        x = normalize.observations(normalize.scale(agent.state.normalizer), x, 5.0)
    found = off_policy.least(critics, jnp.asarray(x), jnp.asarray(action))
    return float(jnp.mean(found)) / (getattr(agent.config, "reward_scale", None) or 1.0)


def assert_follows(agent: Agent) -> None:
    actions, _ = agent.predict(np.float32([[1.0], [-1.0]] * 500))
    means = np.mean(actions.reshape(500, 2), axis=0)
    assert means == pytest.approx([0.5, -0.5], abs=0.1)


@pytest.fixture(scope="module", params=list(AGENTS))  # all tests of an algorithm in a row
def algorithm(request: pytest.FixtureRequest) -> str:
    return request.param


def test_later_reward_is_discounted(algorithm: str) -> None:
    agent = trained(algorithm, probes.Delay, 12_288)
    assert value(agent, 1.0) == pytest.approx(1.0, abs=0.08)
    assert value(agent, 0.0) == pytest.approx(GAMMA, abs=0.08)


@pytest.mark.parametrize("algorithm", ["disc", "trust-pcl", "ddpg", "sac"])
def test_constant_reward_does_not_blow_up_the_value(algorithm: str) -> None:
    """The return has no variance: normalised rewards, if used, are clipped at 10."""
    agent = trained(algorithm, probes.One, 8_192)
    scale = normalize.scale(agent.state.normalizer)
    if algorithm in ("trust-pcl", *OFF_POLICY_NAMES):
        assert value(agent, 0.0) == pytest.approx(1.0, rel=0.1)
    else:
        assert value(agent, 0.0) * float(scale.reward) == pytest.approx(10.0, rel=0.1)


def test_values_bootstrap_at_time_limits(algorithm: str) -> None:
    """A constant reward of 1 is worth 1/(1−γ), although episodes are cut after five steps."""
    agent = trained(algorithm, probes.Cycle, 16_384)
    assert value(agent, 0.0) == pytest.approx(1.0 / (1.0 - GAMMA), rel=0.1)


@pytest.mark.parametrize("algorithm", ["disc", "trust-pcl", "sac"])  # one for each kind of replay
def test_values_are_lower_if_time_limits_are_terminal(algorithm: str) -> None:
    agent = trained(algorithm, probes.Cycle, 16_384, bootstrap_time_limits=False)
    assert value(agent, 0.0) < 3.5


def test_best_action_for_each_observation_is_learned(algorithm: str) -> None:
    agent = trained(algorithm, probes.Follow, 16_384)
    assert_follows(agent)


def test_trust_pcl_learns_from_paths_laid_end_to_end() -> None:
    agent = trained("trust-pcl", probes.Follow, 16_384, path_stride=None)
    assert_follows(agent)


@pytest.mark.parametrize("algorithm", ["disc", "trust-pcl", "sac"])
def test_learning_works_with_several_environments(algorithm: str) -> None:
    agent = trained(algorithm, probes.Follow, 16_384, num_envs=4)
    assert_follows(agent)


def test_recommended_settings_learn_values_and_actions() -> None:
    agent = trained("disc", probes.Delay, 12_288, preset="recommended")
    assert value(agent, 1.0) == pytest.approx(1.0, abs=0.08)
    assert value(agent, 0.0) == pytest.approx(GAMMA, abs=0.08)
    assert_follows(trained("disc", probes.Follow, 16_384, preset="recommended"))
