"""Other libraries, in a separate virtual environment (as they need torch).

`python benchmarks/peers.py '{"library": "sb3", "env": …, "cores": 1, "steps": 30000}'` prints
steps per second of PPO, or of `"algorithm": "sac"` or `"td3"`. With `"csv": FILE` returns by step
are written there, for comparison with our learning curves. With `"eval_every": 10000` they are
evaluated as ours, in ten episodes without exploration; otherwise they are training returns.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from typing import Any

HORIZON = 2048  # of PPO


def make(task: dict[str, Any]) -> Any:
    """A peer's agent with our settings."""
    import gymnasium as gym
    import numpy as np
    import sbx
    import stable_baselines3 as sb3
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    library = sb3 if task["library"] == "sb3" else sbx
    seed = task.get("seed", 0)
    env = DummyVecEnv([lambda: Monitor(gym.make(task["env"]))])
    algorithm = task.get("algorithm", "ppo")
    if algorithm == "ppo":
        return library.PPO(
            "MlpPolicy",
            VecNormalize(env),
            n_steps=HORIZON,
            batch_size=64,
            n_epochs=10,
            policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
            seed=seed,
        )
    shared = {
        "gamma": 0.99,
        "tau": 0.005,
        "buffer_size": 1_000_000,
        "learning_starts": task.get("random_steps", 10_000),
        "train_freq": 1,
        "gradient_steps": 1,
        "seed": seed,
    }
    if algorithm == "sac":
        widths = {"net_arch": [256, 256]}
        return library.SAC(
            "MlpPolicy", env, learning_rate=3e-4, batch_size=256, policy_kwargs=widths, **shared
        )
    dimensions = env.action_space.shape
    return library.TD3(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        batch_size=100,
        policy_kwargs={"net_arch": [400, 300]},
        action_noise=NormalActionNoise(np.zeros(dimensions), np.full(dimensions, 0.1)),
        **shared,
    )


def main() -> None:
    """Train a peer and print its speed."""
    task = json.loads(sys.argv[1])
    import torch

    torch.set_num_threads(task["cores"])
    import gymnasium as gym
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    every = task.get("eval_every", 0)
    eval_env = Monitor(gym.make(task["env"]))

    class Watch(BaseCallback):  # type: ignore[misc]
        """Records the start time of each rollout, to time whole iterations, and the returns."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[tuple[int, float]] = []
            self.returns: list[tuple[int, float]] = []

        def _on_rollout_start(self) -> None:
            self.times.append((self.num_timesteps, time.perf_counter()))
            last = [episode["r"] for episode in self.model.ep_info_buffer][-2:]
            if last and not every:
                self.returns.append((self.num_timesteps, sum(last) / len(last)))

        def _on_step(self) -> bool:
            if every and self.num_timesteps % every == 0:
                found, _ = evaluate_policy(self.model, eval_env, n_eval_episodes=10)
                self.returns.append((self.num_timesteps, float(found)))
            return True

    watch = Watch()
    make(task).learn(task["steps"], callback=watch)
    begin = next(i for i, (step, _) in enumerate(watch.times) if step >= task.get("warm_up", 0))
    (first, start), (last, end) = watch.times[begin], watch.times[-1]
    if "csv" in task:
        with open(task["csv"], "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", "eval/return" if every else "train/return"])
            writer.writerows((step, round(value, 2)) for step, value in watch.returns)
    sys.stdout.write(json.dumps({"steps_per_second": (last - first) / (end - start)}) + "\n")


if __name__ == "__main__":
    main()
