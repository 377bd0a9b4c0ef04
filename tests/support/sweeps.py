"""Synthetic run directories with any curve, and their reports."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from disc import report
from disc.algos import ALGORITHMS
from disc.envs.factory import Maker
from disc.learning.config import make_config
from disc.report import markup
from disc.study.spec import Arm, Cell, Experiment, Figure

DISC, PPO, SAC = Arm("DISC", "disc"), Arm("PPO", "ppo"), Arm("SAC", "sac")
VERSIONS = {"disc-rl": "0.2.0", "python": "3.11.7", "gymnasium": "1.2.0", "mujoco": "3.3.1"}

Curve = Callable[[np.ndarray], np.ndarray]


def experiment(**changes: Any) -> Experiment:
    """A small experiment: two arms on two tasks with the paper's numbers, 100,000 steps."""
    given: dict[str, Any] = {
        "name": "small",
        "title": "A small experiment",
        "arms": (DISC, PPO),
        "tasks": ("hopper", "walker2d"),
        "seeds": (0, 1, 2, 3, 4),
        "figures": (Figure("Learning curves"),),
        "paper": {"DISC": {"hopper": [3570.0, 200.0], "walker2d": [4770.0, 100.0]}},
        **changes,
    }
    steps = given.pop("steps", 100_000)
    given["steps"] = given["anneal_steps"] = dict.fromkeys(given["tasks"], steps)
    given.setdefault("eval_every", dict.fromkeys(given["tasks"], 4_000))
    return Experiment(**given)


def small(**changes: Any) -> Experiment:
    """One task, two seeds."""
    return experiment(**{"tasks": ("hopper",), "seeds": (0, 1), **changes})


def write(root: Path, found: Experiment) -> Path:
    """Write the experiment's file into a directory."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{found.name}.json"
    path.write_text(found.as_json(), encoding="utf-8")
    return path


def run(
    root: Path,
    cell: Cell,
    curve: float | Curve = 1000.0,
    done: int | None = None,
    metrics: Sequence[str] = (),
    **changes: Any,
) -> Path:
    """Write a run directory.

    Args:
        root: directory of all runs.
        cell: the run.
        curve: its evaluated return, as a number or a function of the share of steps.
        done: its number of steps, if not all.
        metrics: more columns, each equal to `curve`.
        changes: to its `config.json`.
    """
    path = root / cell.path
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({**config(cell), **changes}), encoding="utf-8")
    steps = cell.eval_every * np.arange(1, -(-cell.steps // cell.eval_every) + 1)
    steps = steps[steps <= (done or cell.steps + cell.eval_every)]
    values = curve(steps / cell.steps) if callable(curve) else np.full(len(steps), curve)
    lines = [",".join(["step", "time/elapsed", "eval/return", *metrics])]
    for step, value in zip(steps.tolist(), values.tolist(), strict=True):
        lines.append(",".join(map(str, [step, step / 1000, *[value] * (1 + len(metrics))])))
    (path / "progress.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def config(cell: Cell) -> dict[str, Any]:
    """The `config.json` that `disc train` would write."""
    name = Maker(cell.task).name
    options = make_config(ALGORITHMS[cell.arm.algorithm], cell.options)
    return {
        "algorithm": cell.arm.algorithm,
        "env": name,
        "env_name": name,
        "env_kwargs": cell.arm.env_kwargs,
        "seed": cell.seed,
        "num_envs": cell.arm.num_envs,
        "threads": 1,
        "plan": {
            "steps": cell.steps,
            "eval_every": cell.eval_every,
            "eval_episodes": cell.eval_episodes,
            "checkpoint_every": cell.checkpoint_every,
        },
        "config": dataclasses.asdict(options.for_task(name).for_steps(cell.anneal_steps)),
        "versions": VERSIONS,
        "commit": "0123456789ab",
        "machine": {"system": "Linux x86_64", "processor": "Some CPU", "cores": 2, "device": "cpu"},
        "command": ["disc", *cell.command(Path("runs/small"))],
    }


def sweep(root: Path, found: Experiment, curve: float | Curve = 1000.0) -> Path:
    """Write all runs of an experiment, shifted by 10 per seed, and its file."""
    write(root, found)
    for cell in found.cells():
        run(root, cell, _shifted(curve, 10.0 * cell.seed))
    return root


def _shifted(curve: float | Curve, by: float) -> float | Curve:
    return (lambda share: curve(share) + by) if callable(curve) else curve + by


class Page(HTMLParser):
    """The elements of a page, their attributes and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in markup.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def written(root: Path) -> Page:
    """The report on a directory, read back."""
    path = report.write(root)
    assert path == root / "report.html"
    return Page(path.read_text(encoding="utf-8"))
