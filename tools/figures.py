"""Figures in the style of the paper, from directories of runs: `results/TASK/ALGORITHM_seedN/`."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from disc.envs.tasks import TASKS
from disc.report.plots import COLORS, column, dress, panels, save, shade
from disc.run import log
from disc.study import statistics
from disc.study.statistics import Curve
from disc.types import DiscError

LABELS = {
    "disc": "DISC",
    "ppo": "PPO",
    "ppo-amber": "PPO-AMBER",
    "trpo": "TRPO",
    "acktr": "ACKTR",
    "trust-pcl": "Trust-PCL",
    "ddpg": "DDPG",
    "td3": "TD3",
    "sac": "SAC",
    "sql": "SQL",
}
OFF_POLICY = ("ddpg", "td3", "sac", "sql")
"""Plotted separately: their runs are short, as they need fewer steps but more time per step."""


class Run(NamedTuple):
    """One run: its config and its record."""

    config: dict[str, Any]
    rows: list[log.Row]


Runs = dict[str, list[Run]]  # by algorithm


def load(directory: Path) -> dict[str, Runs]:
    """All runs below a directory, by environment and algorithm."""
    runs: dict[str, Runs] = defaultdict(lambda: defaultdict(list))
    for path in sorted(directory.glob("*/*/progress.csv")):
        config = json.loads((path.parent / "config.json").read_text(encoding="utf-8"))
        runs[config["env_name"]][config["algorithm"]].append(Run(config, log.read_progress(path)))
    if not runs:
        raise DiscError(f"{directory}: contains no runs (TASK/RUN/progress.csv).")
    return runs


def load_peers(directory: Path) -> dict[str, Runs]:
    """Runs of SBX, `TASK/sbx_ALGORITHM_seedN.csv`, by environment and algorithm."""
    peers: dict[str, Runs] = defaultdict(lambda: defaultdict(list))
    for path in sorted(directory.glob("*/sbx_*_seed*.csv")):
        algorithm = path.stem.split("_")[1]
        env = TASKS[path.parent.name].id
        peers[env][algorithm].append(Run({}, log.read_progress(path)))
    return peers


def learning_curves(runs: Runs, env: str, out: Path, peers: Runs | None = None) -> None:
    """Evaluated returns of some algorithms on one task: mean and one standard deviation.

    Args:
        runs: by algorithm.
        env: the task's name.
        out: a .png or .svg file.
        peers: another library's runs, by algorithm, plotted dashed.
    """
    figure, (axes,) = panels(1, 7.0)
    peers = peers or {}
    for algorithm, color in zip(LABELS, COLORS, strict=True):
        if algorithm in runs:
            _draw(axes, runs[algorithm], "eval/return", color, LABELS[algorithm])
        if algorithm in peers:
            label = f"SBX's {LABELS[algorithm]}"
            _draw(axes, peers[algorithm], "eval/return", color, label, "--")
    dress(axes, env, "evaluated return")
    save(figure, out)


def vanishing(runs: dict[str, Runs], out: Path) -> None:
    """The paper's Fig. 1, for PPO and DISC: mean ρ' and the share of vanished gradients."""
    figure, (left, right) = panels(2, 9.5)
    shown = [env for env in sorted(runs) if {"ppo", "disc"} & runs[env].keys()]
    styles = dict(zip(shown, ("-", "--", ":", "-."), strict=False))
    for env, style in styles.items():
        for algorithm, color in (("ppo", COLORS[1]), ("disc", COLORS[0])):
            if algorithm in runs[env]:
                label = f"{LABELS[algorithm]}, {env}"
                some = runs[env][algorithm]
                _draw(left, some, "is/rho_last", color, label, style, window=10)
                _draw(right, some, "is/vanished", color, label, style, window=10)
    left.axhline(1.2, color="black", linewidth=0.8)
    dress(left, "Mean ρ'_t = 1 + |ρ_t − 1|, last epoch (black: PPO's clip)", "ρ'")
    dress(right, "Samples without a gradient, last epoch", "share")
    save(figure, out)


def _draw(
    axes: Any, runs: list[Run], name: str, color: str, label: str, style: str = "-", window: int = 1
) -> None:
    seeds = f" ({len(runs)} seed{'s' if len(runs) > 1 else ''})"
    curves = [column(run.rows, name) for run in runs]
    draw_mean(axes, curves, window, color=color, label=label + seeds, linestyle=style)


def draw_mean(axes: Any, curves: list[Curve], window: int, **style: Any) -> None:
    """Plot the mean over runs and, if there are several, one standard deviation."""
    steps, mean, spread = statistics.across(curves, window)
    axes.plot(steps, mean, **style)
    if len(curves) > 1:
        shade(axes, steps, mean, spread, style["color"])


MILESTONES = (50_000, 100_000, 200_000, 500_000, 1_000_000)


def reached(runs: dict[str, Runs]) -> str:
    """Mean evaluated return at milestones, as Markdown; one row per environment and algorithm.

    Uses the evaluation nearest to each milestone, if within 5 % of it.
    """
    names = " | ".join(f"{step:,}" for step in MILESTONES)
    lines = [
        f"| environment | algorithm | seeds | {names} |",
        "|---|---|---:|" + "---:|" * len(MILESTONES),
    ]
    for env in sorted(runs):
        for algorithm in (name for name in LABELS if name in runs[env]):
            some, cells = runs[env][algorithm], []
            for milestone in MILESTONES:
                found = [_nearest(run, milestone) for run in some]
                known = [value for value in found if value is not None]
                complete = len(known) == len(some)
                cells.append(f"{np.mean(known):,.0f}" if complete else "–")
            row = " | ".join(cells)
            lines.append(f"| {env} | {LABELS[algorithm]} | {len(some)} | {row} |")
    return "\n".join(lines) + "\n"


def _evaluations(run: Run) -> Curve:
    return column(run.rows, "eval/return")


def _nearest(run: Run, milestone: int) -> float | None:
    """The evaluation nearest to a step, or None if it is too far."""
    steps, values = _evaluations(run)
    if not len(steps):
        return None
    nearest = int(np.argmin(np.abs(steps - milestone)))
    return float(values[nearest]) if abs(steps[nearest] - milestone) <= milestone / 20 else None


def table(runs: dict[str, Runs]) -> str:
    """Final evaluation of every run, as Markdown; one row per environment and algorithm."""
    lines = [
        "| environment | algorithm | steps | seeds | last evaluation, each seed | mean |",
        "|---|---|---:|---|---|---:|",
    ]
    for env in sorted(runs):
        for algorithm in sorted(runs[env]):
            some = [run for run in runs[env][algorithm] if len(_evaluations(run)[1])]
            finals = [_evaluations(run)[1][-1] for run in some]
            if not some:
                continue
            seeds = ", ".join(str(run.config["seed"]) for run in some)
            each = ", ".join(f"{value:,.0f}" for value in finals)
            steps = some[0].rows[-1]["step"]
            name = LABELS.get(algorithm, algorithm)
            lines.append(
                f"| {env} | {name} | {steps:,} | {seeds} | {each} | {np.mean(finals):,.0f} |"
            )
    return "\n".join(lines) + "\n"
