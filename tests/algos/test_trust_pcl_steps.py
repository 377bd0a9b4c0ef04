"""The goal of Trust-PCL's λ, and its gradient steps against plain Adam."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.algos import trust_pcl
from disc.algos.trust_pcl import Carry, Config, Pair
from disc.learning import optim
from tests.support.compare import assert_close, assert_close_trees, assert_equal_trees
from tests.support.plain import doubles
from tests.support.trust_pcl import (
    HAND,
    KL,
    VALUE,
    gaussian,
    gradient_of,
    hand_chunks,
    pair,
    random_chunks,
    small,
)

# λ


@pytest.mark.parametrize("lengths", [[10.0] * 20, [5.0, 15.0] * 10])
@pytest.mark.parametrize("known", [10, 20])
def test_lambda_goal_matches_hand_calculation(lengths: list[float], known: int) -> None:
    """Half the returns are 7 higher: q = (¼, ¾), where the KL is ε · 10, gives λ = 7/log 3."""
    returns, lengths = np.float32([[3, 10] * 10, lengths])
    returns[: 20 - known] = lengths[: 20 - known] = np.nan
    found = trust_pcl.lambda_goal(Config(divergence=KL / 10.0), returns, lengths)
    assert found == pytest.approx(7.0 / math.log(3), rel=1e-5)


@pytest.mark.parametrize(("episodes", "known", "early"), [(20, 8, True), (20, 9, False)])
def test_lambda_goal_is_500_before_nine_episodes_have_ended(
    episodes: int, known: int, early: bool
) -> None:
    returns = np.full(episodes, np.nan, np.float32)
    returns[episodes - known :] = np.arange(known)
    found = trust_pcl.lambda_goal(Config(lambda_episodes=episodes), returns, returns)
    assert (found == 500.0) == early


def test_lambda_goal_needs_no_more_episodes_than_are_kept() -> None:
    config, returns = Config(lambda_episodes=4), np.float32([np.nan, 1, 2, 3])
    assert trust_pcl.lambda_goal(config, returns, returns) == 500.0
    assert trust_pcl.lambda_goal(config, np.float32([0, 1, 2, 3]), returns + 1) != 500.0


# Gradient steps

DRAWN = np.int32([[0, 0, 0, 3], [1, 1, 2, 4], [5, 0, 1, 1], [2, 3, 3, 0]])


def start(both: Pair, targets: Pair, lam: float) -> Carry:
    return Carry(optim.init(both.policy), optim.init(both.value), targets, jnp.float32(lam))


def test_lambda_and_targets_move_by_the_decay() -> None:
    """A decay of 0.75 moves λ from 20 towards 100 and the targets from 0 towards 1."""
    config = Config(**HAND, target_decay=0.75, learning_rate=1e-30)
    both = Pair(gaussian(), VALUE)
    ones, zeros = (jax.tree.map(lambda x, c=c: jnp.full_like(x, c), both) for c in (1.0, 0.0))
    carry, slots = start(ones, zeros, 20.0), np.int32([[0, 1, 2, 3]])
    for lam, share in ((40.0, 0.25), (55.0, 0.4375), (66.25, 0.578125)):
        carry, _ = trust_pcl.descend(config, carry, hand_chunks(), slots, 100.0)
        assert carry.lam == lam
        assert_equal_trees(
            carry.targets, jax.tree.map(lambda x, c=share: jnp.full_like(x, c), both)
        )
        assert_equal_trees((carry.policy.parameters, carry.value.parameters), tuple(ones))


def test_step_is_adam_on_the_jointly_clipped_gradient() -> None:
    """In double precision; λ moves before each step and the targets after it."""
    config, lam, goal = small(), 2.0, 0.5
    rate, decay, bound = config.learning_rate, config.target_decay, config.max_gradient_norm
    replay, both, targets = random_chunks(6), pair(1), pair(2)
    carry, measured = trust_pcl.descend(config, start(both, targets, lam), replay, DRAWN, goal)

    leaves, structure = jax.tree.flatten(doubles(both))
    first, second = ([np.zeros_like(x) for x in leaves] for _ in range(2))
    beyond = []
    for n, slots in enumerate(DRAWN, start=1):
        lam = decay * lam + (1.0 - decay) * goal
        chunks = jax.tree.map(lambda x, slots=slots: x[slots], replay)
        here = jax.tree.map(jnp.float32, jax.tree.unflatten(structure, leaves))
        gradient = jax.tree.leaves(doubles(gradient_of(config, here, targets, chunks, lam)))
        norm = math.sqrt(sum(np.sum(g**2) for g in gradient))
        beyond.append(norm > bound)
        assert_close(measured["train/gradient_norm"][n - 1], norm, rtol=1e-3, atol=0.0)
        for i, g in enumerate(gradient):
            g = g * min(1.0, bound / norm)
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g**2
            root = np.sqrt(second[i] / (1.0 - 0.999**n))
            leaves[i] = leaves[i] - rate * first[i] / (1.0 - 0.9**n) / (root + 2e-4)
        both = jax.tree.unflatten(structure, leaves)
        targets = jax.tree.map(lambda x, y: jnp.float32(0.6 * x + 0.4 * y), targets, both)
    assert len(set(beyond)) == 2, measured["train/gradient_norm"]
    assert_close_trees(Pair(carry.policy.parameters, carry.value.parameters), both)
    assert_close_trees(carry.targets, targets)
    assert_close(carry.lam, lam)
