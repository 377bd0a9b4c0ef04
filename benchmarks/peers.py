"""What users would run instead, in a virtual environment of its own (not ours: it has torch).

`python benchmarks/peers.py '{"library": "sb3", "env": …, "cores": 1, "iterations": 10}'` prints
steps per second. With `"csv": FILE` the returns of training are written there, step by step: a
control for our own learning curves.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from typing import Any


def main() -> None:
    """Train a peer's PPO with our settings."""
    task = json.loads(sys.argv[1])
    import torch

    torch.set_num_threads(task["cores"])
    if task["library"] == "sb3":
        from stable_baselines3 import PPO
    else:
        from sbx import PPO
    import gymnasium as gym
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    class Clock(BaseCallback):  # type: ignore[misc]
        """Notes when each rollout begins, and the returns: iterations in between are whole."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []
            self.returns: list[tuple[int, float]] = []

        def _on_rollout_start(self) -> None:
            self.times.append(time.perf_counter())
            last = [episode["r"] for episode in self.model.ep_info_buffer][-2:]
            if last:
                self.returns.append((self.num_timesteps, sum(last) / len(last)))

        def _on_step(self) -> bool:
            return True

    env = VecNormalize(DummyVecEnv([lambda: Monitor(gym.make(task["env"]))]))
    network: Any = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=2048,
        batch_size=64,
        n_epochs=10,
        policy_kwargs=network,
        seed=task.get("seed", 0),
    )
    clock = Clock()
    warm_up = 2
    model.learn((task["iterations"] + warm_up + 1) * 2048, callback=clock)
    seconds = clock.times[-1] - clock.times[warm_up]
    steps = 2048 * (len(clock.times) - 1 - warm_up)
    if "csv" in task:
        with open(task["csv"], "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", "train/return"])
            writer.writerows((step, round(value, 2)) for step, value in clock.returns)
    sys.stdout.write(json.dumps({"steps_per_second": steps / seconds}) + "\n")


if __name__ == "__main__":
    main()
