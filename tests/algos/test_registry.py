"""Algorithms of other packages: registered by an entry point, then used like our own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from disc import DiscError
from disc.algos import ALGORITHMS, Registry, ppo, sac

WHEEL = {
    "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n",
    "entry_points.txt": "[disc.algorithms]\ntheirs = theirs\nbroken = theirs:missing\n",
    "RECORD": "",
}
MODULE = '''"""PPO with a bonus for entropy."""

from dataclasses import dataclass

from disc.algos import ppo
from disc.algos.ppo import State, act, explore, init, observe
from disc.learning import actor_critic

NAME, AGENT = "theirs", "Theirs"


@dataclass(frozen=True)
class Config(ppo.Config):
    """Options of theirs."""

    bonus: float = 0.01
    """Factor of the entropy."""


def update(config, state, threads):
    return actor_critic.improve(config, state, threads, ppo.estimate, policy_loss)


def policy_loss(config, policy, rows, coefficients):
    parts = ppo.policy_loss(config, policy, rows, coefficients)
    return parts._replace(penalty=-config.bonus * policy.log_std.sum())
'''
USE = """
import sys
from pathlib import Path
import disc
from disc.cli.main import main
from disc.run.agent import AGENTS

small = "--threads 1 --horizon 256 --gradient-steps 4 --epochs 2 --widths 8 --eval-episodes 1"
for seed in ("0", "1"):
    main(["train", "Pendulum-v1", "--algo", "theirs", "--bonus", "0.1", "--steps", "512",
          "--anneal-steps", "1024", "--seed", seed, "--out", f"runs/{seed}", *small.split()])
main(["resume", "runs/0", "--steps", "1024"])
main(["train", "Pendulum-v1", "--algo", "theirs", "--bonus", "0.1", "--steps", "1024",
      "--anneal-steps", "1024", "--out", "whole", *small.split()])
resumed, whole = disc.load("runs/0"), disc.load("whole")
assert all((a == b).all() for a, b in zip(resumed.weights, whole.weights))
assert AGENTS["theirs"].load("whole").config.bonus == 0.1
assert disc.Theirs is AGENTS["theirs"]
main(["list"])
main(["report", "runs"])
assert "theirs" in Path("runs/report.html").read_text()
"""


def test_entry_point_adds_an_algorithm_to_every_command(tmp_path: Path) -> None:
    site, wheel = tmp_path / "site", tmp_path / "theirs-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("theirs.py", MODULE)
        for name, text in WHEEL.items():
            archive.writestr(f"theirs-1.0.dist-info/{name}", text)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--quiet"]
    subprocess.run([*pip, "--target", str(site), str(wheel)], check=True)
    path = [str(site), str(Path(__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path}\n{USE}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "PPO with a bonus for entropy." in done.stdout
    assert "broken" in done.stderr  # a warning, and the others still work


def test_register_names_missing_parts() -> None:
    with pytest.raises(DiscError, match="lacks explore, observe, update, act"):
        Registry().register(SimpleNamespace(NAME="x", Config=ppo.Config, init=ppo.init))  # type: ignore[arg-type]


def test_two_algorithms_cannot_share_a_name() -> None:
    registry = Registry(ppo)
    registry.register(ppo)
    with pytest.raises(DiscError, match="'ppo' is already in use"):
        registry.register(SimpleNamespace(**{**vars(sac), "NAME": "ppo"}))  # type: ignore[arg-type]


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(DiscError, match="no algorithm 'pppo'; choose from disc, ppo, "):
        ALGORITHMS["pppo"]
