"""Calls in the style of Stable-Baselines3 are answered with our way, in one sentence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from disc import DISC, PPO, SAC, DiscError
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from disc.run.sb3 import RENAMED
from tests.support.environments import wide
from tests.support.small import small

CALLS: dict[str, tuple[Any, str]] = {
    "policy first": (lambda: PPO("MlpPolicy", wide), r"write PPO\(env\), .*widths=\(64, 64\)"),
    "policy and id": (lambda: SAC("MultiInputPolicy", "Pendulum-v1"), r"write SAC\(env\)"),
    "policy by name": (lambda: PPO(env=wide, policy="MlpPolicy"), "policy; leave it out"),
    "two arguments": (lambda: PPO(wide, 3), r"everything else by name: PPO\(env, seed=0\)"),
    "n_steps": (lambda: PPO(wide, n_steps=64), "no option n_steps; the nearest here is horizon"),
    "batch_size": (lambda: PPO(wide, batch_size=64), "nearest here is gradient_steps"),
    "buffer_size": (lambda: SAC(wide, buffer_size=64), "nearest here is replay_size"),
    "verbose": (lambda: DISC(wide, verbose=1), r"no option verbose; choose learn\("),
}


@pytest.mark.parametrize("name", CALLS)
def test_sb3_style_constructor_raises_and_names_ours(name: str) -> None:
    call, says = CALLS[name]
    with pytest.raises(DiscError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def agent() -> Agent:
    return small(PPO)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"total_timesteps": 500}, r"PPO: learn takes no total_timesteps; .* agent.learn\(500\)"),
        ({"steps": 500, "callback": print}, r"callbacks=\[function\]"),
        ({"steps": 500, "progress_bar": True}, "it is progress here"),
        ({"steps": 500, "nonsense": 1}, "learn takes no nonsense"),
        ({}, r"needs the number of steps"),
    ],
)
def test_sb3_style_learn_raises_and_names_ours(agent: Any, arguments: Any, says: str) -> None:
    with pytest.raises(DiscError, match=says):
        agent.learn(**arguments)
    assert agent.state.step == 0


def test_nearest_options_exist() -> None:
    configs = [kind.algorithm.Config for kind in AGENTS.values()]
    known = {field.name for config in configs for field in dataclasses.fields(config)}
    assert set(RENAMED.values()) <= known
