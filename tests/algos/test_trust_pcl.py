"""Trust-PCL's state, its updates and its options."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import DiscError
from disc.algos import trust_pcl
from disc.algos.trust_pcl import Carry, Config, Pair, State
from disc.learning import optim
from disc.types import Rollout
from tests.support.compare import assert_close, assert_equal_trees
from tests.support.plain import doubles
from tests.support.rollouts import rollout_of
from tests.support.trust_pcl import SPEC, B, D, S, T, forward, pair, small

# The state


def rollout(returns: list[float], steps: int = 4 * T) -> Rollout:
    rng = np.random.default_rng(len(returns))
    no, sizes = np.zeros(steps, bool), {"observation": S, "next_observation": S, "action": D}
    columns: dict[str, Any] = {
        name: np.float32(rng.standard_normal((steps, size))) for name, size in sizes.items()
    }
    columns |= {"reward": np.float32(rng.standard_normal(steps)), "terminated": no, "truncated": no}
    columns |= {"returns": np.float32(returns), "lengths": np.float32(returns) + 0.5}
    return rollout_of(columns)


def observed(config: Config, *episodes: list[float], seed: int = 0) -> State:
    state = trust_pcl.init(config, SPEC, 1, seed)
    for returns in episodes:
        state = trust_pcl.observe(config, state, rollout(returns))
    return state


def test_initial_state_has_expected_networks_and_targets() -> None:
    state = trust_pcl.init(small(), SPEC, 1, 0)
    assert [layer.weight.shape for layer in state.policy.parameters.mean] == [(S, 3), (3, D)]
    assert [layer.weight.shape for layer in state.value.parameters] == [(1 + 2 * S, 3), (3, 1)]
    assert_equal_trees(state.targets, Pair(state.policy.parameters, state.value.parameters))
    assert state.lam == 0.0
    assert state.replay.filled == 0
    np.testing.assert_array_equal(state.returns, np.full(20, np.nan))
    np.testing.assert_array_equal(state.lengths, np.full(20, np.nan))


def test_last_returns_are_kept_in_order() -> None:
    config, nan = small(lambda_episodes=4), np.nan
    state = trust_pcl.init(config, SPEC, 1, 0)
    for i, (returns, wanted) in enumerate(
        [
            ([], [nan, nan, nan, nan]),
            ([1], [nan, nan, nan, 1]),
            ([2, 3], [nan, 1, 2, 3]),
            ([], [nan, 1, 2, 3]),
            ([4, 5], [2, 3, 4, 5]),
            ([6, 7, 8, 9, 10, 11], [8, 9, 10, 11]),
        ]
    ):
        state = trust_pcl.observe(config, state, rollout(returns))
        np.testing.assert_array_equal(state.returns, wanted)
        np.testing.assert_array_equal(state.lengths, np.array(wanted) + 0.5)
        assert state.step == (i + 1) * 4 * T
        assert state.replay.filled == min(6, 4 * (i + 1))


def test_policy_acts_on_unnormalised_observations() -> None:
    config = small()
    state = observed(config, [])
    policy = pair(1).policy._replace(log_std=jnp.float32([0.5, -0.5]))
    state = dataclasses.replace(state, policy=optim.init(policy))
    x = np.float32([[0.1, -0.2], [40.0, -30.0]])
    acting = trust_pcl.act(config, SPEC, state)
    assert_close(acting.mean(x), forward(doubles(policy.mean), x))
    action, mean = acting(x[0], np.float32([1.0, -2.0]))
    assert_close(action - mean, [np.exp(0.5), -2.0 * np.exp(-0.5)])


def test_targets_start_at_the_loaded_networks() -> None:
    state, both = trust_pcl.init(small(), SPEC, 1, 0), pair(1)
    state = state.start_from(both._asdict(), state.normalizer)
    assert_equal_trees(state.targets, both)
    assert_equal_trees((state.policy.parameters, state.value.parameters), tuple(both))


# Updates


def test_update_takes_one_gradient_step_per_chunk() -> None:
    """Four steps move λ 1 − 0.6⁴ of the way from 1 to 7/log 3."""
    before = dataclasses.replace(observed(small(), [3, 10] * 10), lam=1.0)
    after, metrics = trust_pcl.update(small(), before, 1)
    assert after.policy.moments.count == after.value.moments.count == 4
    assert (after.iteration, after.step) == (1, 4 * T)
    goal = 7.0 / math.log(3)
    assert metrics["train/lambda_goal"] == pytest.approx(goal, rel=1e-5)
    assert after.lam == pytest.approx(goal - (goal - 1.0) * 0.6**4, rel=1e-5)
    assert metrics["train/lambda"] == after.lam
    for name in ("policy", "value"):
        moved = getattr(after, name).parameters, getattr(before, name).parameters
        for new, old in zip(*map(jax.tree.leaves, moved), strict=True):
            assert np.all(new != old), name
            assert np.max(np.abs(new - old)) < 4.1 * small().learning_rate


def test_update_reads_only_filled_slots() -> None:
    """Reading a NaN gives non-finite results; four of six slots are filled."""
    state = observed(small(), [])
    for slots, finite in (([4, 5], True), ([0], False)):
        reward = state.replay.reward.at[np.array(slots)].set(jnp.nan)
        spoilt = dataclasses.replace(state, replay=state.replay._replace(reward=reward))
        after, _ = trust_pcl.update(small(), spoilt, 1)
        learned = (after.policy.parameters, after.value.parameters, after.targets)
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(learned)) == finite


def drawn_by_update(monkeypatch: pytest.MonkeyPatch, config: Config, state: State) -> Any:
    """The slots that an update passes to its gradient steps."""
    seen: list[Any] = []

    def record(config: Config, carry: Carry, replay: Any, drawn: Any, goal: float) -> Any:
        seen.append(drawn)
        return carry, {}

    monkeypatch.setattr(trust_pcl, "descend", record)
    trust_pcl.update(config, state, 1)
    assert seen[0].shape == (4, B)
    return seen[0]


def test_draws_of_an_update_depend_on_seed_and_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    state = observed(small(), [])
    changes: list[Any] = [{}, {}, {"iteration": 1}, {"seed": 1}]
    first, again, *others = (
        drawn_by_update(monkeypatch, small(), dataclasses.replace(state, **change))
        for change in changes
    )
    np.testing.assert_array_equal(first, again)
    assert all(np.any(first != other) for other in others)


def test_recency_favours_the_newest_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight chunks were pushed into six slots: the newest is in slot 1."""
    state = observed(small(), [], [])
    assert np.all(drawn_by_update(monkeypatch, small(recency=1000.0), state) == 1)
    assert len(np.unique(drawn_by_update(monkeypatch, small(recency=0.0), state))) > 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path_length": 11}, "path_length must be at most chunk_length, 10"),
        ({"path_stride": 0}, r"path_stride must be within \[1, 10\]"),
        ({"path_length": 1, "path_stride": 2}, r"path_stride must be within \[1, 1\]"),
        ({"horizon": 1001}, "horizon must be divisible by chunk_length, 10"),
        ({"target_decay": 1.1}, "target_decay must be within"),
        ({"residual_clip": 0.0}, "residual_clip must be above 0"),
        ({"max_gradient_norm": 0.0}, "max_gradient_norm must be above 0"),
        ({"recency": -1.0}, "recency must be at least 0"),
        ({"lambda_episodes": 1}, "lambda_episodes must be at least 2"),
    ],
)
def test_invalid_options_raise(options: Any, message: str) -> None:
    with pytest.raises(DiscError, match=message):
        Config(**options)
