"""DISC, PPO and PPO-AMBER learn the best choices of small environments with discrete actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disc.algos import ALGORITHMS
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from tests.support import environments as probes
from tests.support.probe_options import GAMMA, PPO

pytestmark = pytest.mark.usefixtures("_optimised")

ABLE = [name for name, algorithm in ALGORITHMS.items() if algorithm.Config.discrete_actions]


def trained(algorithm: str, env: Any, **options: Any) -> Agent:
    agent = AGENTS[algorithm](env, seed=1, gamma=GAMMA, **{**PPO, **options})
    return agent.learn(10_240, eval_every=0, progress=False)


def assert_picks_the_best(agent: Agent) -> None:
    seen, env = np.float32([[-1.0], [1.0]]), probes.PickFollow
    np.testing.assert_array_equal(agent.predict(seen)[0], env.best)
    sampled, _ = agent.predict(np.repeat(seen, 200, axis=0), deterministic=False)
    right = np.equal(sampled, np.repeat(env.best, 200, axis=0))
    assert np.mean(right) > 0.7


def test_three_algorithms_learn_discrete_actions() -> None:
    assert ABLE == ["disc", "ppo", "ppo-amber"]


@pytest.mark.parametrize("algorithm", ABLE)
def test_best_choice_of_each_dimension_is_learned(algorithm: str) -> None:
    assert_picks_the_best(trained(algorithm, probes.PickFollow))


def test_disc_learns_with_the_kl_penalty() -> None:
    assert_picks_the_best(trained("disc", probes.PickFollow, penalty="kl"))


def test_recommended_settings_learn_discrete_actions() -> None:
    agent = trained("disc", probes.PickFollow, preset="recommended", learning_rate=3e-3)
    assert_picks_the_best(agent)


def test_options_of_a_gaussian_do_not_affect_discrete_actions() -> None:
    options = {"initial_std": 0.1, "halve_std": True, "std_rate": 0.0, "clip_actions": True}
    options |= {"final_std": 0.1, "noise_color": 0.5}
    agents = [
        AGENTS["ppo"](probes.Pick, **PPO, **more).learn(1024, eval_every=0, progress=False)
        for more in ({}, options)
    ]
    for one, other in zip(*(agent.policy.weights for agent in agents), strict=True):
        np.testing.assert_array_equal(one, other)
