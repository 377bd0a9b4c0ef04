"""A resumed run equals an uninterrupted one, bit for bit; see also `test_each_algorithm`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from disc import DiscError, resume
from disc.run import log
from disc.run.agents import AGENTS
from tests.support import command
from tests.support import environments as probes
from tests.support.compare import assert_equal_trees
from tests.support.runs import PLAN, assert_same_run
from tests.support.small import PPO, SMALL

WIDE = "tests.support.environments:wide"


@pytest.mark.parametrize("env", [WIDE, "BipedalWalker-v3"])
def test_other_environments_resume_exactly(env: str, tmp_path: Path) -> None:
    """One made by a function, and one whose physics engine remembers more than a reset clears."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for run, steps in ((whole, 1280), (parts, 768)):
        agent = AGENTS["ppo"](env, threads=1, anneal_steps=5000, **PPO)
        agent.learn(steps, out=run, **PLAN)
    resume(parts, 1280, env=env if ":" in env else None, progress=False)
    assert_same_run(whole, parts)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("disc", {**PPO, "anneal_steps": 5000}),
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
    assert command.process("resume", run, "--steps", str(more), "--no-plots").returncode == 0
    agent = AGENTS["disc"]("Hopper-v5", threads=1, anneal_steps=5000, **PPO)
    agent.learn(more, out=whole, **PLAN)
    assert_same_run(whole, run)


def test_threads_do_not_change_what_several_environments_give() -> None:
    runs = []
    for threads in (1, 2):
        agent = AGENTS["ppo"](probes.Wide, num_envs=2, threads=threads, **PPO)
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
    with pytest.raises(DiscError, match="created in Python"):
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
