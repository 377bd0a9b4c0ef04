"""Runs with environments in workers equal other runs, also if they are killed or resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import disc
from disc import DDPG, PPO, SAC, DiscError
from disc.cli.options import with_options
from disc.run import log
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from faults.outcome import differences
from tests.support import studies
from tests.support.small import QUIET, SMALL, small
from tests.support.workers import children, running

ENV, STEPS = "Pendulum-v1", 1024
PLAN: dict[str, Any] = {"checkpoint_every": 700, **QUIET}


@pytest.fixture(scope="module", params=["ppo", "sac"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run in this process, in a folder named after its algorithm."""
    out = tmp_path_factory.mktemp("whole") / request.param
    with agent(request.param, "threads") as learner:
        learner.learn(STEPS, out=out, **PLAN)
    return out


def agent(name: str, workers: str | None) -> Agent:
    return AGENTS[name](ENV, num_envs=2, threads=2, workers=workers, **SMALL[name])


def stop(learner: Agent, _: Any) -> bool:
    return learner.state.step < 512


def kill(learner: Agent, row: Any) -> None:
    remote = learner.env.remote
    assert remote is not None
    if row["step"] in (256, 768):  # with and without actions since the last reset
        remote.workers[row["step"] // 768].process.kill()  # type: ignore[attr-defined]


def test_runs_in_processes_equal_others_even_if_workers_are_killed(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with agent(whole.name, "processes") as learner:
        learner.learn(STEPS, out=tmp_path / "run", callbacks=[kill], **{**PLAN, "progress": True})
    assert differences(whole, tmp_path / "run") == []
    assert capfd.readouterr().err.count("A new one repeats its steps") == 2
    assert json.loads((tmp_path / "run" / "config.json").read_text())["workers"] == "processes"


@pytest.mark.parametrize(
    ("first", "second"), [("threads", "processes"), ("processes", "threads"), ("processes", None)]
)
def test_run_may_be_resumed_with_other_workers(
    first: str, second: str | None, whole: Path, tmp_path: Path
) -> None:
    with agent(whole.name, first) as learner:
        learner.learn(STEPS, out=tmp_path / "run", callbacks=[stop], **PLAN)
    with disc.resume(tmp_path / "run", STEPS, workers=second, progress=False) as learner:
        assert learner.training.workers == (second or first)
    assert differences(whole, tmp_path / "run") == []


def test_worker_is_replaced_in_a_run_without_checkpoints() -> None:
    rows = []
    for workers in ("threads", "processes"):
        callbacks = [kill] if workers == "processes" else []
        with agent("ppo", workers) as learner:
            learner.learn(STEPS, callbacks=callbacks, **{**PLAN, "checkpoint_every": 0})
            rows.append([row["train/return"] for row in learner.metrics if "train/return" in row])
    assert rows[0] == rows[1]


def test_choice_of_the_trial_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with small(PPO, num_envs=2, threads=2) as learner:
        learner.learn(1024, eval_every=0)
        assert learner.env.remote is None  # a short run pays for no process
    said = capfd.readouterr().err
    assert said.count("2 environments are stepped") == 1
    assert "--workers sets it" in said


def test_interrupted_run_is_saved_and_leaves_no_process(tmp_path: Path) -> None:
    words = f"train {ENV} --algo ppo --steps 1000000 --horizon 256 --gradient-steps 4 --epochs 2"
    words += " --widths 16 16 --eval-every 0 --num-envs 2 --workers processes --out run"
    process = studies.disc(tmp_path, *words.split())
    record = tmp_path / "run" / "progress.csv"
    studies.wait_for(lambda: bool(log.tail(record)) or process.poll() is not None)
    pids = children(process.pid)
    assert len(pids) >= 2
    process.send_signal(signal.SIGINT)
    code, _, said = studies.finish(process)
    assert (code, "Stopped. Resume with: disc resume run" in said) == (130, True), said
    studies.wait_for(lambda: not any(map(running, pids)), 20.0)
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert int(saved.stem[5:]) == log.tail(record)[-1]["step"]


# Options


@pytest.mark.parametrize("workers", ["cores", "processes:4", "ray :", 3, ""])
def test_unknown_workers_are_refused(workers: Any) -> None:
    with pytest.raises(DiscError, match="workers must be threads, processes, ray or ray:ADDRESS"):
        small(PPO, workers=workers)


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        ("cores", "its config.json is damaged .workers must be"),
        (["ray"], "its config.json is damaged .workers must be"),
        ("ray:example.org:6379", "must not choose; if you trust it, add `--workers ray:exa"),
    ],
)
def test_run_directory_cannot_choose_an_address(workers: Any, says: str, tmp_path: Path) -> None:
    with small(PPO, ENV) as learner:
        learner.learn(256, out=tmp_path / "run", **PLAN)
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "workers": workers}))
    with pytest.raises(DiscError, match=says):
        disc.resume(tmp_path / "run", 512, progress=False)


@pytest.mark.parametrize(
    ("kind", "num_envs", "options", "steps", "horizon", "updates"),
    [
        (SAC, 1, {}, 1, 200, 1),
        (SAC, 4, {}, 4, 200, 4),
        (SAC, 3, {}, 3, 201, 3),
        (SAC, 4, {"updates_per_step": 0.25}, 4, 200, 1),
        (SAC, 4, {"steps_per_update": 8}, 8, 200, 8),
        (SAC, 4, {"horizon": 100}, 4, 100, 4),
        (DDPG, 4, {}, 100, 200, 50),
        (DDPG, 3, {}, 102, 204, 51),
    ],
)
def test_off_policy_options_fit_the_number_of_environments(
    kind: type[Agent],
    num_envs: int,
    options: dict[str, Any],
    steps: int,
    horizon: int,
    updates: int,
) -> None:
    with kind(ENV, num_envs=num_envs, replay_size=100, **options) as learner:
        config = learner.config
        assert (config.steps_per_update, config.horizon, config.updates) == (
            steps,
            horizon,
            updates,
        )
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    words += ["--algo", kind.algorithm.NAME, "--replay-size", "100"]
    words += ["--num-envs", str(num_envs)] if num_envs > 1 else []
    assert parsed(ENV, *words) == config


def parsed(*words: str) -> Any:
    """The config that the command line chooses."""
    import tyro

    command: Any = tyro.cli(with_options(list(words)), args=list(words))
    return command.config.for_task(command.run.env)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps_per_update": 1}, "num_envs must divide the steps_per_update, 1, but 4 does not"),
        ({"horizon": 202}, "horizon must be divisible by steps_per_update, 4, not 202"),
    ],
)
def test_options_that_were_chosen_are_not_changed(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DiscError, match=says):
        SAC(ENV, num_envs=4, **options)


def test_steps_between_updates_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
    options = {"updates_per_step": 0.125, "random_steps": 200, "replay_size": 200}
    with SAC(ENV, num_envs=4, **options) as learner:
        learner.learn(200, eval_every=0)
    said = " ".join(capfd.readouterr().err.split())
    assert "4 environments take 8 steps together between updates (steps_per_update)" in said
