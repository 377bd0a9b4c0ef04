"""Noise that is correlated in time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from disc import DISC, PPO, PPOAMBER, DiscError
from disc.learning import actor_critic
from disc.policy.exploration import Colored, colored
from disc.policy.policies import Gaussian
from disc.run.agent import Agent
from disc.types import Floats
from tests.support import environments as probes
from tests.support.small import small


def white(steps: int, size: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((steps, size), np.float32)


def kernel(steps: int, color: float) -> Any:
    """The filter's impulse response: a sum of cosines, one for each frequency."""
    gains = [max(min(k, steps - k), 1) ** (-0.5 * color) for k in range(steps)]
    scale = math.sqrt(sum(g * g for g in gains) / steps)
    return [
        sum(g * math.cos(2 * math.pi * k * t / steps) for k, g in enumerate(gains)) / steps / scale
        for t in range(steps)
    ]


@pytest.mark.parametrize("steps", [1, 2, 7, 12])
@pytest.mark.parametrize("color", [0.0, 0.5, 1.0])
def test_filter_is_a_circular_convolution(steps: int, color: float) -> None:
    noise, response = white(steps, 3), kernel(steps, color)
    wanted = [
        sum(response[(t - s) % steps] * noise[s].astype(np.float64) for s in range(steps))
        for t in range(steps)
    ]
    np.testing.assert_allclose(colored(noise, color), wanted, rtol=1e-5, atol=1e-6)
    assert sum(h * h for h in response) == pytest.approx(1.0)  # so the variance stays 1


@pytest.mark.parametrize("color", [0.5, 1.0])
def test_power_falls_with_the_frequency(color: float) -> None:
    noise = colored(white(2048, 200), color)
    power = np.mean(np.abs(np.fft.rfft(noise, axis=0)) ** 2, axis=1)
    k = np.arange(4, 1024)
    slope = np.polyfit(np.log(k), np.log(power[k]), 1)[0]
    assert slope == pytest.approx(-color, abs=0.05)
    assert np.std(noise) == pytest.approx(1.0, abs=0.02)


def test_dimensions_are_independent() -> None:
    noise = white(2048, 2)
    alone = colored(noise[:, :1], 0.5)
    np.testing.assert_allclose(colored(noise, 0.5)[:, :1], alone, rtol=1e-5, atol=1e-6)


def test_only_the_exploring_policy_has_colored_noise() -> None:
    with small(PPO, "Pendulum-v1", noise_color=0.5) as agent:
        spec, config, state = agent.env.spec, agent.config, agent.state
        explores, acts = (f(config, spec, state) for f in (actor_critic.explore, actor_critic.act))
    assert isinstance(explores, Colored)
    assert type(acts) is Gaussian
    drawn = [policy.noise(np.random.default_rng(1), 64) for policy in (explores, acts)]
    np.testing.assert_array_equal(drawn[0], colored(drawn[1], 0.5))
    observation = np.ones(3, np.float32)
    for found, wanted in zip(*(p(observation, drawn[0][0]) for p in (explores, acts)), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("env", "halve_std", "kinds"),
    [
        (probes.One, False, [Colored, Colored]),
        (probes.One, True, [Gaussian, Colored]),  # its episodes terminate
        ("Pendulum-v1", True, [Gaussian, Gaussian]),  # they do not
    ],
)
def test_noise_is_independent_while_no_episode_terminates(
    env: Any, halve_std: bool, kinds: list[type]
) -> None:
    with small(PPO, env, noise_color=0.5, halve_std=halve_std) as agent:
        for kind in kinds:
            assert type(actor_critic.explore(agent.config, agent.env.spec, agent.state)) is kind
            agent.learn(256, eval_every=0, progress=False)


def test_termination_in_any_stored_batch_counts() -> None:
    with small(DISC, probes.One, noise_color=0.5, halve_std=True, replay_length=2) as agent:
        agent.learn(512, eval_every=0, progress=False)
        replay = agent.state.replay
        ended = np.zeros(np.shape(replay.terminated), np.bool_)
        for kind in (Gaussian, Colored):
            state = replace(agent.state, replay=replay._replace(terminated=ended))
            assert type(actor_critic.explore(agent.config, agent.env.spec, state)) is kind
            ended = ended | (np.asarray(replay.age) == 1)[:, None]  # not in the newest batch


@pytest.mark.parametrize("kind", [DISC, PPO, PPOAMBER])
def test_noise_of_a_rollout_is_colored(kind: type[Agent]) -> None:
    drawn = []
    for color in (0.0, 0.5):
        with small(kind, "Pendulum-v1", noise_color=color) as agent:
            agent.learn(256, eval_every=0, progress=False)
            replay = agent.state.replay
            newest = int(np.argmax(np.asarray(replay.age) == 0))
            action, mean = (np.asarray(x)[newest] for x in (replay.action, replay.mean))
            drawn.append((action - mean) / np.exp(np.asarray(replay.log_std)[newest]))
    np.testing.assert_allclose(drawn[1], colored(drawn[0], 0.5), atol=1e-5)


def test_invalid_noise_color_raises() -> None:
    with pytest.raises(DiscError, match="noise_color must be"):
        small(PPO, "Pendulum-v1", noise_color=-1.0)
