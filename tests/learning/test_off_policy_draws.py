"""Batches that off-policy algorithms draw, and the targets of their critics."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.learning import off_policy
from disc.learning import replay as replays
from disc.learning.off_policy import Batch
from tests.support.off_policy import (
    BOUNDS,
    SIZE,
    SPEC,
    D,
    S,
    assert_close,
    config,
    draw,
    filled,
    numbered,
)

# The draw


def assert_drawn(batch: Batch, bootstrap: bool) -> Any:
    """All fields of a row belong to the same step; returns the steps' numbers."""
    batch = Batch(*map(np.asarray, batch))
    step = np.rint(batch.observation[:, 0]).astype(int)
    for column in range(S):
        np.testing.assert_array_equal(batch.observation[:, column], step)
        np.testing.assert_array_equal(batch.next_observation[:, column], step + 0.5)
    np.testing.assert_array_equal(batch.reward, -step)
    for column in range(D):  # five values from one bound to the other
        assert_close(batch.action[:, column], [(-1.0, -0.5, 0.0, 0.5, 1.0)[t % 5] for t in step])
    assert batch.final.tolist() == [t % 2 == 1 or (t % 4 == 2 and not bootstrap) for t in step]
    return step


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("stored", [1, 2, 4, SIZE, SIZE + 1, 3 * SIZE + 2])
def test_all_filled_slots_and_no_others_are_drawn(stored: int, bootstrap: bool) -> None:
    """Each of n slots gets 4000/n ± √(4000/n) of 4000 draws; overwritten steps get none."""
    batch = draw(jax.random.PRNGKey(stored), filled(stored), BOUNDS, 4000, bootstrap)
    assert batch.observation.shape == (4000, S)
    assert batch.action.shape == (4000, D)
    step = assert_drawn(batch, bootstrap)
    count = min(stored, SIZE)
    times = np.bincount(step, minlength=stored)
    assert not np.any(times[: stored - count])
    each = 4000 / count
    assert np.all(np.abs(times[stored - count :] - each) < 4.5 * math.sqrt(each))


def test_final_flag_depends_on_termination_and_time_limits() -> None:
    """Steps 0 to 3 do not end, terminate, are truncated, and do both."""
    wanted = {True: {0: False, 1: True, 2: False, 3: True}, False: {0: False, 1: 1, 2: 1, 3: 1}}
    for bootstrap, final in wanted.items():
        batch = draw(jax.random.PRNGKey(3), filled(4), BOUNDS, 40, bootstrap)
        step = np.asarray(batch.observation)[:, 0].tolist()
        assert dict(zip(step, batch.final.tolist(), strict=True)) == final


def test_draws_depend_on_the_key_only() -> None:
    replay = filled(1000, 1000)
    first, again, second = (
        draw(jax.random.PRNGKey(key), replay, BOUNDS, 100, True).observation for key in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.mean(np.asarray(first == second)) < 0.1


def test_draws_are_with_replacement_and_unordered() -> None:
    step = assert_drawn(draw(jax.random.PRNGKey(0), filled(50, 50), BOUNDS, 50, True), True)
    assert 20 < len(set(step.tolist())) < 45
    assert np.any(np.diff(step) < 0)
    assert np.any(np.diff(step) > 0)


@pytest.mark.parametrize(
    ("low", "high"),
    [([-1.0, -0.4], [1.0, 0.4]), ([-1.0, 2.0], [3.0, 10.0]), ([0.0, -9.0], [1e-3, -8.0])],
)
def test_drawn_actions_are_scaled_to_plus_minus_one(low: list[float], high: list[float]) -> None:
    """The bounds map to ±1, their middle to 0, and a quarter of the way to −½."""
    spec = SPEC._replace(action_low=np.float32(low), action_high=np.float32(high))
    fields = off_policy.init(config(), spec, 1, 0, None)
    share = np.float32([0.0, 0.25, 0.5, 0.75, 1.0])
    action = np.float32(low) + (np.float32(high) - np.float32(low)) * share[:, None]
    rollout = numbered(0, 5)._replace(action=action)
    replay = replays.push_transitions(fields["replay"], rollout)
    batch = draw(jax.random.PRNGKey(0), replay, fields["bounds"], 40, True)
    for (step, _), seen in zip(*map(np.asarray, (batch.observation, batch.action)), strict=True):
        assert_close(seen, np.full(D, 2.0 * share[int(step)] - 1.0))


# Targets


def batch_of(reward: Any, final: Any) -> Batch:
    nothing = jnp.zeros((len(reward), S))
    return Batch(nothing, nothing, jnp.float32(reward), nothing, jnp.asarray(final))


def test_target_matches_hand_calculation() -> None:
    """1 + 0.9·10 within an episode, only the reward 2 at its end."""
    batch = batch_of([1.0, 2.0, -3.0], [False, True, False])
    next_value = jnp.float32([10.0, 10.0, -20.0])
    assert_close(off_policy.target(batch, next_value, 0.9), [10.0, 2.0, -21.0])
    assert_close(off_policy.target(batch, next_value, 0.9, 5.0), [14.0, 10.0, -33.0])
    assert_close(off_policy.target(batch, next_value, 0.0, 2.0), [2.0, 4.0, -6.0])


def test_time_limits_are_bootstrapped_and_terminals_are_not() -> None:
    """From the stored flags to the target: −t + ½·100 except at the end of an episode."""
    for bootstrap, ends in ((True, (1, 3)), (False, (1, 2, 3))):
        batch = draw(jax.random.PRNGKey(1), filled(4), BOUNDS, 40, bootstrap)
        step = np.asarray(batch.observation)[:, 0].astype(int)
        found = off_policy.target(batch, jnp.full(40, 100.0), 0.5)
        assert_close(found, [-t if t in ends else 50.0 - t for t in step])
        assert set(step.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_next_value_after_the_end_is_not_read(value: float) -> None:
    batch = batch_of([1.0, 2.0], [True, False])
    found = off_policy.target(batch, jnp.float32([value, 4.0]), 0.5)
    np.testing.assert_array_equal(found, [1.0, 4.0])


def test_target_has_no_gradient() -> None:
    def total(reward: jax.Array, value: jax.Array) -> jax.Array:
        batch = batch_of([0.0, 0.0], [False, True])._replace(reward=reward)
        return jnp.sum(off_policy.target(batch, value, 0.9))

    for gradient in jax.grad(total, argnums=(0, 1))(jnp.ones(2), jnp.ones(2)):
        np.testing.assert_array_equal(gradient, [0.0, 0.0])
