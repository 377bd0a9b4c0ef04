"""Untrusted run directories: resuming imports and opens only what the user names."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import disc
from disc import ACKTR, DISC, PPO, SAC, SQL, TRPO, DiscError, TrustPCL, host, storage
from disc.cli import main
from disc.envs.factory import Maker
from disc.run import checkpoint
from disc.run import log as run_log
from disc.run.agent import Agent
from disc.run.config import read_config
from disc.study import sweep
from disc.study.local import LocalJob
from disc.study.spec import Arm, Cell
from faults import mutations, untrusted
from tests.support import environments as probes
from tests.support.small import QUIET, small

WIDE = "tests.support.environments:wide"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    with small(env="Pendulum-v1") as agent:
        agent.learn(256, out=path, **QUIET)
    return path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def change(run: Path, **changes: Any) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(mutations.text({**config, **changes}))


# Imports and paths


@pytest.mark.parametrize("recipe", ["os:system", "subprocess:run", "a.b:Env-v0"])
def test_run_directory_cannot_choose_what_is_imported(recipe: str, run: Path) -> None:
    ran = run / "ran"
    change(run, env=recipe, env_kwargs={"command": f"touch {ran}", "args": ["touch", str(ran)]})
    with pytest.raises(DiscError) as refused:
        disc.resume(run, 512, progress=False)
    assert f"add `--env {recipe}` (in Python env={recipe!r})." in str(refused.value)
    assert f"touch {ran}" in str(refused.value)
    assert not ran.exists()


def test_run_resumes_with_the_environment_the_user_names(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kwargs = {"at": 10**9, "fault": "raise"}
    with small(env="tests.support.environments:bad", env_kwargs=kwargs) as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    words = ["resume", str(tmp_path / "run"), "--steps", "512"]
    with pytest.raises(SystemExit):
        main.main(words)
    said = capfd.readouterr().err
    assert "add `--env tests.support.environments:bad`" in said
    agent = disc.resume(tmp_path / "run", 512, env="tests.support.environments:bad", progress=False)
    assert (agent.state.step, agent.maker.kwargs) == (512, kwargs)
    with disc.resume(tmp_path / "run", 768, env="tests.support.environments:Cycle") as agent:
        assert agent.maker.kwargs == {}
    assert "its env_kwargs are ignored" in capfd.readouterr().err
    main.main([*words[:3], "1024", "--env", "tests.support.environments:bad"])


def test_run_with_a_gymnasium_id_resumes_without_env(run: Path) -> None:
    assert disc.resume(run, 512, progress=False).state.step == 512


@pytest.mark.parametrize("model", ["/etc/passwd", "./a.xml", "~/a.xml", "a/../../b.xml", "a:b"])
def test_run_directory_cannot_choose_which_files_are_opened(model: str, run: Path) -> None:
    """Gymnasium's MuJoCo environments read the model that `xml_file` names."""
    kwargs = {"xml_file": model}
    change(run, env="Hopper-v5", env_kwargs=kwargs)
    with pytest.raises(DiscError) as refused:
        disc.resume(run, 512, progress=False)
    assert f"with {kwargs!r}, which an untrusted file must not choose" in str(refused.value)
    assert "add `--env Hopper-v5`" in str(refused.value)
    for nested in ({"a": [model]}, {"a": {"b": model}}):
        with pytest.raises(DiscError, match="untrusted file must not choose"):
            Maker.from_file("file", "Hopper-v5", nested)
    with pytest.raises(DiscError, match=r"Hopper-v5: creating the environment failed"):
        disc.resume(run, 512, env="hopper", progress=False)  # the user's choice


@pytest.mark.parametrize("kwargs", [{}, {"xml_file": "hopper.xml", "frame_skip": 4, "a": [1, "b"]}])
def test_harmless_env_kwargs_in_a_file_are_accepted(kwargs: dict[str, Any]) -> None:
    assert Maker.from_file("file", "Hopper-v5", kwargs).kwargs == kwargs


@pytest.mark.parametrize("number", [10_001, -(10**9), 1e300, math.inf, math.nan, [[2 * 10**9]]])
def test_huge_numbers_in_env_kwargs_of_a_file_raise(number: Any) -> None:
    with pytest.raises(DiscError, match="untrusted file must not choose"):
        Maker.from_file("file", "Hopper-v5", {"frame_skip": number})


def test_circular_links_raise(run: Path) -> None:
    (run / "a").symlink_to("b")
    (run / "b").symlink_to("a")
    with pytest.raises(DiscError, match="is a link out"):
        disc.resume(run, 512, progress=False)


def test_temporary_files_do_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / f".report.html.{os.getpid()}.part").symlink_to(tmp_path / "victim")
    storage.write_text(tmp_path / "report.html", "text")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "report.html").read_text() == "text"


def test_sweep_logs_do_not_follow_links(tmp_path: Path) -> None:
    cell = Cell("Pendulum-v1", Arm("DISC", "disc"), 0, 100, 100, 10, 1, 10)
    log = tmp_path / "sweep" / sweep.LOGS / f"{cell.path}.log"
    log.parent.mkdir(parents=True)
    log.symlink_to(tmp_path / "victim")
    with pytest.raises(DiscError, match="leads out of"):
        LocalJob(tmp_path / "sweep", sweep.Status(cell, False, []))
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("name", ["checkpoints", "events", "curve.png", "checkpoints/new"])
def test_links_out_of_the_run_directory_raise(name: str, run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "step_000000000001.safetensors").write_text("not to be removed")
    if (run / name).exists():
        shutil.rmtree(run / name)
    (run / name).symlink_to(elsewhere)
    with pytest.raises(DiscError, match=f"{name}: is a link out of the run directory"):
        disc.resume(run, 512, progress=False)
    assert (elsewhere / "step_000000000001.safetensors").read_text() == "not to be removed"


def test_links_to_and_within_the_run_directory_are_allowed(run: Path, tmp_path: Path) -> None:
    (run / "best.disc").symlink_to("policy.disc")
    (tmp_path / "linked").symlink_to(run)
    assert disc.resume(tmp_path / "linked", 512, progress=False).state.step == 512


def test_stopped_run_prints_the_full_resume_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for env, said in (("Pendulum-v1", ""), (WIDE, f" --env {WIDE}")):
        for how, args in (("Stopped", ("saved",)), ("Stopped without saving", ())):

            def stop(*_: Any, args: Any = args, **__: Any) -> None:
                raise KeyboardInterrupt(*args)

            monkeypatch.setattr(Agent, "learn", stop)
            with pytest.raises(SystemExit):
                main.main(["train", env, "--out", str(tmp_path / "run")])
            command = f"disc resume {tmp_path / 'run'}{said}"
            assert f"{how}. Resume with: {command}\n" in capfd.readouterr().err


def test_sweep_names_the_environment_when_resuming_runs(tmp_path: Path) -> None:
    cell = Cell(WIDE, Arm("DISC", "disc"), 0, 100, 100, 10, 1, 10)
    words = sweep.cli_args(tmp_path, sweep.Status(cell, True, []))
    assert words[-2:] == ["--env", WIDE]
    cell = dataclasses.replace(cell, task="hopper")
    assert "--env" not in sweep.cli_args(tmp_path, sweep.Status(cell, True, []))


# config.json


@pytest.mark.parametrize(
    "odd",
    [
        {"algorithm": ["disc"]},
        {"algorithm": None},
        {"env": 3},
        {"env_kwargs": None},
        {"env_kwargs": [["a", 1]]},
        {"env_kwargs": {"nonsense": mutations.DEEP}},
        {"seed": None},
        {"seed": 1.5},
        {"threads": 2**40},
        {"num_envs": 2**40},
        {"plan": {"steps": "9", "eval_every": 1, "eval_episodes": 1, "checkpoint_every": 0}},
        {"plan": {"steps": None, "eval_every": 1, "eval_episodes": 1, "checkpoint_every": 0}},
        {"config": [["horizon", 256]]},
        {"config": {"horizon": 256, "seed": 1}},
        {"config": {"horizon": 256, "self": 1}},
        {"config": {"horizon": 256, "clip_actions": []}},
        {"config": {"horizon": 256, "learning_rate": 10**400}},
        {"config": {"horizon": 2**80}},
        {"config": {"horizon": 256, "widths": [1] * 101}},
        {"resumed": 3},
        {"resumed": [3]},
        {"rollbacks": {"a": 1}},
    ],
    ids=lambda odd: str(odd)[:60],
)
def test_invalid_configs_raise(odd: dict[str, Any], run: Path) -> None:
    change(run, **odd)
    with pytest.raises(DiscError):
        untrusted.go_on(run)


def test_too_many_environments_raise(run: Path) -> None:
    """They would all be made before the lack of memory is noticed."""
    config = json.loads((run / "config.json").read_text())["config"]
    change(run, num_envs=2**30, config={**config, "horizon": 2**30})
    with pytest.raises(DiscError, match="num_envs must be a whole number of at most 1,000"):
        untrusted.go_on(run)


def test_named_pipes_raise_instead_of_blocking(run: Path) -> None:
    (run / "progress.csv").unlink()
    os.mkfifo(run / "progress.csv")
    with pytest.raises(DiscError, match="not a regular file"):
        untrusted.go_on(run)
    assert run_log.tail(run / "progress.csv") == []
    (run / "config.json").unlink()
    os.mkfifo(run / "config.json")
    with pytest.raises(DiscError, match="not a regular file"):
        read_config(run)


# Checkpoints


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("environments/taken", np.zeros((1, 256), np.float32)),
        ("environments/taken", np.zeros((1, 512, 1), np.float32)),  # more actions than steps
        ("environments/where", np.zeros((2, 3), np.float32)),
        ("state/['seed']", np.int64(7)),
        ("state/['step']", np.int64(-1)),
        ("state/['step']", np.float64(math.inf)),
        ("state/['normalizer'].observation.mean", np.zeros(3, np.int64)),
        ("state/['policy'].parameters.log_std", np.zeros(1, np.float16)),
    ],
    ids=str,
)
def test_invalid_checkpoints_raise(name: str, array: Any, run: Path) -> None:
    (path,) = (run / "checkpoints").iterdir()
    arrays, info = storage.read_tensors(path, checkpoint.FORMAT, checkpoint.FORMAT_VERSION)
    assert name in arrays
    mutations.write(path, {**arrays, name: np.asarray(array)}, info)
    with pytest.raises(DiscError, match="does not fit this run's options"):
        untrusted.go_on(run)


@pytest.mark.parametrize("elapsed", [None, "long", math.nan, -1, 10**400, mutations.DEEP])
def test_invalid_elapsed_times_raise(elapsed: Any, run: Path) -> None:
    (path,) = (run / "checkpoints").iterdir()
    arrays, info = storage.read_tensors(path, checkpoint.FORMAT, checkpoint.FORMAT_VERSION)
    mutations.write(path, arrays, {**info, "elapsed": elapsed})
    with pytest.raises(DiscError):
        untrusted.go_on(run)


# Memory


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (PPO, {"horizon": 2**30}, "a replay of 1 × 1,073,741,824 steps takes"),
        (DISC, {"replay_length": 2**30}, "lower horizon or replay_length"),
        (DISC, {"epochs": 2**30}, "lower horizon, replay_length or epochs"),
        (TRPO, {"value_epochs": 2**30}, "lower horizon or value_epochs"),
        (ACKTR, {"value_steps": 2**30}, "lower horizon or value_steps"),
        (ACKTR, {"widths": (10**5,)}, "K-FAC of a network of 6 × 100,000 × 4 takes"),
        (TRPO, {"widths": (10**9,)}, "a network of 6 × 1,000,000,000 × 4 takes"),
        (SAC, {"widths": (10**9, 10**9)}, "lower widths"),
        (SAC, {"batch_size": 10**9}, "a gradient step on 1,000,000,000 rows takes"),
        (SAC, {"steps_per_update": 2**30, "horizon": 2**30}, "lower steps_per_update"),
        (SQL, {"value_particles": 10**9}, "lower batch_size"),
        (TrustPCL, {"replay_chunks": 2**30}, "lower replay_chunks"),
        (TrustPCL, {"lambda_episodes": 2**40}, "lower lambda_episodes"),
        (TrustPCL, {"batch_chunks": 2**30}, "lower batch_chunks"),
    ],
)
def test_options_that_exceed_memory_raise_before_allocation(
    kind: type[Agent], options: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 8 * 10**9)
    with pytest.raises(DiscError, match=says):
        small(kind, probes.wide, **options)
