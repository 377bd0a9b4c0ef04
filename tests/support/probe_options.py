"""Options with which each algorithm learns the probe environments quickly."""

from __future__ import annotations

from typing import Any

GAMMA = 0.8  # the same in all tests, as a program is compiled for each value
PPO = {
    "horizon": 512,
    "gradient_steps": 8,
    "learning_rate": 1e-3,
    "widths": (16, 16),
    "anneal_steps": 32_768,
}
OFF_POLICY: dict[str, Any] = {
    "horizon": 512,
    "steps_per_update": 32,
    "updates_per_step": 1.0,
    "random_steps": 256,
    "replay_size": 4096,
    "batch_size": 64,
    "widths": (32, 32),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "disc": PPO,
    "ppo": PPO,
    "ppo-amber": PPO,
    "trpo": {
        "horizon": 512,
        "max_kl": 0.05,
        "value_epochs": 10,
        "value_learning_rate": 3e-3,
        "widths": (32, 32),
    },
    "acktr": {
        "horizon": 512,
        "target_kl": 0.004,
        "kl_clip": 0.05,
        "value_learning_rate": 3e-3,
        "widths": (32, 32),
    },
    "trust-pcl": {
        "horizon": 512,
        "chunk_length": 8,
        "path_length": 4,
        "path_stride": 1,  # otherwise values are learned only where paths start
        "residual_clip": 10.0,  # a clipped residual gives values closer to the median
        "batch_chunks": 16,
        "replay_chunks": 256,
        "widths": (16, 16),
        "learning_rate": 3e-3,
        "divergence": 0.05,
    },
    "ddpg": {
        **OFF_POLICY,
        "policy_learning_rate": 1e-3,
        "value_learning_rate": 3e-3,
        "value_decay": 0.0,
    },
    "td3": {**OFF_POLICY, "learning_rate": 3e-3, "exploration": 0.3, "tau": 0.02},
    "sac": {**OFF_POLICY, "learning_rate": 3e-3, "tau": 0.02, "target_entropy": -3.0},
    "sql": {
        **OFF_POLICY,
        "batch_size": 32,
        "learning_rate": 3e-3,
        "target_interval": 50,
        "reward_scale": 100.0,
    },
}
