"""A signal in the middle of an evaluation: it is left, and made when the run goes on."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import disc
from benchmarks.faults.outcome import differences, litter
from disc import DiscError, checkpoint, files, logs, policy, train
from disc.agent import AGENTS, Agent
from disc.evaluate import Interrupted, evaluate
from tests import environments as probes
from tests.small import SMALL, small

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
    """A run that nothing happens to, in a folder that is named as its algorithm."""
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

    monkeypatch.setattr(train, "evaluate", struck)


def interrupt(out: Path, name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> Agent:
    strike(monkeypatch, step)
    agent = AGENTS[name](ENV, threads=1, **SMALL[name])
    with agent, pytest.raises(KeyboardInterrupt):
        agent.learn(STEPS, out=out, **PLAN)
    return agent


@pytest.mark.parametrize("step", MOMENTS.values(), ids=MOMENTS)
def test_it_is_made_when_the_run_goes_on(
    step: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    agent = interrupt(run, whole.name, step, monkeypatch)
    assert agent.state.step == step  # the iteration is not lost
    assert (run / "checkpoints" / f"step_{step:012d}.safetensors").exists()
    assert [row["step"] for row in logs.tail(run / "progress.csv")][-1] == step - 256
    shutil.copytree(run / "checkpoints", tmp_path / "kept")
    disc.resume(run, step + 256, progress=False).close()
    shutil.rmtree(run / "checkpoints")
    (tmp_path / "kept").rename(run / "checkpoints")  # killed before it was saved once more
    disc.resume(run, STEPS, progress=False).close()
    assert differences(whole, run) == []
    assert litter(run) == []
    wanted, found = (policy.read(x / "policy.disc").info["scores"] for x in (whole, run))
    assert found == wanted
    with pytest.raises(DiscError, match="is at step 1,280 already"):
        disc.resume(run, progress=False)


def test_a_longer_run_needs_no_evaluation_at_its_old_end(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    interrupt(run, whole.name, STEPS, monkeypatch)
    with disc.resume(run, STEPS + 256, progress=False) as agent:
        assert ["eval/return" in row for row in agent.metrics[-3:]] == [True, False, True]


def test_an_agent_in_memory_goes_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = interrupt(tmp_path / "run", "disc", 512, monkeypatch)
    agent.learn(256, **{**PLAN, "checkpoint_every": 0})
    rows = [(row["step"], "eval/return" in row) for row in agent.metrics]
    assert rows == [(256, False), (512, True), (768, True)]


def test_it_is_left_at_the_next_step() -> None:
    env, asked = probes.Cycle(), []

    def stop() -> bool:
        asked.append(len(asked))
        return len(asked) > 3

    with small(env=probes.Cycle) as agent, pytest.raises(Interrupted):
        evaluate(env, agent.policy, 10, 0, stop=stop)
    assert len(asked) == 5


@pytest.mark.parametrize("odd", [[], 1, "row", {}, {"step": 1}, {"step": 512, "a": []}])
def test_a_row_that_is_none_is_refused(
    odd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = interrupt(tmp_path / "run", "disc", 512, monkeypatch)
    path = max((tmp_path / "run" / "checkpoints").iterdir())
    arrays, info = files.read_tensors(path, checkpoint.FORMAT, checkpoint.FORMAT_VERSION)
    files.write_tensors(path, arrays, {**info, "unscored": odd})
    if not odd:  # as good as none
        assert checkpoint.load(path, agent.state).unscored is None
        return
    with pytest.raises(DiscError, match="does not fit this run's options"):
        checkpoint.load(path, agent.state)
