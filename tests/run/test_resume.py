"""A resumed run equals an uninterrupted one, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from disc import DiscError, resume
from disc.run import log
from disc.run.agent import AGENTS
from tests.support import environments as probes
from tests.support.compare import assert_equal_trees
from tests.support.small import PPO, SMALL

PLAN = {"checkpoint_every": 512, "eval_every": 512, "eval_episodes": 1, "progress": False}
REPLAYS = ("disc", "trust-pcl", "sac")  # one algorithm for each kind of replay
WIDE = "tests.support.environments:wide"


def disc(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "disc", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def assert_same_run(a: Path, b: Path) -> None:
    """Parameters, optimisers, statistics, replay, environments, policies and progress are equal."""
    newest = [max((run / "checkpoints").iterdir()) for run in (a, b)]
    for files in (newest, [run / "policy.disc" for run in (a, b)]):
        first, second = (load_file(file) for file in files)
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    kept = [run / "best.disc" for run in (a, b)]
    assert kept[0].exists() == kept[1].exists()
    assert not kept[0].exists() or kept[0].read_bytes() == kept[1].read_bytes()
    first_rows, second_rows = (log.read_progress(run / "progress.csv") for run in (a, b))
    assert [untimed(row) for row in first_rows] == [untimed(row) for row in second_rows]


def untimed(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if not name.startswith("time/")}


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        *((name, "Hopper-v5") for name in AGENTS),
        ("ppo", WIDE),
        ("ppo", "BipedalWalker-v3"),
    ],
)
def test_resumed_run_equals_uninterrupted_run(algorithm: str, env: str, tmp_path: Path) -> None:
    """Seven iterations at once, or three and four more; for each kind of replay in a new process.

    The stop after the third lies between two checkpoints, so the environment's episode is
    replayed too.
    """
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = {**SMALL[algorithm], **({"anneal_steps": 5000} if SMALL[algorithm] is PPO else {})}
    for run, steps in ((whole, 1792), (parts, 768)):
        agent = AGENTS[algorithm](env, threads=1, **options)
        agent.learn(steps, out=run, **PLAN)
    if algorithm in REPLAYS:
        done = disc("resume", parts, "--steps", "1792", "--no-plots")
        assert done.returncode == 0, done.stderr
    else:
        resume(parts, 1792, env=env if ":" in env else None, progress=False)
    assert_same_run(whole, parts)
    config = json.loads((parts / "config.json").read_text())
    assert (config["plan"]["steps"], config["resumed"][0]["step"]) == (1792, 768)
    rows = log.read_progress(parts / "progress.csv")
    assert [row["step"] for row in rows] == list(range(256, 1793, 256))
    assert all(a["time/elapsed"] < b["time/elapsed"] for a, b in pairwise(rows))


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("disc", {**PPO, "anneal_steps": 5000}),
        ("trust-pcl", SMALL["trust-pcl"]),
        ("trust-pcl", {**SMALL["trust-pcl"], "horizon": 248}),  # a chunk spans two environments
        ("ddpg", {**SMALL["ddpg"], "horizon": 248, "steps_per_update": 8}),
    ],
)
def test_run_with_several_environments_resumes_exactly(
    algorithm: str, options: dict[str, Any], tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for run, steps in ((whole, 1240), (parts, 744)):
        agent = AGENTS[algorithm]("Hopper-v5", num_envs=2, **options)
        agent.learn(steps, out=run, **PLAN)
    resume(parts, 1240, progress=False)
    assert_same_run(whole, parts)


def test_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    for out in (whole, run):
        AGENTS["ppo"](probes.wide, **PPO).learn(512, out=out, **PLAN)
    shutil.rmtree(run / "checkpoints")
    (run / ".policy.disc.1.part").write_text("half")
    resume(run, env=probes.wide, progress=False)
    assert_same_run(whole, run)
    assert not list(run.glob(".*.part"))


def test_ctrl_c_saves_and_prints_the_resume_command(tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    options = "--horizon 256 --gradient-steps 4 --epochs 2 --widths 16 16 --anneal-steps 5000"
    plan = "--checkpoint-every 512 --eval-every 512 --eval-episodes 1 --threads 1 --steps 100000"
    words = ["train", "Hopper-v5", *options.split(), *plan.split(), "--out", str(run)]
    process = subprocess.Popen(
        [sys.executable, "-m", "disc", *words], stderr=subprocess.PIPE, text=True
    )
    progress = run / "progress.csv"
    while not progress.exists() or len(progress.read_text().splitlines()) < 4:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"disc resume {run}" in said
    more = int(log.read_progress(progress)[-1]["step"]) + 512
    assert disc("resume", run, "--steps", str(more), "--no-plots").returncode == 0
    agent = AGENTS["disc"]("Hopper-v5", threads=1, anneal_steps=5000, **PPO)
    agent.learn(more, out=whole, **PLAN)
    assert_same_run(whole, run)


@pytest.mark.parametrize("algorithm", ["disc", "sac"])
def test_equal_seeds_give_equal_runs_and_other_seeds_do_not(algorithm: str, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        agent = AGENTS[algorithm]("Hopper-v5", seed=seed, **SMALL[algorithm])
        agent.learn(1024, out=tmp_path / name, eval_every=0, progress=False)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("algorithm", [*REPLAYS, "acktr", "ddpg"])
def test_evaluation_and_files_do_not_disturb_training(algorithm: str, tmp_path: Path) -> None:
    def parameters(**options: Any) -> Any:
        agent = AGENTS[algorithm]("Hopper-v5", **SMALL[algorithm])
        agent.learn(1024, checkpoint_every=512, progress=False, **options)
        return agent.state.policy, agent.state.value

    alone = parameters(eval_every=0)
    evaluated = parameters(eval_every=256, eval_episodes=2, out=tmp_path / "run")
    assert_equal_trees(alone, evaluated)


@pytest.mark.parametrize("algorithm", ["disc", "ppo", "ppo-amber", "trpo"])
def test_threads_do_not_change_results(algorithm: str) -> None:
    runs = []
    for threads in (1, 2):
        options = SMALL[algorithm]
        agent = AGENTS[algorithm](probes.Wide, num_envs=2, threads=threads, **options)
        runs.append(agent.learn(1024, eval_every=0, progress=False))
    states = [(run.state.policy, run.state.value, run.state.replay) for run in runs]
    assert_equal_trees(*states)


def test_resume_ignores_damaged_newest_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    AGENTS["ppo"](probes.wide, **PPO).learn(
        1536, out=run, eval_every=0, checkpoint_every=512, progress=False
    )
    kept = sorted((run / "checkpoints").iterdir())
    assert [path.name for path in kept] == [
        "step_000000001024.safetensors",
        "step_000000001536.safetensors",
    ]
    data = bytearray(kept[1].read_bytes())
    data[len(data) // 2] ^= 1
    kept[1].write_bytes(data)
    agent = resume(run, 2048, env=probes.wide)
    assert "damaged" in capsys.readouterr().err
    assert [row["step"] for row in agent.metrics] == list(range(256, 2049, 256))


def test_environment_that_ignores_its_seed_gives_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Unseeded(probes.Wide):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=int.from_bytes(os.urandom(4)))

    run = tmp_path / "run"
    AGENTS["ppo"](Unseeded, **PPO).learn(256, out=run, eval_every=0, progress=False)
    resume(run, 512, env=Unseeded)
    assert "is not deterministic under a seed" in capsys.readouterr().err


def test_resume_of_invalid_runs_and_steps_raises(tmp_path: Path) -> None:
    with pytest.raises(DiscError, match="not a run directory"):
        resume(tmp_path / "nowhere")
    run = tmp_path / "run"
    AGENTS["ppo"](probes.wide, **PPO).learn(256, out=run, eval_every=0, progress=False)
    with pytest.raises(DiscError, match="made in Python"):
        resume(run, 512)
    with pytest.raises(DiscError, match="is already at step 256"):
        resume(run, 256, env=probes.wide)
    config = json.loads((run / "config.json").read_text())
    for damaged in ({**config, "plan": None}, {**config, "config": 3}, {}):
        (run / "config.json").write_text(json.dumps(damaged))
        with pytest.raises(DiscError, match="damaged"):
            resume(run, 512, env=probes.wide)
    (run / "config.json").write_text(json.dumps({**config, "algorithm": "magic"}))
    with pytest.raises(DiscError, match="algorithm 'magic' is not installed"):
        resume(run, 512, env=probes.wide)
    with pytest.raises(DiscError, match="steps must be"):
        resume(run, 0, env=probes.wide)
