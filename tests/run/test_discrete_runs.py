"""Runs with discrete actions: metrics, exact resume, one compilation, and who refuses them."""

from __future__ import annotations

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import disc
from disc import DiscError, resume
from disc.algos import ALGORITHMS
from disc.run import log
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from tests.support import environments as probes
from tests.support.compare import assert_equal_trees
from tests.support.runs import PLAN, assert_same_run
from tests.support.small import PPO, QUIET, SMALL

ABLE = [name for name, algorithm in ALGORITHMS.items() if algorithm.Config.discrete_actions]
SAMPLE = Path(__file__).parents[1] / "samples" / "categorical" / "ppo"
SEEN = np.float32([[0.5, -0.25, 1.0, 0.0], [0.0, 0.1, -0.3, 0.2], [-1.0, 0.4, 0.2, -0.5]])
LOGITS = [[-0.0126793, 0.00037771], [0.00947713, 0.00121289], [-0.0106622, -5.64857e-05]]


@pytest.mark.parametrize("num_envs", [1, 2])
def test_resumed_run_equals_uninterrupted_run(num_envs: int, tmp_path: Path) -> None:
    """The stop lies between two checkpoints, so actions are replayed too."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = {**PPO, "anneal_steps": 5000, "num_envs": num_envs, "threads": 1}
    for run, steps in ((whole, 1792), (parts, 768)):
        AGENTS["disc"](probes.choosing, **options).learn(steps, out=run, **PLAN)
    resume(parts, 1792, env=probes.choosing, progress=False)
    assert_same_run(whole, parts)


@pytest.mark.parametrize("algorithm", sorted(set(AGENTS) - set(ABLE)))
def test_other_algorithms_name_those_that_learn_discrete_actions(algorithm: str) -> None:
    says = f"CartPole-v1: has discrete actions, but {algorithm} needs continuous ones"
    with pytest.raises(DiscError, match=f"{says}.*; disc, ppo and ppo-amber can learn") as caught:
        AGENTS[algorithm]("CartPole-v1", **SMALL[algorithm])
    assert "\n" not in str(caught.value)


def test_run_records_all_metrics_but_the_standard_deviation() -> None:
    agent = AGENTS["disc"](probes.choosing, **PPO)
    row = agent.learn(1024, eval_every=256, eval_episodes=2, progress=False).metrics[-1]
    wanted = """
        eval/return eval/return_std eval/length train/return train/length train/entropy
        train/learning_rate train/value_loss train/explained_variance train/actions_outside
        is/j_is is/kl is/alpha is/rho_start is/rho_d_start is/rho_last is/rho_d_last is/vanished
        is/clipped_dimensions is/batches is/oldest_age is/effective_samples is/rho_d_age_0
        is/rho_d_age_3 time/sampling time/reading time/updating time/evaluating
    """
    assert set(wanted.split()) <= set(row)
    assert "train/std" not in row
    assert np.isfinite(list(row.values())).all()
    assert row["train/actions_outside"] == 0.0
    assert row["train/entropy"] == pytest.approx(np.log([3, 2, 4, 2]).sum(), rel=0.05)


def test_nothing_compiles_after_the_first_iteration() -> None:
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if "backend_compile" in name else None
    )
    counts: list[tuple[int, float]] = []

    def watch(agent: Agent, row: dict[str, float]) -> None:
        counts.append((len(compiled), row["is/batches"]))

    options = {**PPO, "widths": (17, 16), "replay_length": 8, "epsilon_b": 0.05}
    AGENTS["disc"](probes.choosing, **options).learn(4096, callbacks=[watch], **QUIET)
    numbers, batches = zip(*counts, strict=True)
    assert numbers[0] > 0
    assert len(set(numbers)) == 1
    assert len(set(batches)) > 1


def test_amber_with_one_batch_equals_ppo_bit_for_bit() -> None:
    one = AGENTS["ppo"](probes.choosing, **PPO).learn(1024, **QUIET)
    other = AGENTS["ppo-amber"](probes.choosing, replay_length=1, **PPO).learn(1024, **QUIET)
    assert_equal_trees(one.state.policy, other.state.policy)


def test_loaded_agent_acts_as_the_saved_one_and_continues_training(tmp_path: Path) -> None:
    agent = AGENTS["disc"](probes.choosing, **PPO).learn(512, **QUIET)
    agent.save(tmp_path / "p.disc")
    x = np.random.default_rng(0).standard_normal((20, 2, 3))
    loaded = AGENTS["disc"].load(tmp_path / "p.disc", env=probes.choosing)
    for policy in (loaded.policy, disc.load(tmp_path / "p.disc")):
        np.testing.assert_array_equal(policy.predict(x)[0], agent.predict(x)[0])
    loaded.learn(256, **QUIET)


def test_checkpoint_with_other_choices_raises(tmp_path: Path) -> None:
    run = tmp_path / "run"
    AGENTS["ppo"](probes.choosing, **PPO).learn(256, out=run, **PLAN)
    with pytest.raises(DiscError, match="does not fit"):
        resume(run, 512, env=lambda: probes.choosing("even"), progress=False)


# A run of the first version with policies of this kind: PPO on CartPole, between two checkpoints


def test_old_policy_file_gives_the_same_actions() -> None:
    for acting in (disc.load(SAMPLE), AGENTS["ppo"].load(SAMPLE, threads=1).policy):
        np.testing.assert_allclose(acting.logits(SEEN), LOGITS, rtol=1e-3)
        np.testing.assert_array_equal(acting.predict(SEEN)[0], np.argmax(LOGITS, axis=1))


def test_old_run_can_be_resumed(tmp_path: Path) -> None:
    copy = shutil.copytree(SAMPLE, tmp_path / "run")
    rows = log.read_progress(copy / "progress.csv")
    agent = disc.resume(copy, progress=False)
    assert agent.state.step == 4 * agent.config.horizon
    assert agent.metrics[: len(rows)] == rows
    assert len(agent.metrics) == len(rows) + 1
