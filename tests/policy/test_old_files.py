"""Files of every format version, kept in tests/samples, can still be read.

Each sample is a small run on Pendulum, stopped between two checkpoints; `nested-observations` is
one on `tests.support.environments:nested`. A version that changes a format adds its own samples,
made beforehand, and leaves these unchanged.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import disc
from disc import DiscError, storage
from disc.policy import file
from disc.run import checkpoint, log
from disc.run.agents import AGENTS

SAMPLES = Path(__file__).parents[1] / "samples"
OBSERVATION = np.float32([0.5, -0.25, 1.0])
ACTIONS = {  # actions of the agents that wrote the files; SQL's is a sample under seed 0
    "disc": -0.008797368966042995,
    "td3": 0.780250072479248,
    "sac": 0.901249885559082,
    "sql": -0.9068878889083862,
    "trust-pcl": -0.00859855767339468,
}
RUNS = sorted(path.parent for path in SAMPLES.glob("version-*/*/config.json"))


def test_samples_of_the_current_format_exist() -> None:
    current = SAMPLES / f"version-{max(file.FORMAT_VERSION, checkpoint.FORMAT_VERSION)}"
    assert {path.name for path in current.iterdir()} == set(ACTIONS)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.parent.name}-{run.name}")
def test_old_policy_files_give_the_same_actions(run: Path) -> None:
    for acting in (disc.load(run), AGENTS[run.name].load(run, threads=1).policy):
        acting.seed(0)
        action, _ = acting.predict(OBSERVATION)
        np.testing.assert_allclose(action, [ACTIONS[run.name]], rtol=1e-5)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.parent.name}-{run.name}")
def test_old_runs_can_be_resumed(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    rows = log.read_progress(copy / "progress.csv")
    agent = disc.resume(copy, progress=False)
    assert agent.state.step == 4 * agent.config.horizon
    assert agent.metrics[: len(rows)] == rows
    assert len(agent.metrics) == len(rows) + 1
    assert np.isfinite(agent.predict(OBSERVATION)[0]).all()


def test_sample_with_nested_observations_acts_and_can_be_resumed(tmp_path: Path) -> None:
    run = shutil.copytree(SAMPLES / "nested-observations", tmp_path / "run")
    observation = {"arm": (np.float32([[0.5, 2.0]]), np.int8([1, 0])), "gear": 2}
    wanted = [[-0.005492927506566048, 0.004899463150650263], [0.010409215465188026, -0.000842853]]
    np.testing.assert_allclose(disc.load(run).predict(observation)[0], wanted, rtol=1e-5)
    agent = disc.resume(run, env="tests.support.environments:nested", progress=False)
    assert agent.state.step == 4 * agent.config.horizon


def test_float_option_stored_as_integer_can_be_resumed(tmp_path: Path) -> None:
    """Version 0.1 stored `alpha_is=1` as it was given, and could not resume it."""
    run = shutil.copytree(SAMPLES / "integer-option", tmp_path / "run")
    agent = disc.resume(run, 128, progress=False)
    assert (agent.state.step, type(agent.config.alpha_is)) == (128, float)


def test_newer_format_version_raises_and_suggests_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "new.disc"
    header = {"format": file.FORMAT, "format_version": file.FORMAT_VERSION + 1}
    storage.write_tensors(path, {"x": np.zeros(1)}, header)
    with pytest.raises(DiscError, match=r"upgrade disc-rl"):
        disc.load(path)
