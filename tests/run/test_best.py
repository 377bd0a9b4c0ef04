"""A run keeps the policy of its best evaluation, and ends early where asked to."""

from __future__ import annotations

import json
import math
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import disc
from disc import DISC, DiscError, seeding, storage
from disc.cli import main
from disc.envs.evaluate import evaluate
from disc.policy import file
from disc.run import checkpoint, log, saving
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from disc.run.config import read_config
from disc.run.training import Plan
from faults.outcome import differences, litter, run
from tests.support import environments as probes
from tests.support.nonfinite import parameters_at, spoiled
from tests.support.small import PPO

WIDE = "tests.support.environments:wide"
STEPS, LONGER = 1792, 2304
PLAN: dict[str, Any] = {"eval_every": 512, "eval_episodes": 2, "checkpoint_every": 768}
OPTIONS: dict[str, Any] = {"seed": 7, "threads": 1, "anneal_steps": 5000, **PPO}
# With this seed the evaluations are −3.4, 1.3, 0.5, −0.4, and 2.0 if the run ends at step 1,792,
# which is no multiple of 512.


class Killed(BaseException):
    """Ends a run as a kill does."""


def learn(out: Path, steps: int = STEPS, **options: Any) -> Agent:
    with AGENTS["ppo"](WIDE, **OPTIONS) as agent:
        return agent.learn(steps, out=out, progress=False, **{**PLAN, **options})


def resume(path: Path, *args: Any, **options: Any) -> Agent:
    with disc.resume(path, *args, env=WIDE, progress=False, **options) as agent:
        return agent


def ended(path: Path) -> dict[str, Any]:
    return read_config(path)["ended"]


def evaluations(path: Path) -> dict[int, float]:
    rows = log.read_progress(path / "progress.csv")
    return {int(row["step"]): row["eval/return"] for row in rows if "eval/return" in row}


def kill_after(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, call: int) -> None:
    """Kill the run when this function has returned for this time."""
    original, calls = getattr(place, name), list[int]()

    def struck(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        calls.append(1)
        if len(calls) == call:
            raise Killed
        return result

    monkeypatch.setattr(place, name, struck)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run whose last evaluation, made only as it ends, is its best."""
    path = tmp_path_factory.mktemp("best") / "whole"
    learn(path)
    return path


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with more steps, in which that evaluation is never made."""
    path = tmp_path_factory.mktemp("best") / "longer"
    learn(path, LONGER)
    return path


# Which policy it is


def test_best_policy_is_that_of_the_highest_evaluation(tmp_path: Path) -> None:
    def keep(agent: Agent, row: Any) -> None:
        agent.save(tmp_path / f"{row['step']}.disc")

    agent = learn(tmp_path / "run", LONGER, callbacks=[keep])
    found = evaluations(tmp_path / "run")
    step = max(found, key=lambda x: found[x])
    assert step not in (min(found), max(found))  # else the test would show little
    best, then = (file.read(tmp_path / x) for x in ("run/best.disc", f"{step}.disc"))
    assert best.tensors.keys() == then.tensors.keys()
    for name, array in then.tensors.items():
        np.testing.assert_array_equal(best.tensors[name], array, err_msg=name)
    assert (best.info["step"], best.info["best"]["return"]) == (step, found[step])
    observation = np.ones((2, 3))
    wanted = then.policy.predict(observation)[0]
    assert agent.best is not None
    for policy in (agent.best, disc.load(tmp_path / "run", best=True)):
        np.testing.assert_array_equal(policy.predict(observation)[0], wanted)
    assert not np.array_equal(disc.load(tmp_path / "run").predict(observation)[0], wanted)


def test_lower_bound_prefers_the_steadier_policy() -> None:
    lucky = {"return": 110.0, "return_std": 60.0}
    steady = {"return": 100.0, "return_std": 3.0}
    by_mean, by_bound = (Plan(1, 1, 10, 1, best=best) for best in ("mean", "lower"))
    assert by_mean.score(lucky) > by_mean.score(steady)
    assert by_bound.score(lucky) < by_bound.score(steady)
    assert by_bound.score(steady) == pytest.approx(98.0)  # 100 − 2 · 3 / √9


def test_best_policy_is_evaluated_again_on_other_episodes(whole: Path) -> None:
    found = file.read(whole / "best.disc").info["best"]
    assert found == ended(whole)["best"]
    assert (found["step"], found["return"]) == (STEPS, evaluations(whole)[STEPS])
    policy = disc.load(whole, best=True)
    args = (probes.wide(), policy, 2, 7, STEPS)
    again = evaluate(*args, stream=seeding.REEVALUATION)
    assert found["reevaluated"]["return"] == np.mean(again.returns)
    assert set(again.returns).isdisjoint(evaluate(*args).returns)


def test_agent_in_memory_starts_a_new_best_with_each_call() -> None:
    """Its environment may have arguments that no file can hold."""

    def make(thing: Any) -> Any:
        return probes.wide()

    with AGENTS["ppo"](make, env_kwargs={"thing": object()}, **OPTIONS) as agent:
        agent.learn(512, eval_every=256, eval_episodes=1, progress=False)
        first = agent.best
        agent.learn(256, eval_every=0, progress=False)
        assert first is not None
        assert agent.best is None


# Exactness


@pytest.mark.parametrize(
    ("place", "name", "call"),
    [
        pytest.param(saving, "write_best", 1, id="before the first checkpoint"),
        pytest.param(log.ProgressFile, "append", 4, id="evaluation recorded"),
        pytest.param(saving, "write_best", 2, id="best written"),
        pytest.param(checkpoint, "save", 3, id="last checkpoint written"),
        pytest.param(saving, "write_best", 3, id="evaluated again"),
    ],
)
def test_killed_and_resumed_run_ends_with_the_same_best(
    place: Any, name: str, call: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    kill_after(monkeypatch, place, name, call)
    with pytest.raises(Killed):
        learn(path)
    monkeypatch.undo()
    assert "ended" not in read_config(path)
    resume(path)
    assert differences(whole, path) == []
    assert litter(path) == []
    assert ended(path) == ended(whole)
    with pytest.raises(DiscError, match="is already at step 1,792"):
        resume(path)


def test_process_killed_while_it_writes_its_best_resumes_exactly(
    whole: Path, tmp_path: Path
) -> None:
    task = {"moment": "best", "call": 2, "delay": 0.0, "signal": signal.SIGKILL}
    words = f"train {WIDE} --algo ppo --seed 7 --threads 1 --anneal-steps 5000 --horizon 256"
    words += " --gradient-steps 4 --epochs 2 --widths 16 16 --eval-every 512 --eval-episodes 2"
    words += f" --checkpoint-every 768 --steps {STEPS} --no-check --out run"
    struck = {"struck": str(tmp_path / "struck")}
    first = run([json.dumps(task | struck), *words.split()], tmp_path, module="faults.victim")
    assert first.returncode == -signal.SIGKILL, first.stderr
    done = run(["resume", "run", "--env", WIDE], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "re-evaluated" in done.stdout
    assert differences(whole, tmp_path / "run") == []
    assert ended(tmp_path / "run") == ended(whole)


@pytest.mark.parametrize("damaged", [False, True])
def test_extended_run_forgets_the_best_of_its_old_end(
    damaged: bool, whole: Path, longer: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(whole, tmp_path / "run")
    if damaged:
        max((path / "checkpoints").iterdir()).write_bytes(b"damaged")
    seen = []

    def look(agent: Agent, row: Any) -> None:
        seen.append(file.read(path / "best.disc").info["step"])

    resume(path, LONGER, callbacks=[look])
    assert set(seen) == {1024}
    assert differences(longer, path) == []


def test_rollback_forgets_a_best_after_the_checkpoint(tmp_path: Path) -> None:
    """The policy of step 1,024 is the best until the run returns from step 1,280 to step 768."""
    seen: dict[int, int] = {}

    def look(agent: Agent, row: Any) -> None:
        if (tmp_path / "run/best.disc").exists():
            seen[row["step"]] = file.read(tmp_path / "run/best.disc").info["step"]

    kind = spoiled(AGENTS["ppo"], parameters_at(1280, above=2e-4))
    with kind(WIDE, **{**OPTIONS, "anneal_steps": 10**6}) as agent:
        plan = {**PLAN, "progress": False, "callbacks": [look]}
        agent.learn(1024, out=tmp_path / "whole", **plan)
        assert agent.training.best is not None
        assert agent.training.best.evaluation["step"] == 1024
    seen.clear()
    with kind(WIDE, **{**OPTIONS, "anneal_steps": 10**6}) as agent:
        agent.learn(1280, out=tmp_path / "run", on_nan="rollback", **plan)
        assert agent.training.best is not None
        halved = agent.training.best.info["config"]["learning_rate"]
    assert read_config(tmp_path / "run")["rollbacks"] == [{"from": 1280, "to": 768}]
    assert (seen[768], seen[1024], halved) == (512, 1024, 1.5e-4)


def test_damaged_best_in_a_checkpoint_raises(whole: Path, tmp_path: Path) -> None:
    path = shutil.copytree(whole, tmp_path / "run")
    newest = max((path / "checkpoints").iterdir())
    arrays, info = storage.read_tensors(newest, checkpoint.FORMAT, checkpoint.FORMAT_VERSION)
    wrong = [{}, {**info["best"], "step": 5}, {**info["best"], "best": {"step": 1024}}]
    for best in wrong:
        storage.write_tensors(newest, arrays, {**info, "best": best})
        with pytest.raises(DiscError, match=r"does not fit this run's options|invalid policy"):
            resume(path, LONGER)
    array = arrays["best/normalizer/moments_mean"]
    storage.write_tensors(newest, {**arrays, "best/normalizer/moments_mean": array[:2]}, info)
    with pytest.raises(DiscError, match="does not fit this run's options"):
        resume(path, LONGER)


# Early ends


@pytest.mark.parametrize(
    ("limits", "step", "reason"),
    [
        ({"stop_at": 1.0}, 1024, r"its evaluation of 1\.\d+ reached 1"),
        ({"patience": 1}, 1536, "the last evaluation was not better than that at step 1,024"),
        ({"patience": 2, "stop_at": 3.0}, 2048, "the last 2 evaluations were not better"),
    ],
)
def test_limits_end_a_run_early(
    limits: dict[str, Any], step: int, reason: str, longer: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    agent = learn(path, LONGER, **limits)
    assert agent.state.step == step
    assert (ended(path)["step"], ended(path)["early"]) == (step, True)
    with pytest.raises(DiscError, match=f"is finished: .*{step:,}, because .*{reason}"):
        resume(path)
    with pytest.raises(DiscError, match="is finished"):
        resume(path, LONGER)
    turned_off = {name: {"stop_at": math.inf, "patience": 0}[name] for name in limits}
    resume(path, **turned_off)
    assert differences(longer, path) == []


def test_more_steps_continue_a_stopped_run_and_limits_count_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    learn(path, 1536, patience=1, eval_every=256)
    first = ended(path)["step"]
    kill_after(monkeypatch, log.ProgressFile, "append", 1)
    with pytest.raises(Killed):
        resume(path, 4096)
    monkeypatch.undo()
    resume(path)
    assert ended(path)["early"]
    assert ended(path)["step"] == first + 256  # one more evaluation that is not better


def test_killed_run_with_a_limit_ends_at_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, path = tmp_path / "whole", tmp_path / "run"
    learn(whole, stop_at=1.0)
    kill_after(monkeypatch, checkpoint, "save", 2)  # the one at the early end
    with pytest.raises(Killed):
        learn(path, stop_at=1.0)
    monkeypatch.undo()
    resume(path)
    assert differences(whole, path) == []
    assert ended(path) == ended(whole)


def test_run_without_evaluations_has_no_best(tmp_path: Path) -> None:
    with AGENTS["ppo"](WIDE, **OPTIONS) as agent:
        agent.learn(256, out=tmp_path / "run", eval_every=0, progress=False)
        assert not (tmp_path / "run/best.disc").exists()
        assert "best" not in ended(tmp_path / "run")
        with pytest.raises(DiscError, match=r"has no best\.disc yet"):
            disc.load(tmp_path / "run", best=True)
        for limit in ({"stop_at": 3.0}, {"patience": 1}):
            with pytest.raises(DiscError, match="which eval_every 0 turns off"):
                agent.learn(256, out=tmp_path / "no", eval_every=0, **limit)
        with pytest.raises(DiscError, match="one of mean, lower"):
            agent.learn(256, out=tmp_path / "no", best="median")  # type: ignore[arg-type]
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"ended": 3},
        {"ended": {"step": 0, "early": False, "reason": ""}},
        {"ended": {"step": 5, "early": 1, "reason": ""}},
        {"ended": {"step": 5, "early": True, "reason": "", "best": {"step": 5}}},
        {"plan": {**PLAN, "steps": 5, "stop_at": "3"}},
        {"plan": {**PLAN, "steps": 5, "patience": 10**400}},
    ],
)
def test_damaged_end_or_limit_in_a_config_raises(
    damage: dict[str, Any], whole: Path, tmp_path: Path
) -> None:
    config = json.loads((whole / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **damage}))
    with pytest.raises(DiscError, match="damaged"):
        read_config(tmp_path)


# The command line


def test_commands_show_and_use_the_best(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ended(whole)["best"]["reevaluated"]
    main.main(["info", str(whole)])
    text = " ".join(capsys.readouterr().out.split())
    assert "finished at step 1,792: all 1,792 steps are done" in text
    wanted = f"{found['return']:,.1f} ± {found['return_std']:,.1f} in 2 other episodes"
    assert f"best (re-evaluated) {wanted}" in text
    assert "last evaluation" in text
    outputs = []
    for words in ([str(whole), "--best"], [str(whole / "best.disc")]):
        main.main(["eval", *words, "--episodes", "2", "--env", WIDE])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_agent_starts_from_the_best_policy_file(whole: Path) -> None:
    with AGENTS["ppo"].load(whole / "best.disc", env=WIDE) as agent:
        observation = np.ones((2, 3))
        wanted = disc.load(whole, best=True).predict(observation)[0]
        np.testing.assert_allclose(agent.predict(observation)[0], wanted, rtol=1e-6)
    with pytest.raises(DiscError, match="a policy of ppo"):
        DISC.load(whole / "best.disc", env=WIDE)
