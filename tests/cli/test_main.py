"""The command line."""

from __future__ import annotations

import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from disc.cli import train
from disc.run import log, terminal
from tests.support import environments
from tests.support.command import run

SMALL = "--horizon 256 --gradient-steps 4 --epochs 2 --widths 16 16 --threads 1"
PLAN = "--steps 1_000 --eval-every 512 --eval-episodes 2 --checkpoint-every 512"
OPTIONS = SMALL.split()


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "hopper"
    assert run("train", "hopper", *OPTIONS, *PLAN.split(), "--seed", "3", "--out", path) == 0
    return path


def test_train_writes_a_complete_run_directory(hopper: Path) -> None:
    assert sorted(path.name for path in hopper.iterdir()) == [
        "best.disc", "checkpoints", "config.json", "curve.png", "events", "policy.disc",
        "progress.csv", "weights.png",
    ]  # fmt: skip
    config = json.loads((hopper / "config.json").read_text())
    assert (config["algorithm"], config["env"], config["seed"]) == ("disc", "Hopper-v5", 3)
    assert config["config"]["horizon"] == 256
    assert config["config"]["anneal_steps"] == 1000
    assert {"python", "jax", "gymnasium", "mujoco"} <= set(config["versions"])
    assert "processor" in config["machine"]
    header = (hopper / "progress.csv").read_text().splitlines()[0].split(",")
    assert header[:2] == ["step", "time/elapsed"]
    rows = log.read_progress(hopper / "progress.csv")
    assert [row["step"] for row in rows] == [256, 512, 768, 1024]
    assert ["eval/return" in row for row in rows] == [False, True, False, True]
    assert len(list((hopper / "events").iterdir())) == 1
    with Image.open(hopper / "curve.png") as image:
        assert image.size[0] > 500


def test_eval_agrees_for_run_directory_and_policy_file(
    hopper: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("eval", hopper, "--episodes", "3") == 0
    said = capsys.readouterr().out
    assert "Hopper-v5, 3 episodes, deterministic actions:" in said
    assert said.count("episode ") == 3
    assert run("eval", hopper / "policy.disc", "--episodes", "3") == 0
    assert capsys.readouterr().out == said
    assert run("eval", hopper, "--episodes", "3", "--stochastic") == 0
    assert capsys.readouterr().out != said


def test_info_and_list_show_the_main_facts(
    hopper: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("info", hopper / "policy.disc") == 0
    said = capsys.readouterr().out
    for word in ("disc policy for Hopper-v5", "11 → 16 → 16 → 3", "seed 3", "mujoco", "± "):
        assert word in said
    assert run("list") == 0
    said = capsys.readouterr().out
    for word in ("ppo-amber", "bipedal-walker-hardcore", "HumanoidStandup-v5", "348"):
        assert word in said


def test_watch_and_plot_write_their_files(hopper: Path, tmp_path: Path) -> None:
    assert run("watch", hopper, "--seconds", "0.3", "--out", tmp_path / "a.gif") == 0
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames > 2
    assert run("plot", hopper, hopper, "--out", tmp_path / "a.svg") == 0
    assert run("plot", hopper, "--metric", "is/batches", "--out", tmp_path / "b.png") == 0
    assert run("plot", hopper, "--diagnostics", "--out", tmp_path / "c.svg") == 0
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_progress_is_plain_lines_without_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [
        "train",
        "tests.support.environments:wide",
        "--algo",
        "ppo",
        *OPTIONS,
        "--steps",
        "300",
    ]
    assert run(*words, "--eval-every", "0", "--out", tmp_path / "r") == 0
    said = capfd.readouterr()
    assert "ppo on tests.support.environments:wide: 512/300 steps" in said.err
    assert "\r" not in said.err
    assert "512 steps in" in said.out


def test_default_run_directories_are_distinct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "_finish", lambda *_: None)
    for _ in range(2):
        assert run("train", "Pendulum-v1", *OPTIONS, "--steps", "256") == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ["Pendulum-v1_disc_seed0", "Pendulum-v1_disc_seed0_2"]


def test_impossible_video_raises_before_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [
        "train",
        "tests.support.environments:wide",
        *OPTIONS,
        "--video",
        "--out",
        tmp_path / "r",
    ]
    assert run(*words) == 2
    assert "rgb_array" in capfd.readouterr().err
    assert not (tmp_path / "r").exists()


def test_paper_tool_writes_table_and_figures(
    hopper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("disc_seed3", "disc_seed4"):
        (tmp_path / "hopper" / name).mkdir(parents=True)
        for file in ("config.json", "progress.csv"):
            (tmp_path / "hopper" / name / file).write_bytes((hopper / file).read_bytes())
    monkeypatch.setattr("sys.argv", ["tools.paper", str(tmp_path)])
    runpy.run_module("tools.paper", run_name="__main__")
    assert "| Hopper-v5 | DISC | 1,024 | 3, 3 |" in (tmp_path / "table.md").read_text()
    with Image.open(tmp_path / "vanishing.png") as image:
        assert image.size[0] > 900


def test_paper_tool_draws_off_policy_runs_separately(
    hopper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads((hopper / "config.json").read_text())
    for name in ("ppo", "disc", "td3", "sac"):
        run_directory = tmp_path / "hopper" / f"{name}_seed0"
        run_directory.mkdir(parents=True)
        (run_directory / "config.json").write_text(json.dumps({**config, "algorithm": name}))
        (run_directory / "progress.csv").write_text(
            "step,eval/return\n50000,10\n99000,20\n200000,40\n"
        )
    peers = tmp_path / "checks/hopper"
    peers.mkdir(parents=True)
    (peers / "sbx_sac_seed0.csv").write_text("step,eval/return\n50000,10\n100000,20\n")
    monkeypatch.setattr("tools.figures.vanishing", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["tools.paper", str(tmp_path)])
    runpy.run_module("tools.paper", run_name="__main__")
    row = "| Hopper-v5 | SAC | 1 | 10 | 20 | 40 | – | – |"
    assert row in (tmp_path / "reached.md").read_text()
    for name in ("Hopper-v5.png", "Hopper-v5-off-policy.png"):
        with Image.open(tmp_path / name) as image:
            assert image.size[0] > 500


def test_replay_size_is_reported_and_limited_by_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "hopper", "--algo", "sac", "--widths", "8", "--random-steps", "100"]
    words += ["--horizon", "100", "--steps", "200", "--eval-every", "0", "--out"]
    assert run(*words, tmp_path / "large", "--replay-size", "1_000_000_000_000") == 2
    said = capsys.readouterr().err
    assert "a replay of 1,000,000,000,000 steps takes 106,000.0 GB, and this machine has" in said
    assert "lower replay_size" in said
    assert not (tmp_path / "large").exists()
    assert run(*words, tmp_path / "small", "--replay-size", "1_000_000") == 0
    assert "The replay takes 106 MB of memory." in capsys.readouterr().err


def test_environment_keyword_arguments_are_recorded(tmp_path: Path) -> None:
    words = [
        "train",
        "tests.support.environments:bad",
        "--env-kwargs",
        "at",
        "99999",
        "fault",
        "raise",
    ]
    assert run(*words, *OPTIONS, "--steps", "256", "--out", tmp_path / "r") == 0
    assert json.loads((tmp_path / "r/config.json").read_text())["env_kwargs"]["at"] == 99_999


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train Hoper-v5", "no such environment"),
        ("train CartPole-v1 --algo sac", "discrete actions, but sac needs continuous"),
        ("train hopper --steps -5", "steps must be"),
        ("train hopper --steps many", "many"),
        ("train hopper --eval-every -1", "eval_every must be"),
        ("train hopper --eval-every 0 --stop-at 3000", "which eval_every 0 turns off"),
        ("train hopper --eval-every 0 --patience 3", "which eval_every 0 turns off"),
        ("train hopper --patience -1", "patience must be"),
        ("train hopper --stop-at nan", "stop_at must be a finite number"),
        ("train hopper --best lower --eval-episodes 1", "at least two eval_episodes"),
        ("train hopper --epsilon 1.0", "epsilon must be"),
        ("train hopper --horizon 1000", "horizon must be divisible"),
        ("train hopper --num-envs 3", "num_envs must divide"),
        ("train hopper --threads 0", "threads must be"),
        ("train hopper --algo ppo --epsilon-b 0.1", "epsilon-b"),
        ("train hopper --algo pppo", "pppo"),
        ("train hopper --out taken", "already exists"),
        ("train hopper --out taken/file/run", "not a writable folder"),
        ("resume nowhere", "not a run directory"),
        ("eval nowhere.disc", "no such file"),
        ("eval taken/file", "not a disc-policy file"),
        ("eval taken --best", "has no best.disc yet"),
        ("eval taken/file --best", "is not a run directory"),
        ("watch nowhere", "no such file"),
        ("info nowhere", "no such file"),
        ("plot nowhere", "can't be read"),
        ("plot taken/file", "can't be read"),
        ("train taken.file:make", "can't be imported"),
        ("eval taken --seed -1", "seed must be"),
        ("eval taken --episodes 10000000000000", "episodes must be"),
        ("watch taken --seed -1", "seed must be"),
        ("watch taken --seconds inf", "seconds must be"),
        ("plot", "nothing to plot"),
        ("train", "Missing from disc train"),
        ("fly hopper", "no command"),
    ],
)
def test_bad_input_is_reported_and_nothing_is_written(
    words: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("precious")
    assert run(*words.split()) == 2
    said = capfd.readouterr().err
    assert says in said
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "file"]


def test_unwritable_output_folder_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    """Not even root can create a folder there."""
    assert run("train", "hopper", "--out", "/proc/nowhere/run") == 2
    assert "/proc/nowhere/run: can't be" in capfd.readouterr().err


@pytest.mark.parametrize("fault", ["raise", "nan-observation", "inf-reward"])
def test_broken_environment_leaves_the_last_checkpoint(
    fault: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, environments.Bad.total = tmp_path / "run", 0
    words = ["train", "tests.support.environments:bad", "--env-kwargs", "fault", fault, "at", "300"]
    plan = ["--checkpoint-every", "256", "--eval-every", "0", "--steps", "5000", "--out", str(path)]
    assert run(*words, *OPTIONS, *plan, "--no-check") == 2
    said = capfd.readouterr().err
    assert "step 30" in said
    assert "Traceback" not in said
    assert [file.name for file in (path / "checkpoints").iterdir()] == [
        "step_000000000256.safetensors"
    ]
    assert run("eval", path, "--env", "tests.support.environments:wide") == 2


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--help") == 0
    said = capsys.readouterr().out
    for word in ("--epsilon-b", "--no-value-clip", "--anneal-steps", "paper, Table A.1"):
        assert word in said
    assert run("--help") == 0
    assert run("--version") == 0


def test_progress_bar_shows_the_last_step() -> None:
    from rich.console import Console

    console = Console(force_terminal=True, width=120, file=io.StringIO(), record=True)
    reporter = terminal.Reporter("disc on x", 100, console=console)
    row: dict[str, Any] = {"train/return": 12.5}
    reporter.update(10, row)
    reporter.update(100, row)
    reporter.close()
    assert "100/100 steps" in console.export_text()
