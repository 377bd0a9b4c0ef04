"""Trust-PCL's loss and its gradient against double loops."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.algos import trust_pcl
from disc.algos.trust_pcl import Config, Pair
from disc.learning.types import ChunkReplay
from tests.support.compare import assert_close, assert_close_trees
from tests.support.plain import differences, doubles
from tests.support.trust_pcl import (
    CONFIG,
    UNCLIPPED,
    B,
    D,
    T,
    forward,
    gradient_of,
    linear,
    loss_of,
    pair,
    random_chunks,
)


class Formula:
    """The loss by its definition; networks are trees of NumPy arrays."""

    def __init__(self, config: Config, targets: Pair, chunks: ChunkReplay, lam: float) -> None:
        self.config, self.lam = config, lam
        self.chunks = doubles(chunks)
        self.targets = doubles(targets)
        self.shape = chunks.reward.shape

    def log_pi(self, policy: Any) -> Any:
        result = np.zeros(self.shape)
        for b, t in np.ndindex(self.shape):
            mean = forward(policy.mean, self.chunks.observation[b, t])
            for d in range(D):
                std = math.exp(policy.log_std[d])
                distance = (self.chunks.action[b, t, d] - mean[d]) / std
                result[b, t] -= 0.5 * distance**2 + math.log(std * math.sqrt(2.0 * math.pi))
        return result

    def value(self, mlp: Any, states: Any) -> Any:
        result = np.zeros(self.shape)
        for b, t in np.ndindex(self.shape):
            s = states[b, t].tolist()
            result[b, t] = forward(mlp, np.array([1.0, *s, *(x * x for x in s)])).item()
        return result

    def paths(self) -> Any:
        """Start and steps of every path."""
        chunks = self.chunks
        stride, following = self.config.path_stride, np.zeros(self.shape[0], int)
        for b, t in np.ndindex(self.shape):
            if t % stride if stride else t < following[b]:
                continue
            steps = [t]
            while len(steps) < self.config.path_length and steps[-1] + 1 < self.shape[1]:
                last = b, steps[-1]
                if chunks.terminated[last] or chunks.truncated[last] or chunks.border[last]:
                    break
                steps.append(steps[-1] + 1)
            following[b] = steps[-1] + 1
            yield b, t, steps

    def residual(self, both: Any) -> Any:
        config, chunks, result = self.config, self.chunks, np.zeros(self.shape)
        log_pi, log_pi_target = self.log_pi(both.policy), self.log_pi(self.targets.policy)
        value = self.value(both.value, chunks.observation)
        following = self.value(self.targets.value, chunks.next_observation)
        for b, t, steps in self.paths():
            result[b, t] = -value[b, t]
            for i, step in enumerate(steps):
                here = b, step
                reward = chunks.reward[here]
                reward -= (config.entropy_weight + self.lam) * log_pi[here]
                reward += self.lam * log_pi_target[here]
                result[b, t] += config.gamma**i * reward
            last = b, steps[-1]
            limit = chunks.truncated[last] and not config.bootstrap_time_limits
            if not (chunks.terminated[last] or limit):
                result[b, t] += config.gamma ** len(steps) * following[last]
        return result

    def loss(self, both: Any, fixed: Any) -> float:
        """With C fixed to the given values."""
        log_pi, result = self.log_pi(both.policy), 0.0
        value = self.value(both.value, self.chunks.observation)
        for b, t, steps in self.paths():
            total = sum(self.config.gamma**i * log_pi[b, step] for i, step in enumerate(steps))
            result -= fixed[b, t] * (total + value[b, t]) / B
        return result

    def half_square(self, both: Any) -> float:
        """Mean over chunks of Σ_t ½ C_t², the target networks fixed."""
        return float(np.sum(0.5 * self.residual(both) ** 2) / B)


@pytest.mark.parametrize(("length", "stride"), [(2, 2), (3, 2), (4, 3), (3, None)])
def test_paths_start_at_multiples_of_the_stride(length: int, stride: int | None) -> None:
    """By default paths are laid end to end, also after the end of an episode."""
    some = {"chunk_length": 4, "horizon": 16, "path_length": length, "path_stride": stride}
    config = Config(**{**CONFIG, **some})
    both, targets, chunks = pair(1), pair(2), random_chunks(steps=4)
    formula = Formula(config, targets, chunks, 0.7)
    fixed = np.clip(formula.residual(doubles(both)), -1.0, 1.0)
    if stride:
        assert np.all(np.any(fixed, axis=0) == (np.arange(4) % stride == 0))
    found, _ = loss_of(config, both, targets, chunks, np.float32(0.7))
    assert_close(found, formula.loss(doubles(both), fixed))


@pytest.mark.parametrize(
    ("lam", "options"),
    [
        (0.7, {"path_length": 3, "path_stride": 3}),
        (0.7, {"path_length": 1}),
        (0.7, {"path_length": 2, "entropy_weight": 0.2}),
        (0.0, {"path_length": T, "bootstrap_time_limits": False}),
    ],
)
def test_gradient_treats_the_clipped_residual_as_constant(lam: float, options: Any) -> None:
    config = Config(**{**CONFIG, **options})
    both, targets, chunks = pair(1), pair(2), random_chunks()
    formula = Formula(config, targets, chunks, lam)
    residual = formula.residual(doubles(both))
    outside = np.abs(residual) > 1.0
    assert 2 <= np.sum(outside) <= B * T - 2
    fixed = np.clip(residual, -1.0, 1.0)

    found, _ = loss_of(config, both, targets, chunks, np.float32(lam))
    assert_close(found, formula.loss(doubles(both), fixed))
    gradient = gradient_of(config, both, targets, chunks, lam)
    assert_close_trees(gradient, differences(lambda x: formula.loss(x, fixed), doubles(both), 1e-5))


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("lam", "tau"), [(0.0, 1.0), (0.0, 0.3), (0.0, 0.0), (0.7, 0.2)])
def test_gradient_matches_that_of_half_the_squared_residual(
    lam: float, tau: float, same: bool
) -> None:
    """Without clipping and with fixed target networks, whether or not they equal the networks.

    The value gradient is exactly equal. The policy gradient is divided by τ + λ, the factor of
    log π in C; if τ = λ = 0, C does not depend on the policy, but the loss's gradient remains.
    """
    options = {"path_length": 3, "residual_clip": UNCLIPPED, "entropy_weight": tau}
    config = Config(**{**CONFIG, **options})
    both, chunks = pair(1), random_chunks()
    targets = both if same else pair(2)
    formula = Formula(config, targets, chunks, lam)
    wanted = differences(formula.half_square, doubles(both), 1e-5)
    gradient = gradient_of(config, both, targets, chunks, lam)
    assert_close_trees(gradient.value, wanted.value)
    assert_close_trees(jax.tree.map(lambda g: (tau + lam) * g, gradient.policy), wanted.policy)
    assert max(float(np.max(np.abs(g))) for g in jax.tree.leaves(gradient.policy)) > 0.1


def test_loss_metrics_match_their_definitions() -> None:
    config = Config(**CONFIG, path_length=2)
    both, targets, chunks = pair(1), pair(2), random_chunks()
    formula = Formula(config, targets, chunks, 0.7)
    residual = formula.residual(doubles(both))
    value = formula.value(doubles(both).value, doubles(chunks).observation)
    kl, new, old = 0.0, doubles(both).policy, doubles(targets).policy
    for b, t in np.ndindex(B, T):
        state = doubles(chunks).observation[b, t]
        apart = (forward(new.mean, state) - forward(old.mean, state)) ** 2
        variance, old_variance = np.exp(2.0 * new.log_std), np.exp(2.0 * old.log_std)
        terms = (old_variance + apart) / variance - 1.0 - np.log(old_variance / variance)
        kl += 0.5 * np.sum(terms) / (B * T)
    _, found = loss_of(config, both, targets, chunks, np.float32(0.7))
    fixed = np.clip(residual, -1.0, 1.0)
    wanted = {
        "train/objective": -formula.loss(doubles(both), fixed) / T,
        "train/value_loss": 0.5 * np.mean(residual**2),
        "train/residual": np.mean(np.abs(residual)),
        "train/residual_clipped": np.mean(np.abs(residual) > 1.0),
        "train/explained_variance": 1.0 - np.var(residual) / np.var(residual + value),
        "is/kl": kl,
    }
    assert set(found) == set(wanted)
    for name, x in found.items():
        np.testing.assert_allclose(x, wanted[name], rtol=1e-4, err_msg=name)


def test_value_features_are_one_the_state_and_its_square() -> None:
    """[1, 2, −3, 4, 9] · [1, 10, 100, 1000, 10⁴] + ½."""
    found = trust_pcl.values(linear(1, 10, 100, 1e3, 1e4, bias=0.5), jnp.float32([[2, -3]]))
    np.testing.assert_array_equal(found, [93_721.5])
