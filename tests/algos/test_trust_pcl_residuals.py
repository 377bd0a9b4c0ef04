"""Trust-PCL's residuals against hand calculations; the chunks are in `tests/support`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from disc.algos.trust_pcl import Config, Pair
from disc.learning import networks
from disc.learning.distribution import GaussianPolicy
from disc.learning.types import ChunkReplay
from tests.support.compare import assert_close
from tests.support.trust_pcl import (
    HAND,
    STATES,
    TARGET_VALUE,
    VALUE,
    D,
    T,
    gaussian,
    gradient_of,
    hand_chunks,
    linear,
    states,
)


def held(
    chunks: ChunkReplay,
    lam: float = 0.0,
    policy: GaussianPolicy | None = None,
    value: networks.MLP = VALUE,
    target_value: networks.MLP = TARGET_VALUE,
    **options: Any,
) -> Any:
    """C_t after clipping: the gradient of a linear value is −Σ_t C_t [1, x_t, x_t²]."""
    config = Config(**{**HAND, **options})
    both, targets = Pair(policy or gaussian(), value), Pair(gaussian(), target_value)
    gradient = gradient_of(config, both, targets, chunks, lam)
    features = np.stack([np.ones(T), STATES, STATES**2], axis=1)
    return np.linalg.solve(features.T, -np.asarray(gradient.value[0].weight)[[0, 1, 3], 0])


def at(step: int) -> Any:
    return np.arange(T) == step


@pytest.mark.parametrize(
    ("d", "wanted"),
    [
        # −1 + 1 + ½·4,  −6 + 2 − ½·4,  −2 + 4 + ½·8
        (1, [2, -6, 6]),
        # −1 + 1 + ½·2 − ¼·4,  −6 + 2 + ½·4 + ¼·8; the chunk ends: as for d = 1
        (2, [0, 0, 6]),
        # −1 + 1 + ½·2 + ¼·4 + ⅛·8
        (3, [3, 0, 6]),
    ],
)
def test_residual_of_one_episode_matches_hand_calculation(d: int, wanted: list[float]) -> None:
    assert_close(held(hand_chunks(), path_length=d), wanted)


# Step 1 is the last of its episode, whose true final observation is 3: V' = 12. Step 2 is the first
# of another. −1 + 1 + ½·2 + ¼·12 = 4 and −6 + 2 + ½·12 = 2 with that value, 1 and −4 without.
FINAL = states(1, 3, 2)
BOOTSTRAPPED = {1: [2, 2, 6], 2: [4, 2, 6], 3: [4, 2, 6]}
TERMINAL = {1: [2, -4, 6], 2: [1, -4, 6], 3: [1, -4, 6]}


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(
    ("ends", "bootstrap", "wanted"),
    [
        (["terminated"], True, TERMINAL),
        (["terminated"], False, TERMINAL),
        (["terminated", "truncated"], True, TERMINAL),
        (["truncated"], True, BOOTSTRAPPED),
        (["truncated"], False, TERMINAL),
        (["border"], True, BOOTSTRAPPED),
        (["border"], False, BOOTSTRAPPED),
        (["truncated", "border"], True, BOOTSTRAPPED),
        (["truncated", "border"], False, TERMINAL),
        (["terminated", "border"], True, TERMINAL),
    ],
)
def test_residual_bootstraps_unless_the_episode_terminated(
    ends: list[str], bootstrap: bool, wanted: Any, d: int
) -> None:
    chunk = hand_chunks(next_observation=FINAL, **dict.fromkeys(ends, at(1)))
    assert_close(held(chunk, path_length=d, bootstrap_time_limits=bootstrap), wanted[d])


@pytest.mark.parametrize("d", [1, 3])
def test_chunk_may_end_with_its_episode(d: int) -> None:
    """Without the final 8: −1 + 1 + ½·2 + ¼·4 = 2 and −6 + 2 + ½·4 = −2 (d = 3), −2 + 4."""
    chunk = hand_chunks(terminated=at(2))
    assert_close(held(chunk, path_length=d), {1: [2, -6, 2], 3: [2, -2, 2]}[d])


@pytest.mark.parametrize(("d", "wanted"), [(1, [4, -4, 8]), (3, [6.5, 3, 8])])
def test_lambda_weights_the_log_ratio_to_the_target_policy(d: int, wanted: list[float]) -> None:
    """For action 0, log N(1, 1) − log N(0, 1) = −½ twice: λ = 2 adds 2 to every reward."""
    assert_close(held(hand_chunks(), lam=2.0, policy=gaussian(1.0), path_length=d), wanted)


@pytest.mark.parametrize(("d", "sums"), [(1, [1, 1, 1]), (3, [1.75, 1.5, 1])])
def test_entropy_weight_adds_the_negative_log_density(d: int, sums: list[float]) -> None:
    """τ = 1 adds −log N(0; 0, I) = log 2π to every reward; λ adds nothing for equal policies."""
    plain = held(hand_chunks(), path_length=d)
    found = held(hand_chunks(), lam=3.0, path_length=d, entropy_weight=1.0)
    assert_close(found - plain, math.log(2.0 * math.pi) * np.array(sums))


def test_residuals_are_clipped() -> None:
    """C = (2, −6, 6) within ±1 and ±5."""
    assert_close(held(hand_chunks(), residual_clip=1.0), [1, -1, 1])
    assert_close(held(hand_chunks(), residual_clip=5.0), [2, -5, 5])


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(("lam", "tau"), [(0.7, 0.0), (0.7, 0.4), (0.0, 0.4)])
def test_optimal_policy_has_zero_residuals(d: int, lam: float, tau: float) -> None:
    """Constant reward −‖a − 1‖²: π ∝ exp((r + λ log π') / (τ + λ)), V(s) the log of its sum.

    Residuals are zero for any actions.
    """
    action = np.float32([[-1.0, 0.2], [0.3, 1.4], [2.0, 0.0]])
    reward = -np.sum((action - 1.0) ** 2, axis=1)
    x, width = np.linspace(-15.0, 15.0, 20_001, retstep=True)
    exponent = (-((x - 1.0) ** 2) - lam * (0.5 * x**2 + 0.5 * np.log(2.0 * np.pi))) / (tau + lam)
    value = D * (tau + lam) * np.log(np.sum(np.exp(exponent)) * width) / (1.0 - 0.5)
    best = gaussian(2.0 / (lam + 2.0), -0.5 * math.log((lam + 2.0) / (tau + lam)))
    constant = linear(0, 0, 0, 0, 0, bias=value)
    chunks = hand_chunks(action=action, reward=reward, truncated=at(1))
    options = {"path_length": d, "entropy_weight": tau}
    values = {"value": constant, "target_value": constant}
    assert_close(held(chunks, lam, best, **values, **options), np.zeros(T), atol=1e-4)
    assert np.max(np.abs(held(chunks, lam, gaussian(0.5), **values, **options))) > 0.1
