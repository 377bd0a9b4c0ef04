"""What users would run instead, in a virtual environment of its own (not ours: it has torch).

`python peers.py '{"library": "sb3", "env": …, "cores": 1, "iterations": 10}'`
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    """Train a peer's PPO with our settings and print its steps per second."""
    task = json.loads(sys.argv[1])
    import torch

    torch.set_num_threads(task["cores"])
    if task["library"] == "sb3":
        from stable_baselines3 import PPO
    else:
        from sbx import PPO
    network: Any = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    import gymnasium as gym
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    class Clock(BaseCallback):  # type: ignore[misc]
        """Notes when each rollout begins: iterations in between are whole."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def _on_rollout_start(self) -> None:
            self.times.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

    env = VecNormalize(DummyVecEnv([lambda: gym.make(task["env"])]))
    model = PPO(
        "MlpPolicy", env, n_steps=2048, batch_size=64, n_epochs=10, policy_kwargs=network, seed=0
    )
    clock = Clock()
    warm_up = 2
    model.learn((task["iterations"] + warm_up + 1) * 2048, callback=clock)
    seconds = clock.times[-1] - clock.times[warm_up]
    steps = 2048 * (len(clock.times) - 1 - warm_up)
    sys.stdout.write(json.dumps({"steps_per_second": steps / seconds}) + "\n")


if __name__ == "__main__":
    main()
