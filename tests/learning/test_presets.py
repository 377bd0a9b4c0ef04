"""The recommended and the paper's settings, and which of them a run uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import disc
from disc import DISC, PPO, DiscError
from disc.algos import ALGORITHMS
from disc.algos import disc as algorithm
from disc.algos.disc import FEW, MANY
from disc.learning import actor_critic, optim
from disc.learning.config import make_config
from disc.learning.distribution import GaussianPolicy, initial_log_std
from disc.learning.networks import Linear
from disc.study.spec import Arm, from_json
from disc.types import Spec
from tests.support import environments as probes
from tests.support import sweeps
from tests.support.compare import assert_close_trees, assert_equal_trees
from tests.support.small import QUIET, small

SAMPLE = Path(__file__).parents[1] / "samples" / "version-1" / "disc"


def test_paper_preset_has_the_papers_values() -> None:
    config = make_config(algorithm, {}, "paper")
    assert (config.epsilon, config.epsilon_b, config.replay_length) == (0.4, 0.1, 64)
    assert (config.penalty, config.advantage, config.alpha_rule) == ("is", "gae_v", "double")
    assert (config.j_targ, config.alpha_is) == (1e-3, 1.0)
    assert (config.lam, config.gamma, config.widths) == (0.95, 0.99, (64, 64))
    assert (config.horizon, config.epochs, config.gradient_steps) == (2048, 10, 32)
    assert (config.learning_rate, config.learning_rate_floor) == (3e-4, 1e-4)
    assert (config.center, config.most_old, config.value_on_newest) == ("behaviour", None, False)
    assert (config.initial_std, config.final_std, config.noise_color) == (None, 0.0, 0.0)
    assert config.for_actions(3) == config.for_actions(17) == config
    assert make_config(algorithm, dict.fromkeys(FEW), "paper") == config


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"disc"}))
def test_baselines_are_the_same_under_both_presets(name: str) -> None:
    found = [make_config(ALGORITHMS[name], {}, preset) for preset in ("paper", "recommended")]
    assert found[0] == found[1]


def test_explicit_option_overrides_the_preset() -> None:
    with small(DISC, preset="paper", alpha_rule="smooth", j_targ=0.5) as agent:
        assert (agent.config.alpha_rule, agent.config.j_targ) == ("smooth", 0.5)
        assert agent.config.initial_std is None


def test_removed_option_is_accepted_only_with_the_value_that_is_left() -> None:
    old = {"trust_region": "alpha", "j_targ_per_dimension": False}
    assert make_config(algorithm, old, "paper") == make_config(algorithm, {}, "paper")
    with pytest.raises(DiscError, match="disc no longer has the option trust_region='switch'"):
        make_config(algorithm, {**old, "trust_region": "switch"}, "paper")


def test_unknown_preset_raises() -> None:
    with pytest.raises(DiscError, match="preset must be one of recommended, paper, not 'best'"):
        small(DISC, preset="best")


@pytest.mark.parametrize("preset", ["recommended", "paper"])
def test_files_store_and_restore_the_preset(preset: Any, tmp_path: Path) -> None:
    with small(DISC, "Pendulum-v1", preset=preset) as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    assert json.loads((tmp_path / "run/config.json").read_text())["preset"] == preset
    with DISC.load(tmp_path / "run") as loaded:
        assert (loaded.preset, loaded.config) == (preset, agent.config)
    with disc.resume(tmp_path / "run", 512, progress=False) as resumed:
        assert (resumed.preset, resumed.config) == (preset, agent.config)


def test_files_without_a_preset_use_the_papers_settings() -> None:
    with DISC.load(SAMPLE, threads=1) as agent:
        assert (agent.preset, agent.config.alpha_rule) == ("paper", "double")


def test_arms_of_different_presets_have_different_directories() -> None:
    assert Arm("DISC", "disc", preset="recommended").name == "disc_recommended"
    assert Arm("DISC", "disc", preset="paper").name == "disc_paper"
    assert Arm("PPO", "ppo", preset="paper").name == "ppo"


def spec(low: list[float], high: list[float]) -> Spec:
    bounds = (np.float32(low), np.float32(high))
    return Spec(1, len(low), (1,), (len(low),), *bounds)


def test_initial_std_is_a_share_of_half_the_range() -> None:
    bounds = spec([-0.4, 0.0, -np.inf, -np.inf], [0.4, 3.0, np.inf, 1.0])
    found = np.exp(initial_log_std(0.5, bounds))
    np.testing.assert_allclose(found, [0.2, 0.75, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(initial_log_std(None, bounds), np.zeros(4))


def test_initial_std_works_for_baselines() -> None:
    with small(PPO, "Pendulum-v1", initial_std=0.25) as agent:  # torques within ±2
        np.testing.assert_allclose(agent.policy.log_std, np.log([0.5]), rtol=1e-6)


def test_std_rate_scales_only_the_step_of_log_std() -> None:
    start = GaussianPolicy((Linear(jnp.ones((2, 1)), jnp.zeros(1)),), jnp.zeros(1))
    gradient = jax.tree.map(jnp.ones_like, start)
    whole = optim.step(optim.init(start), gradient, 0.1).parameters
    slow = optim.step(optim.init(start), gradient, GaussianPolicy(0.1, 0.03)).parameters
    assert_close_trees(slow.mean, whole.mean, rtol=0.0, atol=0.0)
    np.testing.assert_allclose(slow.log_std, 0.3 * whole.log_std, rtol=1e-6)


def test_std_rate_of_zero_keeps_the_initial_std() -> None:
    with small(PPO, "Pendulum-v1", initial_std=0.25, std_rate=0.0) as agent:
        agent.learn(256, **QUIET)
        np.testing.assert_allclose(agent.policy.log_std, np.log([0.5]), rtol=1e-6)


@pytest.mark.parametrize("preset", ["../../elsewhere", 3, None, ["paper"]])
def test_untrusted_study_with_an_unknown_preset_raises(preset: Any, tmp_path: Path) -> None:
    contents = json.loads(sweeps.small().as_json())
    contents["arms"][0]["preset"] = preset
    with pytest.raises(DiscError, match="preset must be one of"):
        from_json(json.dumps(contents), tmp_path / "x.json")


def test_files_older_than_an_option_use_the_papers_value(tmp_path: Path) -> None:
    with small(DISC, "Pendulum-v1", preset="recommended") as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    path = tmp_path / "run/config.json"
    contents = json.loads(path.read_text())
    for name in ("center", "final_std", "noise_color"):
        del contents["config"][name]
    path.write_text(json.dumps(contents))
    with disc.resume(tmp_path / "run", 512, progress=False) as resumed:
        found = resumed.config
        assert (found.center, found.alpha_rule) == ("behaviour", "smooth")
        assert (found.final_std, found.noise_color) == (0.0, 0.0)


def test_negative_limit_on_old_rows_raises() -> None:
    with pytest.raises(DiscError, match="most_old must be at least 0, not -1"):
        make_config(algorithm, {"most_old": -1})


@pytest.mark.parametrize(("dimensions", "wanted"), [(1, FEW), (6, FEW), (7, MANY)])
def test_recommended_options_that_depend_on_the_size_of_actions(
    dimensions: int, wanted: dict[str, Any]
) -> None:
    found = make_config(algorithm, {}, "recommended").for_actions(dimensions)
    assert {name: getattr(found, name) for name in wanted} == wanted
    given = make_config(algorithm, {**FEW, "epsilon_b": 0.0}, "recommended")
    assert given.for_actions(dimensions) == given
    assert set(FEW) == set(MANY)


def test_run_directory_records_the_options_that_depend_on_the_size_of_actions(
    tmp_path: Path,
) -> None:
    with small(DISC, "Pendulum-v1", preset="recommended", gamma=0.9) as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    recorded = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert {name: recorded[name] for name in FEW} == {**FEW, "gamma": 0.9}


def test_first_std_is_halved_for_actions_of_many_dimensions() -> None:
    for dimensions, std in ((6, 1.0), (7, 0.5)):
        policy, _ = actor_critic.init_networks(
            make_config(algorithm, {}, "recommended"),
            spec([-1.0] * dimensions, [1.0] * dimensions),
            seed=0,
        )
        np.testing.assert_allclose(np.exp(policy.log_std), np.full(dimensions, std), rtol=1e-6)


@pytest.mark.parametrize(("env", "std"), [(probes.One, 1.0), ("Pendulum-v1", 0.5)])
def test_std_is_halved_once_if_no_episode_terminates(env: Any, std: float) -> None:
    with small(PPO, env, halve_std=True, std_rate=0.0) as agent:
        agent.learn(768, **QUIET)
        np.testing.assert_allclose(np.exp(agent.policy.log_std), std, rtol=1e-6)


def test_std_falls_to_its_final_share_and_then_stays(tmp_path: Path) -> None:
    options = {"initial_std": 0.5, "final_std": 0.25, "anneal_steps": 1024, "noise_color": 0.5}
    with small(PPO, "Pendulum-v1", **options) as agent:  # torques within ±2
        for steps, wanted in ((256, 0.25**0.25), (256, 0.5), (512, 0.25), (256, 0.25)):
            agent.learn(steps, out=tmp_path / f"{wanted:.1f}{steps}", **QUIET)
            np.testing.assert_allclose(np.exp(agent.policy.log_std), wanted, rtol=1e-5)
    with disc.resume(tmp_path / "0.7256", 1280, progress=False) as resumed:
        assert_equal_trees(resumed.state.policy, agent.state.policy)


def test_std_of_a_loaded_policy_is_not_halved(tmp_path: Path) -> None:
    options = {"halve_std": True, "std_rate": 0.0}
    with small(PPO, "Pendulum-v1", **options) as agent:
        agent.learn(256, **QUIET)
        agent.save(tmp_path / "policy.disc")
    with PPO.load(tmp_path / "policy.disc", env="Pendulum-v1") as loaded:
        loaded.learn(256, **QUIET)
        np.testing.assert_allclose(np.exp(loaded.policy.log_std), 0.5, rtol=1e-6)


def test_value_epochs_change_the_value_network_only() -> None:
    def trained(**epochs: int) -> Any:
        with small(PPO, "Pendulum-v1", **epochs) as agent:
            return agent.learn(256, **QUIET).state

    both = trained(epochs=1, value_epochs=3)
    assert_equal_trees(both.policy, trained(epochs=1).policy)
    assert_equal_trees(both.value, trained(epochs=3).value)
