"""Options that make every algorithm fast, and short runs, for faults with many trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from disc.run.agents import AGENTS

ENOUGH = {"horizon": 64, "widths": (8, 8)}
BATCHES: dict[str, Any] = {**ENOUGH, "gradient_steps": 4, "epochs": 1}
ROUNDS: dict[str, Any] = {
    **ENOUGH,
    "steps_per_update": 16,
    "updates_per_step": 0.125,
    "random_steps": 48,
    "replay_size": 256,
    "batch_size": 8,
}
CHUNKS = {"chunk_length": 8, "path_length": 4, "batch_chunks": 4, "replay_chunks": 40}
OPTIONS: dict[str, dict[str, Any]] = {
    "disc": {**BATCHES, "replay_length": 4},
    "ppo": BATCHES,
    "ppo-amber": {**BATCHES, "replay_length": 4},
    "trpo": {**ENOUGH, "value_epochs": 1, "value_minibatch": 16},
    "acktr": {**ENOUGH, "value_steps": 2},
    "trust-pcl": {**ENOUGH, **CHUNKS},
    "ddpg": ROUNDS,
    "td3": ROUNDS,
    "sac": ROUNDS,
    "sql": ROUNDS,
}
"""By algorithm."""
FAMILIES = ("disc", "sac")
"""An algorithm that learns from whole batches, and one that learns step by step."""
PLAN: dict[str, Any] = {
    "checkpoint_every": 256,
    "eval_every": 512,
    "eval_episodes": 1,
    "progress": False,
}
STEPS = 1024


def cli_args(options: dict[str, Any]) -> list[str]:
    """Options for the command line."""
    found = []
    for name, value in options.items():
        several = value if isinstance(value, tuple) else (value,)
        found += [f"--{name.replace('_', '-')}", *map(str, several)]
    return found


def train(family: str, out: Path, **more: Any) -> None:
    """Train in a run directory; `more` is passed to `learn`."""
    options = {**OPTIONS[family], "horizon": 128}
    with AGENTS[family]("Hopper-v5", threads=1, **options) as agent:
        agent.learn(STEPS, out=out, **PLAN, **more)


def smallest(family: str, out: Path) -> Path:
    """A small checkpoint."""
    options: dict[str, Any] = {"disc": {"gradient_steps": 1}, "sac": {"random_steps": 0}}[family]
    with AGENTS[family]("Pendulum-v1", threads=1, horizon=4, widths=(2,), **options) as agent:
        agent.learn(8, out=out, progress=False, eval_every=0, checkpoint_every=4)
    return max((out / "checkpoints").iterdir())


def stopped(family: str, out: Path) -> Path:
    """A run that was stopped between two checkpoints, and has saved two."""
    train(family, out, callbacks=[lambda agent, row: row["step"] < 0.75 * STEPS])
    return out
