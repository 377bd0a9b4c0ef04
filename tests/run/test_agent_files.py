"""Saving and loading agents and policies, including damaged and hostile files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import disc
from disc import DISC, PPO, SAC, DiscError
from disc.cli import main
from disc.policy import file as policy_file
from tests.support import environments as probes
from tests.support.small import QUIET, small


def test_acting_needs_no_jax(tmp_path: Path) -> None:
    small().save(tmp_path / "p.disc")
    code = (
        "import sys, numpy, disc\n"
        f"policy = disc.load({str(tmp_path / 'p.disc')!r})\n"
        "policy.predict(numpy.zeros((2, 3)))\n"
        "assert not {'jax', 'gymnasium', 'rich', 'matplotlib'} & set(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_damaged_and_missing_files_raise(tmp_path: Path) -> None:
    path = tmp_path / "p.disc"
    small().save(path)
    data = bytearray(path.read_bytes())
    for position in (3, 40, len(data) // 2, len(data) - 1):
        damaged = bytearray(data)
        damaged[position] ^= 8
        path.write_bytes(damaged)
        with pytest.raises(DiscError, match=r"p\.disc"):
            disc.load(path)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DiscError):
        disc.load(path)
    with pytest.raises(DiscError, match="no such file"):
        disc.load(tmp_path / "q.disc")


@pytest.mark.parametrize("env", ["subprocess:run", "tests.support.environments:wide", None, 3])
def test_policy_file_cannot_choose_what_is_imported(env: Any, tmp_path: Path) -> None:
    path, ran = tmp_path / "p.disc", tmp_path / "ran"
    agent = small()
    agent.save(path)
    file = policy_file.read(path)
    hostile = {"env": env, "env_kwargs": {"args": ["touch", str(ran)]}}
    policy_file.write(path, file.tensors, {**file.info, **hostile})
    with pytest.raises(DiscError, match="with env"):
        DISC.load(path)
    with pytest.raises(SystemExit):
        main.main(["eval", str(path)])
    assert not ran.exists()
    assert disc.load(path).predict(np.zeros((2, 3)))[0].shape == (2, 2)


def test_loaded_agent_takes_no_random_steps(tmp_path: Path) -> None:
    """Random steps are for untrained networks."""
    agent = small(SAC).learn(256, **QUIET)
    agent.save(tmp_path / "p.disc")
    loaded = SAC.load(tmp_path / "p.disc", env=probes.wide)
    for each, kind in ((small(SAC), "Uniform"), (loaded, "Squashed")):
        acting = each.algorithm.explore(each.config, each.env.spec, each.state)
        assert type(acting).__name__ == kind


def test_load_accepts_a_run_directory_and_keywords(tmp_path: Path) -> None:
    kwargs = {"forward_reward_weight": 2.0}
    agent = small(PPO, "Hopper-v5", env_kwargs=kwargs, num_envs=2)
    agent.learn(256, out=tmp_path / "run", **QUIET)
    loaded = PPO.load(tmp_path / "run")
    assert (loaded.num_envs, loaded.maker.kwargs) == (2, kwargs)
    loaded = PPO.load(tmp_path / "run", env="Hopper-v5", env_kwargs={}, epsilon=0.3)
    assert (loaded.num_envs, loaded.maker.kwargs) == (1, {})
    assert loaded.config.epsilon == 0.3


def test_without_periodic_checkpoints_only_the_end_is_saved(tmp_path: Path) -> None:
    agent = small(PPO).learn(512, out=tmp_path / "run", checkpoint_every=0, **QUIET)
    assert not agent.env.actions_since_reset
    assert len(list((tmp_path / "run/checkpoints").iterdir())) == 1
    resumed = disc.resume(tmp_path / "run", 1024, env=probes.wide, progress=False)
    assert resumed.state.step == 1024


def test_2018_form_of_sac_trains_saves_and_resumes(tmp_path: Path) -> None:
    agent = small(SAC, form="2018").learn(512, out=tmp_path / "run", **QUIET)
    assert agent.config.reward_scale == 5.0
    resumed = disc.resume(tmp_path / "run", 768, env=probes.wide, progress=False)
    assert resumed.state.learned.target[0].weight.shape == (6, 16)
    assert SAC.load(tmp_path / "run", env=probes.wide).config.form == "2018"


def test_env_kwargs_are_loaded_only_for_the_same_environment(tmp_path: Path) -> None:
    kwargs = {"at": 10**9, "fault": "raise"}
    with small(env=probes.bad, env_kwargs=kwargs) as agent:
        agent.save(tmp_path / "bad.disc")
    env = probes.bad()
    for given, wanted in ((probes.bad, kwargs), (probes.Cycle, {}), (env, {})):
        with DISC.load(tmp_path / "bad.disc", env=given) as agent:
            assert agent.maker.kwargs == wanted
    with DISC.load(tmp_path / "bad.disc", env=probes.bad, env_kwargs={"at": 7}) as agent:
        assert agent.maker.kwargs == {"at": 7}


def test_info_shows_the_env_kwargs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for kwargs, shown in (({"g": 9.0}, True), ({}, False)):
        with small(env="Pendulum-v1", env_kwargs=kwargs) as agent:
            agent.save(tmp_path / "pendulum.disc")
        main.main(["info", str(tmp_path / "pendulum.disc")])
        assert ("g=9.0" in capfd.readouterr().out) == shown
