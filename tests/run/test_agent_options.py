"""Every option is read and changes the run; invalid options are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from disc import ACKTR, DDPG, DISC, PPO, SAC, SQL, TD3, TRPO, DiscError, TrustPCL, resume
from disc.run.agent import Agent
from tests.support import environments as probes
from tests.support.small import QUIET, small


def test_large_seeds_give_different_keys() -> None:
    keys = [small(SAC, seed=seed).state.key for seed in (5, 5 + 2**32, 5 + 2**40)]
    assert len({tuple(np.asarray(key)) for key in keys}) == 3


@pytest.mark.parametrize("seed", [2**63, 2**64 - 1])
def test_large_seeds_survive_resume(seed: int, tmp_path: Path) -> None:
    with small(PPO, "Pendulum-v1", seed=seed) as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    with resume(tmp_path / "run", 512, progress=False) as agent:
        assert (agent.seed, agent.state.seed, agent.state.step) == (seed, seed, 512)
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace(f'"seed": {seed}', f'"seed": {seed - 1}'))
    with pytest.raises(DiscError, match="does not fit this run's options"):
        resume(tmp_path / "run", 768, progress=False)


def test_numpy_numbers_are_accepted(tmp_path: Path) -> None:
    agent = small(PPO, seed=np.int64(3))
    agent.learn(np.int32(256), out=tmp_path / "run", **QUIET)
    assert (tmp_path / "run/policy.disc").exists()


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        (DISC, "alpha_is", 1),
        (ACKTR, "step_size", 1),
        (DDPG, "parameter_noise", 1),
        (PPO, "learning_rate", np.float32(2e-4)),
    ],
)
def test_numbers_are_converted_to_the_options_type(
    kind: type[Agent], option: str, value: Any, tmp_path: Path
) -> None:
    with small(kind, **{option: value}) as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    with resume(tmp_path / "run", 512, env=probes.wide, progress=False) as agent:
        assert type(getattr(agent.config, option)) is float
        assert agent.state.step == 512


def weights(**options: Any) -> Any:
    """All parameters of a short run with a high learning rate."""
    fast = {"learning_rate": 1e-2, "epsilon_b": 0.5}
    agent = small(env=probes.Cycle, seed=2, **{**fast, **options}).learn(1024, **QUIET)
    assert np.isfinite(list(agent.metrics[-1].values())).all()
    leaves = jax.tree.leaves((agent.state.policy.parameters, agent.state.value.parameters))
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


@pytest.fixture(scope="module")
def unchanged() -> Any:
    return weights()


# Other tests compare penalty="kl", divide_by_mean_ratio and center with plain gradients, and
# bootstrap_time_limits with known values.
@pytest.mark.parametrize("ablation", [
    {"advantage": "gae"}, {"penalty": "none"}, {"epsilon": 0.1}, {"epsilon_b": 0.0},
    {"replay_length": 2}, {"j_targ": 0.1}, {"value_clip": False}, {"learning_rate_floor": 9e-3},
])  # fmt: skip
def test_every_ablation_runs_and_changes_the_run(ablation: dict[str, Any], unchanged: Any) -> None:
    assert not np.array_equal(unchanged, weights(**ablation))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epsilon": 1.0}, "epsilon must be .*below 1, not 1.0"),
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"horizon": 100, "gradient_steps": 32}, "horizon must be divisible by gradient_steps, 32"),
        ({"num_envs": 3}, "num_envs must divide the horizon"),
        ({"gamma": 1.1}, r"gamma must be within \[0, 1\]"),
        ({"replay_length": 0}, "replay_length must be at least 1"),
        ({"learning_rate_floor": 1.0}, "learning_rate_floor must be at most"),
        ({"epsilon_b": -0.1}, "epsilon_b must be at least 0"),
        ({"widths": ()}, "widths must be"),
        ({"widths": (16.0, 16)}, "widths must be a list of whole numbers"),
        ({"horizon": 256.0}, "horizon must be a whole number, not 256.0"),
        ({"widths": 64}, "widths must be a list of whole numbers, not 64"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"advantage": "gea"}, "advantage must be one of gae_v, gae"),
        ({"penalty": None}, "penalty must be one of is, kl, none"),
        ({"buffer_size": 3}, "disc has no option buffer_size; it has horizon"),
    ],
)
def test_invalid_options_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DiscError, match=says):
        small(**options)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (PPO, {"epsilon_b": 0.1}, "ppo has no option epsilon_b"),
        (TRPO, {"epsilon": 0.1}, "trpo has no option epsilon"),
        (ACKTR, {"max_kl": 0.1}, "acktr has no option max_kl"),
        (TrustPCL, {"lam": 0.9}, "trust-pcl has no option lam"),
        (TRPO, {"horizon": 100}, "horizon must be divisible by value_minibatch, 64"),
        (TRPO, {"max_kl": 0.0}, "max_kl must be above 0"),
        (ACKTR, {"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        (ACKTR, {"damping": float("nan")}, "damping must be above 0"),
        (TrustPCL, {"path_length": 9}, "path_length must be at most chunk_length, 8"),
        (TrustPCL, {"horizon": 100}, "horizon must be divisible by chunk_length, 8"),
        (TrustPCL, {"residual_clip": 0.0}, "residual_clip must be above 0"),
        (SAC, {"epsilon": 0.1}, "sac has no option epsilon"),
        (SAC, {"clip_actions": True}, "sac has no option clip_actions"),
        (SAC, {"updates_per_step": 0.3}, "updates_per_step must be a multiple of 1 / steps"),
        (SAC, {"updates_per_step": 0.0}, "updates_per_step must be above 0"),
        (TD3, {"num_envs": 3}, "num_envs must divide the steps_per_update, 16, but 3 does not"),
        (TD3, {"horizon": 100}, "horizon must be divisible by steps_per_update, 16"),
        (SQL, {"random_steps": -1}, "random_steps must be at least 0"),
        (DDPG, {"batch_size": 0}, "batch_size must be at least 1"),
        (DDPG, {"widths": (16,)}, "widths must be two layers or more"),
    ],
)
def test_options_are_checked_for_each_algorithm(
    kind: type[Agent], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(DiscError, match=says):
        small(kind, **options)
