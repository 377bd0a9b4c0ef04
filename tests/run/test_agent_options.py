"""Every option is read and changes the run; invalid options are named."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from disc import ACKTR, DDPG, DISC, PPO, SAC, SQL, TD3, TRPO, DiscError, TrustPCL, resume
from disc.algos import ALGORITHMS
from disc.learning.config import make_config
from disc.run.agent import Agent
from disc.run.config import read_config
from disc.run.directory import RunDirectory
from disc.run.resume import Overrides, open_run
from disc.run.trackers import check_track
from disc.run.training import Plan, check_on_nan
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
        (PPO, "learning_rate", np.float32(1e-4)),
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


@pytest.mark.parametrize("name", ["disc", "ppo", "ppo-amber"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
def test_numpy_float_is_the_number_that_was_written(name: str, kind: Any) -> None:
    """float(np.float32(1e-4)) is below the learning_rate_floor of 1e-4."""
    config = make_config(ALGORITHMS[name], {"learning_rate": kind(1e-4)})
    assert config.learning_rate == 1e-4
    assert type(config.learning_rate) is float


def test_updates_per_step_in_single_precision_are_fitted_to_the_environments() -> None:
    config = make_config(ALGORITHMS["sac"], {"updates_per_step": np.float32(0.1)}, num_envs=4)
    assert (config.steps_per_update, config.updates) == (20, 2)


PYTHON = {
    "steps": 512, "eval_every": 64, "eval_episodes": 2, "checkpoint_every": 8, "best": "lower",
    "stop_at": 0.1, "patience": 3, "limits_from": 0,
}  # fmt: skip
NUMPY: dict[str, Any] = {
    "steps": np.int64(512), "eval_every": np.uint8(64), "eval_episodes": np.int32(2),
    "checkpoint_every": np.int16(8), "best": np.str_("lower"), "stop_at": np.float32(0.1),
    "patience": np.int8(3), "limits_from": np.uint64(0),
}  # fmt: skip


def test_plan_converts_numpy_numbers() -> None:
    plan = dataclasses.asdict(Plan(**NUMPY))
    assert plan == PYTHON
    assert json.loads(json.dumps(plan)) == PYTHON
    assert Plan(**{**PYTHON, "stop_at": 5}).stop_at == 5.0


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory without a checkpoint, created with numpy numbers."""
    options = {"seed": np.int64(3), "num_envs": np.int32(2), "threads": np.uint8(1)}
    with small(PPO, "Pendulum-v1", **options) as agent:
        RunDirectory.create(tmp_path / "run", agent.training, Plan(**NUMPY), "stop").close()
    return tmp_path / "run"


def test_run_and_resume_convert_numpy_numbers(run: Path) -> None:
    config = read_config(run)
    assert (config["seed"], config["num_envs"], config["threads"]) == (3, 2, 1)
    assert config["plan"] == PYTHON
    given: dict[str, Any] = {"steps": np.int64(768), "patience": np.int64(4)}
    given |= {"threads": np.int64(1), "stop_at": np.float32(0.3)}
    training, plan, directory = open_run(run, Overrides(**given), lambda _: None)
    training.env.close()
    directory.close()
    assert (plan.steps, plan.patience, plan.stop_at, training.threads) == (768, 4, 0.3, 1)
    assert read_config(run)["plan"] == dataclasses.asdict(plan)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("steps", True, "a whole number"),
        ("steps", 0, "a whole number of at least 1"),
        ("steps", np.array([1, 2]), "a whole number"),
        ("threads", 0, "a whole number of at least 1"),
        ("threads", True, "a whole number of at least 1"),
        ("threads", "2", "a whole number of at least 1"),
        ("stop_at", True, "a number"),
        ("stop_at", "high", "a number"),
        ("stop_at", np.array([1.0, 2.0]), "a number"),
        ("stop_at", float("nan"), "a finite number"),
        ("patience", 1.0, "a whole number"),
        ("patience", False, "a whole number"),
        ("on_nan", np.array(["stop"]), "one of stop, rollback"),
    ],
)
def test_invalid_overrides_are_named(option: str, value: Any, says: str, run: Path) -> None:
    before = (run / "config.json").read_bytes()
    with pytest.raises(DiscError, match=f"{option} must be {says}"):
        resume(run, **{option: value}, progress=False)
    assert (run / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("steps", True, "a whole number, not True"),
        ("steps", 512.0, "a whole number, not 512.0"),
        ("steps", None, "a whole number, not None"),
        ("steps", 0, "a whole number of at least 1, not 0"),
        ("steps", 2**62, "a whole number within ±2^62"),
        ("eval_every", True, "a whole number"),
        ("eval_every", np.float64(64), "a whole number"),
        ("eval_every", np.int64(-1), "a whole number of at least 0"),
        ("eval_episodes", np.bool_(True), "a whole number"),
        ("eval_episodes", np.int64(2_000_000), "a whole number of at most 1,000,000"),
        ("checkpoint_every", False, "a whole number"),
        ("patience", "3", "a whole number"),
        ("best", np.array(["mean", "lower"]), "one of mean, lower"),
        ("best", "median", "one of mean, lower, not 'median'"),
        ("stop_at", True, "a number, not True"),
        ("stop_at", np.float32("inf"), "a finite number"),
        ("stop_at", np.array(5.0), "a number"),
    ],
)
def test_invalid_plans_are_named(option: str, value: Any, says: str) -> None:
    with pytest.raises(DiscError, match=re.escape(f"{option} must be {says}")):
        Plan(**{**PYTHON, option: value})


@pytest.mark.parametrize("track", [None, "wandb", 5, ["comet"], [["wandb"]], {"wandb": 1}])
def test_invalid_trackers_are_named(track: Any) -> None:
    with pytest.raises(DiscError, match="track must be a list of tensorboard, wandb, mlflow, not"):
        check_track(track)


def test_choice_given_as_an_array_is_refused() -> None:
    with pytest.raises(DiscError, match="on_nan must be one of stop, rollback"):
        check_on_nan(np.array(["stop", "rollback"]), written=True)  # type: ignore[arg-type]
    with pytest.raises(DiscError, match="preset must be one of recommended, paper"):
        make_config(ALGORITHMS["ppo"], {}, np.array(["paper"]))  # type: ignore[arg-type]


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
        ({"penalty": np.array(["is", "kl"])}, "penalty must be one of is, kl, none, not array"),
        ({"widths": np.array(64)}, "widths must be a list of whole numbers, not array"),
        ({"widths": np.array([[64]])}, "widths must be a list of whole numbers, not array"),
        ({"horizon": 2**62}, r"horizon must be a whole number within ±2\^62"),
        ({"gamma": np.bool_(True)}, "gamma must be a number"),
        ({"seed": True}, "seed must be a whole number of at least 0, not True"),
        ({"seed": 2**64}, "seed must be a whole number of at most"),
        ({"num_envs": True}, "num_envs must be a whole number of at least 1, not True"),
        ({"num_envs": np.float32(1)}, "num_envs must be a whole number of at least 1"),
        ({"threads": True}, "threads must be a whole number of at least 1, not True"),
        ({"threads": 0}, "threads must be a whole number of at least 1, not 0"),
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
