"""K-FAC with explicit matrices, and training rows, for tests of ACKTR."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from disc.algos import acktr
from disc.learning import networks
from disc.learning.distribution import GaussianPolicy
from disc.learning.types import Rows
from tests.support.networks import perceptron

S, H, D, N = 2, 3, 2, 40
STEPS = 25
CONFIG = acktr.Config(  # all values differ
    horizon=N,
    widths=(H,),
    step_size=0.2,
    target_kl=0.003,
    damping=0.02,
    kl_clip=0.01,
    decay=0.6,
    value_damping=0.3,
    value_kl_clip=0.05,
    value_decay=0.5,
    value_learning_rate=0.07,
    value_steps=STEPS,
    momentum=0.8,
    decompose_every=2,
)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-3, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def policy() -> GaussianPolicy:
    return GaussianPolicy(perceptron(np.random.default_rng(1), S, H, D), jnp.float32([-0.4, 0.3]))


def value() -> networks.MLP:
    return perceptron(np.random.default_rng(2), S, H, 1)


def sampled(scale: float = 1.0, target: float = 1.0) -> Rows:
    """Actions of `policy()`, with advantages and targets of the given scale."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, S))
    mean, _ = Plain(policy().mean).forward(x, np.tanh)
    columns = (
        x,
        mean + np.exp(policy().log_std) * rng.standard_normal((N, D)),
        mean,
        np.tile(policy().log_std, (N, 1)),
        scale * rng.standard_normal(N),
        target * (1.0 + rng.standard_normal(N)),
        np.zeros(N),
        np.ones(N),
        np.ones(N),
    )
    return Rows(*map(jnp.float32, columns))


class Plain:
    """K-FAC of a network with one hidden layer, in numpy and double precision.

    Layers are matrices (in + 1, out); A ⊗ G is built and (A ⊗ G + damping) U = ∇ solved.
    `free` are parameters beside the network whose Fisher matrix is known.
    """

    def __init__(self, mlp: networks.MLP, free: Any = (), fisher: float = 0.0) -> None:
        self.layers = [np.concatenate([w, b[None]]).astype(float) for w, b in mlp]
        self.free, self.fisher = np.asarray(free, float), fisher
        self.factors = [
            (np.zeros((len(w), len(w))), np.zeros((w.shape[1], w.shape[1]))) for w in self.layers
        ]
        self.used = self.factors
        self.velocity = [np.zeros_like(w) for w in [*self.layers, self.free]]
        self.taken = 0

    def forward(self, x: Any, activation: Any) -> tuple[Any, Any]:
        first, second = self.layers
        hidden = np.column_stack([x, np.ones(len(x))]) @ first
        return np.column_stack([activation(hidden), np.ones(len(x))]) @ second, hidden

    def backward(self, x: Any, g: Any, activation: Any, slope: Any) -> list[tuple[Any, Any]]:
        """Each layer's inputs, and g backpropagated to its outputs."""
        _, hidden = self.forward(x, activation)
        one = np.ones(len(x))
        back = slope(hidden) * (g @ self.layers[1][:-1].T)
        return [
            (np.column_stack([x, one]), back),
            (np.column_stack([activation(hidden), one]), g),
        ]

    def step(
        self, gradient: Any, scores: Any, rate: float, damping: float, kl_clip: float, decay: float
    ) -> Any:
        """From `gradient` (that of `free` last) and the `scores` of the sampled likelihood."""
        keep = min(decay, self.taken / (self.taken + 1))
        self.factors = [
            (keep * a + (1 - keep) * x.T @ x / len(x), keep * b + (1 - keep) * g.T @ g / len(x))
            for (a, b), (x, g) in zip(self.factors, scores, strict=True)
        ]
        if self.taken % CONFIG.decompose_every == 0:
            self.used = self.factors
        self.taken += 1
        natural = []
        for nabla, (a, g) in zip(gradient[:-1], self.used, strict=True):
            matrix = np.kron(a, g) + damping * np.eye(nabla.size)
            natural.append(np.linalg.solve(matrix, nabla.ravel()).reshape(nabla.shape))
        natural.append(gradient[-1] / (self.fisher + damping))
        size = rate**2 * sum(np.sum(u * n) for u, n in zip(natural, gradient, strict=True))
        nu = 1.0 if size <= kl_clip else np.sqrt(kl_clip / size)
        m = CONFIG.momentum
        self.velocity = [
            m * v + (1 - m) * nu * u for v, u in zip(self.velocity, natural, strict=True)
        ]
        *self.layers, self.free = (
            p - rate * v for p, v in zip([*self.layers, self.free], self.velocity, strict=True)
        )
        return nu

    def assert_is(self, mlp: networks.MLP, before: networks.MLP) -> None:
        """Both have changed by the same amount."""
        for layer, (w, b), (old_w, old_b) in zip(self.layers, mlp, before, strict=True):
            start = np.concatenate([old_w, old_b[None]]).astype(float)
            found = np.concatenate([w, b[None]]) - start
            assert_close(found, layer - start, atol=2e-3 * np.max(np.abs(found)))


def column(rows: Rows, name: str) -> Any:
    return np.asarray(getattr(rows, name), float)
