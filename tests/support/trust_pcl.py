"""Chunks and networks for tests of Trust-PCL."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disc.algos import trust_pcl
from disc.algos.trust_pcl import Config, Pair
from disc.learning import networks
from disc.learning.distribution import GaussianPolicy
from disc.learning.networks import Linear
from disc.learning.types import ChunkReplay
from tests.support.networks import perceptron
from tests.support.rollouts import spec

S, D, T, B = 2, 2, 3, 4
SPEC = spec(S, D)
UNCLIPPED = 1e9


loss_of = jax.jit(trust_pcl.loss, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def gradient_of(config: Config, both: Pair, targets: Pair, chunks: Any, lam: float) -> Any:
    loss = partial(trust_pcl.loss, config)
    gradient, _ = jax.grad(loss, has_aux=True)(both, targets, chunks, jnp.float32(lam))
    return gradient


# By hand: γ = ½, V(s) = 1 + 2x + 3x² and V'(s) = 4x of states s = (x, 0). So V(s_t) = 1, 6, 2 at
# x_t = 0, 1, −1 and V'(s_{t+1}) = 4, −4, 8. Both policies are N(0, I) and every action is 0 unless
# a test changes that. The batch repeats one chunk.

HAND = {"horizon": T, "chunk_length": T, "path_length": 1, "path_stride": 1, "gamma": 0.5}
HAND |= {"residual_clip": UNCLIPPED}
STATES = np.float32([0, 1, -1])


def gaussian(mean: float = 0.0, log_std: float = 0.0) -> GaussianPolicy:
    """A policy that ignores the observation, the same in both dimensions."""
    network = Linear(np.zeros((S, D), np.float32), np.full(D, mean, np.float32))
    return GaussianPolicy((network,), np.full(D, log_std, np.float32))


def linear(*weights: float, bias: float = 0.0) -> networks.MLP:
    return (Linear(np.float32(weights)[:, None], np.full(1, bias, np.float32)),)


VALUE, TARGET_VALUE = linear(1, 2, 0, 3, 0), linear(0, 4, 0, 0, 0)


def states(*x: float) -> Any:
    return np.stack([np.float32(x), np.zeros(T, np.float32)], axis=1)


def hand_chunks(**columns: Any) -> ChunkReplay:
    no = np.zeros(T, bool)
    arrays = {
        "observation": states(*STATES),
        "next_observation": states(1, -1, 2),
        "action": np.zeros((T, D), np.float32),
        "reward": np.float32([1, 2, 4]),
        "terminated": no,
        "truncated": no,
        "border": no,
        **columns,
    }
    stacked = {name: np.stack([x] * B) for name, x in arrays.items()}
    return ChunkReplay(**stacked, number=np.arange(B, dtype=np.int32))


# Random chunks

CONFIG = {"horizon": 4 * T, "chunk_length": T, "batch_chunks": B, "replay_chunks": 6}
CONFIG |= {"gamma": 0.9, "residual_clip": 1.0, "lambda_episodes": 20, "path_stride": 1}


def pair(seed: int) -> Pair:
    rng = np.random.default_rng(seed)
    mean = perceptron(rng, S, 3, D, gain=0.5)
    policy = GaussianPolicy(mean, np.float32(rng.uniform(-0.4, 0.4, D)))
    return Pair(policy, perceptron(rng, 1 + 2 * S, 3, 1, gain=0.5))


def random_chunks(count: int = B, steps: int = T) -> ChunkReplay:
    """The first chunk has no end, the others have ends of every kind."""
    rng = np.random.default_rng(3)
    terminated, truncated, border = np.zeros((3, count, steps), bool)
    terminated[1, 1] = terminated[3, 0] = terminated[2, 2] = True
    truncated[2, 0] = truncated[3, 0] = truncated[1, 2] = True
    border[3, 1] = True

    def normal(*shape: int) -> Any:
        return rng.standard_normal((count, steps, *shape)).astype(np.float32)

    flags = (terminated, truncated, border)
    columns = (normal(S), normal(S), normal(D), normal())
    return ChunkReplay(*columns, *flags, number=np.arange(count, dtype=np.int32))


def forward(mlp: Any, x: Any) -> Any:
    """A tanh network in numpy."""
    for layer in mlp[:-1]:
        x = np.tanh(x @ layer.weight + layer.bias)
    return x @ mlp[-1].weight + mlp[-1].bias


# Learning

KL = math.log(2) + 0.25 * math.log(0.25) + 0.75 * math.log(0.75)  # of q = (¼, ¾) from p = (½, ½)


def small(**options: Any) -> Config:
    """Gradients small enough for Adam's ε to matter, some of them above the norm limit.

    If half of 20 returns are 7 higher than the others, λ = 7/log 3, where q = (¼, ¾).
    """
    step = {"learning_rate": 0.05, "residual_clip": 1e-4, "max_gradient_norm": 1e-3}
    step |= {"path_length": 3, "target_decay": 0.6, "divergence": KL / 7.0}
    return Config(**{**CONFIG, "widths": (3,), **step, **options})
