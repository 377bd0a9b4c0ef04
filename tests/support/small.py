"""Fast agents: 256 steps per iteration, small networks."""

from __future__ import annotations

from typing import Any

from disc import DISC
from disc.run.agent import Agent
from tests.support import environments as probes

QUIET: dict[str, Any] = {"eval_every": 0, "progress": False}

OFF_POLICY: dict[str, Any] = {
    "horizon": 256,
    "steps_per_update": 16,
    "updates_per_step": 0.5,
    "random_steps": 100,
    "replay_size": 700,
    "batch_size": 8,
    "widths": (16, 16),
}
PPO: dict[str, Any] = {"horizon": 256, "gradient_steps": 4, "epochs": 2, "widths": (16, 16)}
SMALL: dict[str, dict[str, Any]] = {
    "disc": PPO,
    "ppo": PPO,
    "ppo-amber": PPO,
    "trpo": {"horizon": 256, "value_epochs": 2, "widths": (16, 16)},
    "acktr": {"horizon": 256, "value_steps": 5, "widths": (16, 16)},
    "trust-pcl": {
        "horizon": 256,
        "chunk_length": 8,
        "path_length": 4,
        "batch_chunks": 4,
        "replay_chunks": 70,
        "widths": (16, 16),
    },
    "ddpg": OFF_POLICY,
    "td3": OFF_POLICY,
    "sac": OFF_POLICY,
    "sql": {**OFF_POLICY, "target_interval": 50},
}


def small(kind: type[Agent] = DISC, env: Any = probes.wide, **options: Any) -> Agent:
    return kind(env, **{**SMALL[kind.algorithm.NAME], **options})
