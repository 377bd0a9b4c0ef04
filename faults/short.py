"""Short runs of both families, for faults with many trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from disc.run.agent import AGENTS

PLAN: dict[str, Any] = {
    "checkpoint_every": 256,
    "eval_every": 512,
    "eval_episodes": 1,
    "progress": False,
}
STEPS = 1024
FAMILIES: dict[str, dict[str, Any]] = {
    "disc": {"horizon": 128, "gradient_steps": 4, "epochs": 2, "widths": (8, 8)},
    "sac": {
        "horizon": 64,
        "random_steps": 128,
        "replay_size": 400,
        "batch_size": 8,
        "widths": (8, 8),
    },
}


def train(family: str, out: Path, **more: Any) -> None:
    """Train in a run directory; `more` is passed to `learn`."""
    options = FAMILIES[family]
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
