"""What holds for every algorithm: one run each on Hopper-v5, checked by several tests."""

from __future__ import annotations

import dataclasses
import json
import sys
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import disc
from disc import DISC, PPO, DiscError, resume
from disc import options as checks
from disc.run import log
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from tests.support import command
from tests.support.compare import assert_equal_trees
from tests.support.environments import Unbounded
from tests.support.runs import PLAN, assert_same_run
from tests.support.small import QUIET, small

SEVERAL_BATCHES = ("disc", "ppo-amber")
REPLAYS = ("disc", "trust-pcl", "sac")  # one algorithm for each kind of replay
STEPS, STOP = 1792, 768
METRICS = {
    "trpo": "is/kl train/step_fraction train/improvement",
    "acktr": "is/kl train/nu train/value_nu train/step_size",
    "trust-pcl": "is/kl train/lambda train/lambda_goal train/residual train/residual_clipped",
    "ddpg": "train/q train/parameter_noise train/noise_distance",
    "td3": "train/q",
    "sac": "train/q train/entropy train/temperature",
    "sql": "train/q train/soft_value train/action_spread",
}


class Run(NamedTuple):
    """A finished run of seven iterations, and what was seen during it."""

    name: str
    path: Path  # its run directory
    agent: Agent
    read: set[str]  # options that some code looked at
    compiled: list[int]  # programs until the end of each iteration
    batches: list[float]  # included in each iteration

    def another(self, **options: Any) -> Agent:
        """A new agent with the same options."""
        return small(AGENTS[self.name], "Hopper-v5", **{**own(self.name), **options})


def own(name: str) -> dict[str, Any]:
    """Options that no other test has, so that this run compiles its programs."""
    found: dict[str, Any] = {"widths": (15, 16), "threads": 1}
    if name in SEVERAL_BATCHES:
        found |= {"replay_length": 8, "epsilon_b": 0.05}
    if "anneal_steps" in {
        field.name for field in dataclasses.fields(AGENTS[name].algorithm.Config)
    }:
        found |= {"anneal_steps": 5000}
    return found


RUNS: dict[str, Run] = {}  # a second one in the same process would compile nothing


@pytest.fixture(scope="module", params=list(AGENTS))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    name = request.param
    if name not in RUNS:
        RUNS[name] = trained(name, tmp_path_factory.mktemp("run") / "whole")
    return RUNS[name]


def trained(name: str, path: Path) -> Run:
    """Train, and watch which options are read and when programs are compiled."""
    config, read = AGENTS[name].algorithm.Config, set[str]()
    options = [field.name for field in dataclasses.fields(config)]
    compiled: list[str] = []
    counts: list[tuple[int, float]] = []

    def spy(self: Any, option: str) -> Any:
        """Copying and validating a config reads every option, which says nothing."""
        code = sys._getframe(1).f_code
        copies = code.co_filename == dataclasses.__file__
        validates = code.co_name == "__post_init__" or code.co_filename == checks.__file__
        if not copies and not validates:
            read.add(option)
        return object.__getattribute__(self, option)

    def values(self: Any) -> tuple[Any, ...]:
        return tuple(object.__getattribute__(self, option) for option in options)

    def listen(event: str, seconds: float, **_: Any) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    def watch(agent: Agent, row: dict[str, float]) -> None:
        counts.append((len(compiled), row.get("is/batches", 1.0)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "__hash__", lambda self: hash(values(self)))
        patch.setattr(config, "__eq__", lambda self, other: values(self) == values(other))
        agent = small(AGENTS[name], "Hopper-v5", **own(name))
        patch.setattr(config, "__getattribute__", spy)
        jax.monitoring.register_event_duration_secs_listener(listen)
        agent.training.state = agent.algorithm.init(agent.config, agent.env.spec, 1, 0)
        agent.learn(STEPS, out=path, callbacks=[watch], **PLAN)
    numbers, batches = zip(*counts, strict=True)
    return Run(name, path, agent, read, list(numbers), list(batches))


def test_every_option_is_read(run: Run) -> None:
    """No option may be without effect."""
    options = {field.name for field in dataclasses.fields(run.agent.config)}
    assert options - run.read == set()


def test_nothing_compiles_after_the_first_iteration(run: Run) -> None:
    """The number of included batches changes, but no shape does."""
    assert run.compiled[0] > 0
    assert len(set(run.compiled)) == 1
    assert len(set(run.batches)) > 1 or run.name not in SEVERAL_BATCHES


def test_resumed_run_equals_uninterrupted_run(run: Run, tmp_path: Path) -> None:
    """Three iterations and then four more; for each kind of replay in a new process.

    The stop lies between two checkpoints, so the environment's episode is replayed too.
    """
    parts = tmp_path / "parts"
    run.another().learn(STOP, out=parts, **PLAN)
    if run.name in REPLAYS:
        done = command.process("resume", parts, "--steps", str(STEPS), "--no-plots")
        assert done.returncode == 0, done.stderr
    else:
        resume(parts, STEPS, progress=False)
    assert_same_run(run.path, parts)
    config = json.loads((parts / "config.json").read_text())
    assert (config["plan"]["steps"], config["resumed"][0]["step"]) == (STEPS, STOP)
    rows = log.read_progress(parts / "progress.csv")
    assert [row["step"] for row in rows] == list(range(256, STEPS + 1, 256))
    assert all(a["time/elapsed"] < b["time/elapsed"] for a, b in pairwise(rows))


def test_evaluation_files_and_threads_do_not_change_training(run: Run) -> None:
    alone = run.another(threads=2)
    alone.learn(STEPS, eval_every=0, checkpoint_every=512, progress=False)
    for part in ("policy", "value"):
        assert_equal_trees(getattr(alone.state, part), getattr(run.agent.state, part))


def test_other_seeds_give_other_runs(run: Run) -> None:
    other = run.another(seed=1).learn(256, **QUIET)
    weights = [jax.tree.leaves(x.state.parameters()["policy"])[0] for x in (other, run.another())]
    assert not np.array_equal(*weights)
    assert other.metrics[0]["train/objective"] != run.agent.metrics[0]["train/objective"]


def test_saved_agent_acts_the_same_and_can_continue_training(run: Run, tmp_path: Path) -> None:
    agent, kind, path = run.agent, AGENTS[run.name], tmp_path / "hopper.disc"
    agent.save(path)
    x = np.random.default_rng(0).standard_normal((4, 11))
    loaded = kind.load(path)
    actions = []
    for acting in (agent.policy, loaded.policy, disc.load(path)):
        acting.seed(0)  # SQL always samples
        actions.append((acting.predict(x)[0], acting.predict(x, deterministic=False)[0]))
    np.testing.assert_array_equal(actions[0], actions[1])
    np.testing.assert_array_equal(actions[0], actions[2])
    assert loaded.config == agent.config
    loaded.learn(256, **QUIET)
    with pytest.raises(DiscError, match=f"a policy of {kind.algorithm.NAME}"):
        (PPO if kind is DISC else DISC).load(path)


def test_class_variables_describe_the_algorithm(run: Run) -> None:
    """`disc check` names algorithms by them."""
    config, seen = run.agent.config, run.agent.state.normalizer.observation.samples
    assert config.normalizes_observations == (seen > 0)
    refuses = pytest.raises(DiscError, match="needs actions with bounds")
    with refuses if config.needs_bounds else nullcontext():
        small(AGENTS[run.name], Unbounded)


def test_metrics_are_recorded_and_finite(run: Run) -> None:
    row = run.agent.metrics[-1]
    wanted = "train/objective train/value_loss time/sampling time/updating "
    wanted += METRICS.get(run.name, "")  # those of PPO and its descendants are in test_agent.py
    if run.name in ("trpo", "acktr", "trust-pcl"):
        wanted += " train/entropy train/std train/explained_variance"
    assert {*wanted.split()} <= set(row)
    assert np.isfinite(list(row.values())).all()
