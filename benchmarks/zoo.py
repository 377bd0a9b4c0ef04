"""RL Zoo's published settings of the peers' algorithms for five MuJoCo tasks.

From the folder `hyperparams` of https://github.com/DLR-RM/rl-baselines3-zoo at commit
22e3ff2450fd92033f7f032915e1f64894a09584 (2026-04-23): the entries of the -v4 tasks with their
defaults merged, used here for the -v5 tasks. Settings that are not named have the library's
defaults. Left out are the policy's class, which is always `MlpPolicy`, and `n_timesteps`, as no
setting depends on it. SBX has no settings there; its constructors take the same ones.
"""

from __future__ import annotations

from typing import Any

Settings = dict[str, Any]

RELU: Settings = {
    "log_std_init": -2,
    "ortho_init": False,
    "activation_fn": "relu",
    "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}
PPO: dict[str, Settings] = {
    "Hopper-v5": {
        "normalize": True, "n_envs": 1, "batch_size": 32, "n_steps": 512, "gamma": 0.999,
        "learning_rate": 9.80828e-05, "ent_coef": 0.00229519, "clip_range": 0.2, "n_epochs": 5,
        "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671, "policy_kwargs": RELU,
    },
    "Walker2d-v5": {
        "normalize": True, "n_envs": 1, "batch_size": 32, "n_steps": 512, "gamma": 0.99,
        "learning_rate": 5.05041e-05, "ent_coef": 0.000585045, "clip_range": 0.1, "n_epochs": 20,
        "gae_lambda": 0.95, "max_grad_norm": 1, "vf_coef": 0.871923,
    },
    "HalfCheetah-v5": {
        "normalize": True, "n_envs": 1, "batch_size": 64, "n_steps": 512, "gamma": 0.98,
        "learning_rate": 2.0633e-05, "ent_coef": 0.000401762, "clip_range": 0.1, "n_epochs": 20,
        "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096, "policy_kwargs": RELU,
    },
    "Ant-v5": {"normalize": True},
    "Humanoid-v5": {
        "normalize": True, "n_envs": 1, "batch_size": 256, "n_steps": 512, "gamma": 0.95,
        "learning_rate": 3.56987e-05, "ent_coef": 0.00238306, "clip_range": 0.3, "n_epochs": 5,
        "gae_lambda": 0.9, "max_grad_norm": 2, "vf_coef": 0.431892, "policy_kwargs": RELU,
    },
}  # fmt: skip
TASKS = tuple(PPO)
TRPO: Settings = {
    "normalize": True, "n_envs": 2, "batch_size": 128, "n_steps": 1024, "gamma": 0.99,
    "gae_lambda": 0.95, "sub_sampling_factor": 1, "cg_max_steps": 25, "cg_damping": 0.1,
    "n_critic_updates": 20, "learning_rate": 1e-3,
}  # fmt: skip
SAC: Settings = {"learning_starts": 10_000}
TD3: Settings = {
    "learning_starts": 10_000, "noise_std": 0.1, "train_freq": 1, "gradient_steps": 1,
    "learning_rate": 1e-3, "batch_size": 256, "policy_kwargs": {"net_arch": [400, 300]},
}  # fmt: skip
CROSSQ: Settings = {
    "buffer_size": 1_000_000, "learning_rate": 1e-3, "learning_starts": 5_000, "policy_delay": 3,
    "policy_kwargs": {"net_arch": {"pi": [256, 256], "qf": [2048, 2048]}},
}  # fmt: skip

TUNED: dict[str, dict[str, Settings]] = {
    "ppo": PPO,
    "trpo": {**dict.fromkeys(TASKS, TRPO), "HalfCheetah-v5": {**TRPO, "target_kl": 0.04}},
    "sac": dict.fromkeys(TASKS, SAC),
    "td3": dict.fromkeys(TASKS, TD3),
    "crossq": dict.fromkeys(TASKS, CROSSQ),
}
"""By algorithm and task; see `benchmarks.peers.make` for `n_envs`, `normalize` and `noise_std`."""
