"""Non-finite values are detected at once, recorded and, on request, rolled back."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import disc
from disc import ACKTR, DISC, TD3, DiscError, TrustPCL, storage
from disc.algos import ALGORITHMS
from disc.envs.evaluate import evaluate
from disc.envs.rollout import collect
from disc.run import log
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from disc.run.nonfinite import NonFinite
from tests.support.compare import assert_equal_trees
from tests.support.nonfinite import Spoil, parameters_at, spoiled
from tests.support.small import QUIET, small


def objective_at(step: int) -> Spoil:
    def spoil(config: Any, state: Any, metrics: dict[str, Any]) -> Any:
        return state, {**metrics, "train/objective": np.inf} if state.step == step else metrics

    return spoil


@pytest.mark.parametrize("kind", [DISC, TD3])
def test_non_finite_parameter_is_detected_in_its_iteration(
    kind: type[Agent], tmp_path: Path
) -> None:
    agent = small(spoiled(kind, parameters_at(768)))
    with pytest.raises(NonFinite, match="update at step 768 gave a non-finite value"):
        agent.learn(2048, out=tmp_path / "run", checkpoint_every=256, **QUIET)
    found = json.loads((tmp_path / "run" / "nonfinite.json").read_text())
    assert found["step"] == 768
    assert found["metrics"] == {}
    (name,) = found["arrays"]
    assert name.startswith("policy/")
    assert found["arrays"][name] == {"entries": 1, "of": 16, "first": [2]}
    batch = found["batch"]
    assert batch["steps"] == agent.config.at_once
    assert batch["action"]["min"] < 0.0 < batch["action"]["max"]
    names = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert names[-1] == "step_000000000512.safetensors"
    for leaf in jax.tree.leaves(agent.state.parameters()):  # the agent is at its last good state
        assert np.isfinite(leaf).all()
    assert agent.state.step == 512


def with_leaf(state: Any, words: tuple[str, ...], value: float) -> Any:
    """The state with one entry of the first array whose name has all the words changed."""
    names = [field.name for field in fields(state) if field.name != "replay"]
    tree = {name: getattr(state, name) for name in names}
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    values = [leaf for _, leaf in leaves]
    at = next(
        i
        for i, (path, leaf) in enumerate(leaves)
        if isinstance(leaf, jax.Array)
        and leaf.dtype.kind == "f"
        and all(word in jax.tree_util.keystr(path) for word in words)
    )
    values[at] = values[at].ravel().at[0].set(value).reshape(values[at].shape)
    return replace(state, **jax.tree.unflatten(structure, values))


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [
        (DISC, ("policy", "nu"), np.inf),  # Adam would stop moving
        (DISC, ("value", "mu"), np.nan),
        (ACKTR, ("policy", "bases"), np.nan),
        (TrustPCL, ("targets",), np.inf),
        (TD3, ("target",), np.nan),
    ],
)
def test_non_finite_moments_and_targets_are_detected_in_their_iteration(
    kind: type[Agent], words: tuple[str, ...], value: float, tmp_path: Path
) -> None:
    def spoil(config: Any, state: Any, metrics: dict[str, Any]) -> Any:
        return (with_leaf(state, words, value) if state.step == 512 else state), metrics

    with pytest.raises(NonFinite, match=r"update at step 512 .*--on-nan rollback"):
        small(spoiled(kind, spoil)).learn(1024, out=tmp_path / "run", **QUIET)
    found = json.loads((tmp_path / "run" / "nonfinite.json").read_text())
    assert all(word in next(iter(found["arrays"])) for word in words)
    assert found["batch"]["first_step"] == 512 - found["batch"]["steps"] + 1
    assert found["replay"]["reward"]["min"] < found["replay"]["reward"]["max"]


def test_non_finite_policy_is_reported_before_the_environment(tmp_path: Path) -> None:
    """A policy damaged by an update is detected before the environment sees its actions."""
    with pytest.raises(NonFinite, match="policy/"):
        small(spoiled(TD3, parameters_at(528))).learn(1024, out=tmp_path / "run", **QUIET)
    text = (tmp_path / "run" / "nonfinite.json").read_text()
    assert "NaN" not in text  # JSON has no NaN


def test_error_message_names_at_most_four_arrays() -> None:
    found = {"metrics": {"a": "nan"}, "arrays": dict.fromkeys("bcdefg")}
    assert "(a, b, c, d and 3 more)" in str(NonFinite(5, found))


def test_non_finite_metric_is_named(tmp_path: Path) -> None:
    with pytest.raises(NonFinite, match="train/objective"):
        small(spoiled(DISC, objective_at(512))).learn(2048, out=tmp_path / "run", **QUIET)
    found = json.loads((tmp_path / "run" / "nonfinite.json").read_text())
    assert found["metrics"] == {"train/objective": "inf"}
    assert found["arrays"] == {}


def test_rollback_halves_the_step_size(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kind = spoiled(DISC, parameters_at(768, above=2e-4))
    agent = small(kind, "tests.support.environments:wide")
    plan = {"checkpoint_every": 256, "eval_every": 0}
    agent.learn(1024, out=tmp_path / "run", on_nan="rollback", **plan)
    assert "Back to step 512 with half the step size" in capfd.readouterr().err
    assert agent.state.step == 1024
    assert agent.config.learning_rate == 1.5e-4
    assert agent.config.learning_rate_floor == 0.5e-4
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["rollbacks"] == [{"from": 768, "to": 512}]
    assert config["config"]["learning_rate"] == 1.5e-4
    rows = log.read_progress(tmp_path / "run" / "progress.csv")
    assert [row["step"] for row in rows] == [256, 512, 768, 1024]
    assert (tmp_path / "run" / "nonfinite.json").exists()

    resumed = disc.resume(
        tmp_path / "run", 1280, env="tests.support.environments:wide", progress=False
    )
    assert resumed.config == agent.config
    agent.learn(256, progress=False, **plan)
    assert_equal_trees(resumed.state.parameters(), agent.state.parameters())


def test_rollback_gives_up_after_five_attempts(tmp_path: Path) -> None:
    agent = small(spoiled(DISC, parameters_at(256)))
    with pytest.raises(NonFinite, match="5 rollbacks, each halving the step size, did not help"):
        agent.learn(512, out=tmp_path / "run", on_nan="rollback", checkpoint_every=0, **QUIET)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["rollbacks"] == 5 * [{"from": 256, "to": 0}]
    assert config["config"]["learning_rate"] == pytest.approx(3e-4 / 32)


def test_full_disk_does_not_hide_a_non_finite_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        if "nonfinite" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage, "sync", full)
    with pytest.raises(NonFinite, match="train/objective"):
        small(spoiled(DISC, objective_at(256))).learn(512, out=tmp_path / "run", **QUIET)


def test_stopped_run_can_be_resumed_with_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without rollback it fails again; with half the step size it does not."""
    rate = 3e-4
    changed = spoiled(DISC, parameters_at(768, above=0.6 * rate))
    monkeypatch.setitem(ALGORITHMS._known, "disc", changed.algorithm)
    with pytest.raises(NonFinite):
        small(changed, "Pendulum-v1").learn(
            1024, out=tmp_path / "run", checkpoint_every=256, **QUIET
        )
    with pytest.raises(NonFinite):
        disc.resume(tmp_path / "run", progress=False)
    agent = disc.resume(tmp_path / "run", on_nan="rollback", progress=False)
    assert (agent.state.step, agent.config.learning_rate) == (1024, 0.5 * rate)


def test_rollback_without_out_and_unknown_modes_raise(tmp_path: Path) -> None:
    with pytest.raises(DiscError, match="needs out"):
        small().learn(256, on_nan="rollback", **QUIET)
    with pytest.raises(DiscError, match="one of stop, rollback"):
        small().learn(256, on_nan="hope", out=tmp_path / "run", **QUIET)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", AGENTS)
def test_every_algorithm_can_halve_its_step_sizes(name: str) -> None:
    config = AGENTS[name].algorithm.Config()
    smaller = config.with_halved_steps()
    changed = [field for field in vars(config) if getattr(config, field) != getattr(smaller, field)]
    assert changed
    if name == "acktr":
        trust = {"target_kl", "kl_clip", "value_kl_clip", "value_learning_rate"}
        assert set(changed) == trust
    for field in changed:
        assert getattr(smaller, field) == 0.5 * getattr(config, field)


def test_evaluation_blames_the_policy_for_non_finite_actions() -> None:
    with small(env="Pendulum-v1") as agent:
        acting = agent.policy
        large = replace(acting, weights=[np.sign(w) * np.float32(3e38) for w in acting.weights])
        with np.errstate(all="ignore"), pytest.raises(DiscError) as told:
            evaluate(agent.maker.make(), large, 1, 0, name="Pendulum-v1")
    said = str(told.value)
    assert said.startswith("Pendulum-v1: the action at step 1 of episode 1 of the evaluation")
    assert "the weights of the policy are too large" in said


@pytest.mark.parametrize("raises", [False, True])
def test_training_blames_the_policy_for_non_finite_actions(raises: bool) -> None:
    def act(observation: Any, noise: Any) -> Any:
        return np.full_like(noise, np.nan), noise

    def step(action: Any) -> Any:
        if raises:
            raise ValueError("what is that")
        return np.full(3, np.nan, np.float32), math.nan, False, False, {}

    with small(env="Pendulum-v1") as agent:
        agent.env.reset(0, 0)
        agent.env.lanes[0].env.step = step  # type: ignore[method-assign]
        actor: Any = SimpleNamespace(
            noise=lambda rng, count: np.zeros((count, 1), np.float32),
            episode=lambda *_: act,
            bound=lambda x: x,
            log_std=None,
        )
        with pytest.raises(DiscError, match=r"the action at step 1 is not finite; the weights of"):
            collect(agent.env, lambda _: actor, agent.state, 16)
