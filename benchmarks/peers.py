"""Other libraries, in a separate virtual environment (as they need torch).

`python benchmarks/peers.py '{"library": "sb3", "env": …, "cores": 1, "steps": 30000}'` prints
steps per second of PPO, or of `"algorithm": "sac"` or `"td3"`. With `"csv": FILE` returns by step
are written there, for comparison with our learning curves. With `"eval_every": 10000` they are
evaluated as ours, in ten episodes without exploration; otherwise they are training returns.
"""

from __future__ import annotations

import copy
import csv
import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

HORIZON = 2048  # of PPO
INPUTS, TRIAL = 100, 0.5  # of the network that numbers of threads are tried on; seconds
CLASSES = {"ppo": "PPO", "trpo": "TRPO", "sac": "SAC", "td3": "TD3", "crossq": "CrossQ"}


def ours(algorithm: str, random_steps: int = 10_000) -> dict[str, Any]:
    """Our settings, as a peer's arguments.

    TRPO's `sub_sampling_factor` stays 1, although our Fisher matrix uses every fifth sample: theirs
    would drop the other samples from the gradient too.
    """
    if algorithm == "ppo":
        return {
            "normalize": True,
            "n_steps": HORIZON,
            "batch_size": 64,
            "n_epochs": 10,
            "policy_kwargs": {"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
        }
    if algorithm == "trpo":
        return {
            "normalize": True,
            "n_steps": 1024,
            "batch_size": 64,
            "gamma": 0.99,
            "gae_lambda": 0.98,
            "target_kl": 0.01,
            "cg_max_steps": 10,
            "cg_damping": 0.1,
            "line_search_max_iter": 10,
            "line_search_shrinking_factor": 0.5,
            "n_critic_updates": 5,
            "learning_rate": 1e-3,
            "policy_kwargs": {"net_arch": {"pi": [32, 32], "vf": [32, 32]}},
        }
    shared = {
        "gamma": 0.99,
        "tau": 0.005,
        "buffer_size": 1_000_000,
        "learning_starts": random_steps,
        "train_freq": 1,
        "gradient_steps": 1,
    }
    if algorithm == "sac":
        widths: dict[str, Any] = {"net_arch": [256, 256]}
        return {**shared, "learning_rate": 3e-4, "batch_size": 256, "policy_kwargs": widths}
    return {
        **shared,
        "learning_rate": 1e-3,
        "batch_size": 100,
        "policy_kwargs": {"net_arch": [400, 300]},
        "noise_std": 0.1,
    }


def make(task: dict[str, Any]) -> Any:
    """A peer's agent with the task's settings, or ours.

    Settings are the constructor's arguments, and as in RL Zoo `n_envs`, `normalize` (observations
    and rewards) and `noise_std` (Gaussian exploration); an activation is given by its name.
    """
    import gymnasium as gym
    import numpy as np

    algorithm = task.get("algorithm", "ppo")
    learner, activation = find(task["library"], algorithm)
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    given = task.get("settings") or ours(algorithm, task.get("random_steps", 10_000))
    settings = copy.deepcopy(given)  # SBX modifies its arguments
    count, noise = settings.pop("n_envs", 1), settings.pop("noise_std", None)
    env: Any = DummyVecEnv([lambda: Monitor(gym.make(task["env"]))] * count)
    if settings.pop("normalize", False):
        env = VecNormalize(env, gamma=settings.get("gamma", 0.99))
    if noise is not None:
        shape = env.action_space.shape
        settings["action_noise"] = NormalActionNoise(np.zeros(shape), np.full(shape, noise))
    if "activation_fn" in (widths := settings.get("policy_kwargs", {})):
        chosen = activation(widths["activation_fn"])
        settings["policy_kwargs"] = {**widths, "activation_fn": chosen}
    return learner("MlpPolicy", env, seed=task.get("seed", 0), **settings)


def find(library: str, algorithm: str) -> tuple[Any, Callable[[str], Any]]:
    """A peer's class, and what gives its activation functions by name.

    Only the library that is used is imported, as start-up is measured.
    """
    name = CLASSES[algorithm]
    if library == "sbx":
        import flax.linen
        import sbx

        return getattr(sbx, name), lambda activation: getattr(flax.linen, activation)
    import torch

    def activate(activation: str) -> Any:
        return {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}[activation]

    if algorithm == "trpo":
        import sb3_contrib

        return sb3_contrib.TRPO, activate
    import stable_baselines3

    return getattr(stable_baselines3, name), activate


def faster_threads(task: dict[str, Any]) -> int:
    """One thread of PyTorch or one per core, whichever trains a network of this size faster now.

    With several threads small networks gain little, and on a busy machine they lose a factor of
    ten, as the threads wait for each other.
    """
    import torch

    if task["library"] == "sbx":  # learns in JAX
        return 1
    settings, small = task["settings"], task["algorithm"] in ("ppo", "trpo")
    widths = settings.get("policy_kwargs", {}).get("net_arch", [64, 64] if small else [256, 256])
    sizes = [INPUTS, *(widths["pi"] if isinstance(widths, dict) else widths), 1]
    layers = [torch.nn.Linear(*pair) for pair in pairwise(sizes)]
    network = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))
    rows = torch.zeros(settings.get("batch_size", 64 if small else 256), INPUTS)

    def passes(threads: int) -> int:
        """Passes through the network within a fixed time."""
        torch.set_num_threads(threads)
        count, end = 0, time.perf_counter() + TRIAL
        while time.perf_counter() < end:
            network(rows).sum().backward()
            count += 1
        return count

    passes(1)  # the first are slow
    return max({1, task["cores"]}, key=passes)


def main() -> None:
    """Train a peer and print its speed."""
    task = json.loads(sys.argv[1])
    import torch

    torch.set_num_threads(task["cores"])
    import gymnasium as gym
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    every, model = task.get("eval_every", 0), make(task)
    eval_env: Any = DummyVecEnv([lambda: Monitor(gym.make(task["env"]))])
    statistics = model.get_vec_normalize_env()
    if statistics is not None:  # observations as in training, rewards as they are
        eval_env = VecNormalize(eval_env, training=False, norm_reward=False)
        eval_env.obs_rms = statistics.obs_rms

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
    model.learn(task["steps"], callback=watch)
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
