"""Runs stopped in an evaluation, with closed output, or before their first checkpoint."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import disc
from disc import DiscError, storage
from disc.envs.evaluate import Interrupted, evaluate
from disc.policy import file
from disc.run import checkpoint, evaluation, log, loop
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from faults.outcome import differences, litter
from tests.support import environments as probes
from tests.support.small import SMALL, small

ENV, STEPS = "Pendulum-v1", 1280
PLAN: dict[str, Any] = {
    "eval_every": 512,
    "eval_episodes": 2,
    "checkpoint_every": 1024,
    "progress": False,
}
MOMENTS = {"between checkpoints": 512, "at a checkpoint": 1024, "at the end": STEPS}


@pytest.fixture(scope="module", params=["disc", "sac"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run, in a folder named after its algorithm."""
    out = tmp_path_factory.mktemp("whole") / request.param
    with AGENTS[request.param](ENV, threads=1, **SMALL[request.param]) as agent:
        agent.learn(STEPS, out=out, **PLAN)
    return out


def strike(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Send a SIGTERM in the evaluation at this step, once."""
    steps = [step]

    def struck(env: Any, acting: Any, episodes: int, seed: int, now: int, **options: Any) -> Any:
        if now in steps:
            steps.remove(now)
            signal.raise_signal(signal.SIGTERM)
        return evaluate(env, acting, episodes, seed, now, **options)

    monkeypatch.setattr(evaluation, "evaluate", struck)


def interrupt(out: Path, name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> Agent:
    strike(monkeypatch, step)
    agent = AGENTS[name](ENV, threads=1, **SMALL[name])
    with agent, pytest.raises(KeyboardInterrupt):
        agent.learn(STEPS, out=out, **PLAN)
    return agent


@pytest.mark.parametrize("step", MOMENTS.values(), ids=MOMENTS)
def test_interrupted_evaluation_is_done_after_resume(
    step: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    agent = interrupt(run, whole.name, step, monkeypatch)
    assert agent.state.step == step  # the iteration is not lost
    assert (run / "checkpoints" / f"step_{step:012d}.safetensors").exists()
    assert [row["step"] for row in log.tail(run / "progress.csv")][-1] == step - 256
    shutil.copytree(run / "checkpoints", tmp_path / "kept")
    disc.resume(run, step + 256, progress=False).close()
    shutil.rmtree(run / "checkpoints")
    (tmp_path / "kept").rename(run / "checkpoints")  # as if killed before the next save
    disc.resume(run, STEPS, progress=False).close()
    assert differences(whole, run) == []
    assert litter(run) == []
    wanted, found = (file.read(x / "policy.disc").info["scores"] for x in (whole, run))
    assert found == wanted
    with pytest.raises(DiscError, match="is already at step 1,280"):
        disc.resume(run, progress=False)


def test_extended_run_skips_the_evaluation_at_its_old_end(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    interrupt(run, whole.name, STEPS, monkeypatch)
    with disc.resume(run, STEPS + 256, progress=False) as agent:
        assert ["eval/return" in row for row in agent.metrics[-3:]] == [True, False, True]


def test_agent_in_memory_continues_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = interrupt(tmp_path / "run", "disc", 512, monkeypatch)
    agent.learn(256, **{**PLAN, "checkpoint_every": 0})
    rows = [(row["step"], "eval/return" in row) for row in agent.metrics]
    assert rows == [(256, False), (512, True), (768, True)]


def test_interrupted_evaluation_stops_at_the_next_step() -> None:
    env, asked = probes.Cycle(), []

    def stop() -> bool:
        asked.append(len(asked))
        return len(asked) > 3

    with small(env=probes.Cycle) as agent, pytest.raises(Interrupted):
        evaluate(env, agent.policy, 10, 0, stop=stop)
    assert len(asked) == 5


@pytest.mark.parametrize(
    "odd",
    [
        [],
        1,
        "row",
        {},
        {"step": 1},
        *({"step": 512, **x} for x in ({"a": []}, {"a,b": 1}, {"x\ny": 1}, {"\ud800": 1})),
    ],
)
def test_invalid_pending_row_in_a_checkpoint_raises(
    odd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = interrupt(tmp_path / "run", "disc", 512, monkeypatch)
    path = max((tmp_path / "run" / "checkpoints").iterdir())
    arrays, info = storage.read_tensors(path, checkpoint.FORMAT, checkpoint.FORMAT_VERSION)
    storage.write_tensors(path, arrays, {**info, "unscored": odd})
    if not odd:  # the same as no row
        assert checkpoint.load(path, agent.state).pending is None
        return
    with pytest.raises(DiscError, match="does not fit this run's options"):
        checkpoint.load(path, agent.state)


# Closed output


def test_run_is_saved_when_its_output_is_closed(tmp_path: Path) -> None:
    """Ctrl-C in `disc train … 2>&1 | tee log` ends tee first."""
    words = f"train {ENV} --algo ppo --steps 1000000 --horizon 256 --gradient-steps 4 --epochs 2"
    words += " --widths 16 16 --eval-every 0 --threads 1"
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "disc", *words.split(), "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=writing, stderr=writing)
    os.close(writing)
    while not log.tail(tmp_path / "run" / "progress.csv"):
        assert process.poll() is None
        time.sleep(0.05)
    os.close(reading)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert int(saved.stem[5:]) == log.tail(tmp_path / "run" / "progress.csv")[-1]["step"]


def test_signal_is_handled_while_a_message_is_printed() -> None:
    def say(text: str) -> None:
        raise RuntimeError("reentrant call")

    with loop.interruptible(say) as interrupted:
        signal.raise_signal(signal.SIGTERM)
        assert interrupted()


# Before the first checkpoint


class Killed(BaseException):
    """Ends a run as a kill does."""


def kill(agent: Agent, row: Any) -> None:
    if agent.state.step == 1024:
        raise Killed


@pytest.mark.parametrize("before", ["loaded", "in memory", "in memory, untraced"])
def test_restart_before_the_first_checkpoint_keeps_the_initial_state(
    before: str, tmp_path: Path
) -> None:
    plan: dict[str, Any] = {"checkpoint_every": 2048, "eval_every": 0, "progress": False}
    with small(env=ENV, threads=1) as first:
        first.learn(512, **plan)
        first.save(tmp_path / "first.disc")

    def begun() -> Agent:
        if before == "loaded":
            return disc.DISC.load(tmp_path / "first.disc", threads=1)
        every = 0 if "untraced" in before else 2048
        return small(env=ENV, threads=1).learn(512, **{**plan, "checkpoint_every": every})

    steps = 1536 if before == "loaded" else 1024
    with begun() as agent:
        agent.learn(steps, out=tmp_path / "whole", **plan)
    with begun() as agent, pytest.raises(Killed):
        agent.learn(steps, out=tmp_path / "killed", callbacks=[kill], **plan)
    disc.resume(tmp_path / "killed", progress=False).close()
    assert differences(tmp_path / "whole", tmp_path / "killed") == []


def test_restart_without_a_checkpoint_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with small(env=ENV) as agent, pytest.raises(Killed):
        agent.learn(1280, out=tmp_path / "run", callbacks=[kill], eval_every=0, progress=False)
    disc.resume(tmp_path / "run", 256).close()
    assert "no checkpoint has been saved yet; the run starts from" in capfd.readouterr().err


def test_ctrl_c_during_imports_exits_cleanly() -> None:
    process = subprocess.Popen([sys.executable, "-m", "disc", "list"], stderr=subprocess.PIPE)
    status = Path(f"/proc/{process.pid}/status")

    def caught() -> bool:
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("SigCgt"))
        return bool(int(line.split()[1], 16) & 1 << signal.SIGINT - 1)

    while not caught():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"disc: stopped.\n")


def test_half_created_run_directory_can_be_used(tmp_path: Path) -> None:
    left = tmp_path / "run" / ".config.json.123.part"
    left.parent.mkdir()
    left.write_text("{")
    with small(env=ENV) as agent:
        agent.learn(256, out=tmp_path / "run", eval_every=0, progress=False)
    assert not left.exists()
