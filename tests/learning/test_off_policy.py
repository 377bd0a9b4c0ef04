"""When off-policy algorithms learn, what they store, and that they need bounded actions."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import DDPG, SAC, SQL, TD3, DiscError
from disc.algos import sac
from disc.learning import networks, off_policy
from disc.learning.off_policy import Batch, OffPolicy
from disc.policy.policies import Uniform
from disc.run.agent import Agent
from tests.support import environments as probes
from tests.support.compare import assert_equal_trees
from tests.support.off_policy import HIGH, LOW, SPEC, assert_close, config, numbered


def after(steps: int, options: sac.Config, seed: int = 0) -> Any:
    """SAC's state after storing this many steps."""
    state = sac.init(options, SPEC, 1, seed)
    return off_policy.observe(options, state, numbered(0, steps)) if steps else state


class Kept(NamedTuple):
    """The arguments of twelve gradient steps, newest first."""

    count: jax.Array
    keys: jax.Array
    rows: jax.Array
    final: jax.Array


def counting(
    config: sac.Config, learned: Kept, batch: Batch, key: jax.Array, scale: Any
) -> tuple[Kept, Any]:
    """Replaces a gradient step."""

    def kept(old: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.roll(old, 1, axis=0).at[0].set(new)

    learned = Kept(
        learned.count + 1,
        kept(learned.keys, key),
        kept(learned.rows, batch.reward),
        kept(learned.final, batch.final),
    )
    return learned, {"train/count": learned.count}


def watched(steps: int, options: sac.Config, seed: int = 0) -> OffPolicy:
    """A state for use with `counting`."""
    b = options.batch_size
    learned = Kept(
        count=jnp.float32(0.0),
        keys=jnp.zeros((12, 2), jnp.uint32),
        rows=jnp.ones((12, b)),
        final=jnp.zeros((12, b), bool),
    )
    return dataclasses.replace(after(steps, options, seed), learned=learned)


def test_number_of_random_steps_is_an_option() -> None:
    assert config(random_steps=0).unlearned == 0
    assert config(random_steps=123).unlearned == 123
    assert config(random_steps=None).for_task("Hopper-v5").unlearned == 1_000
    assert config(random_steps=None).for_task("Ant-v5").unlearned == 10_000


@pytest.mark.parametrize(("steps", "random"), [(0, True), (9, True), (10, False), (11, False)])
def test_first_actions_are_random(steps: int, random: bool) -> None:
    options = config()
    state = after(steps, options)
    policy = sac.act(options, SPEC, state)
    actor = off_policy.explore(lambda *_: policy, options, SPEC, state)
    assert isinstance(actor, Uniform) == random
    assert random or actor is policy
    if isinstance(actor, Uniform):
        np.testing.assert_array_equal(actor.action_low, LOW)
        np.testing.assert_array_equal(actor.action_high, HIGH)


@pytest.mark.parametrize("steps", [1, 9, 10])
def test_nothing_is_learned_while_steps_are_random(steps: int) -> None:
    options = config(updates_per_step=2.0)
    state = watched(steps, options)
    new, metrics = off_policy.improve(options, state, counting)
    assert metrics == {}
    assert new.learned is state.learned
    assert new.replay is state.replay
    np.testing.assert_array_equal(new.key, state.key)
    assert (new.step, new.iteration) == (steps, 1)


@pytest.mark.parametrize(
    ("per_update", "per_step", "updates"), [(1, 1.0, 1), (1, 6.0, 6), (4, 0.5, 2)]
)
def test_update_has_the_configured_number_of_gradient_steps(
    per_update: int, per_step: float, updates: int
) -> None:
    """The metric is the mean of the counts 1 to K."""
    options = config(steps_per_update=per_update, updates_per_step=per_step)
    state, metrics = off_policy.improve(options, watched(11, options), counting)
    assert int(state.learned.count) == updates
    assert_close(metrics.pop("train/count"), (updates + 1) / 2)
    assert metrics.pop("time/updating") > 0.0
    assert not metrics
    assert (state.step, state.iteration) == (11, 1)


def test_noise_and_batches_never_repeat() -> None:
    """Within an update, between updates, and in the remaining key."""
    options = config(updates_per_step=6.0, batch_size=30)
    state = watched(40, options)
    seen = {tuple(np.asarray(state.key).tolist())}
    for _ in range(2):
        state, _ = off_policy.improve(options, state, counting)
        seen.add(tuple(np.asarray(state.key).tolist()))
    assert len(seen) == 3
    keys = [tuple(key) for key in np.asarray(state.learned.keys).tolist()]
    assert len(seen | set(keys)) == 3 + 12
    rows = [tuple(row) for row in np.asarray(state.learned.rows).tolist()]
    assert len(set(rows)) == 12


def test_other_seeds_give_other_noise() -> None:
    options = config(updates_per_step=6.0, batch_size=30)
    first, second, again = (
        off_policy.improve(options, watched(40, options, seed), counting)[0].learned
        for seed in (0, 1, 0)
    )
    assert not np.any(np.all(first.keys[:6] == second.keys[:6], axis=1))
    assert not np.array_equal(first.rows[:6], second.rows[:6])
    assert_equal_trees(first, again)


def test_several_gradient_steps_equal_single_step_updates() -> None:
    """The same keys, batches and order, bit for bit."""
    at_once, apart = config(updates_per_step=6.0), config(updates_per_step=1.0)
    wanted, _ = off_policy.improve(at_once, watched(20, at_once), counting)
    state = watched(20, apart)
    for _ in range(6):
        state, _ = off_policy.improve(apart, state, counting)
    assert_equal_trees(state.learned, wanted.learned)
    np.testing.assert_array_equal(state.key, wanted.key)
    assert (state.iteration, wanted.iteration) == (6, 1)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_update_honours_bootstrap_time_limits(bootstrap: bool) -> None:
    """Step t is stored with reward −t, and is truncated if bit 1 of t is set."""
    options = config(bootstrap_time_limits=bootstrap, batch_size=30, updates_per_step=6.0)
    learned = off_policy.improve(options, watched(20, options), counting)[0].learned
    step = np.rint(-np.asarray(learned.rows[0])).astype(int)
    wanted = [t % 2 == 1 or (t % 4 == 2 and not bootstrap) for t in step]
    assert learned.final[0].tolist() == wanted


def test_storing_counts_steps_and_changes_nothing_else() -> None:
    options = config()
    state = sac.init(options, SPEC, 1, 7)
    learned = jax.tree.map(np.asarray, state.learned)
    for first, count in ((0, 3), (3, 40), (43, 1)):
        state = off_policy.observe(options, state, numbered(first, count))
        assert state.step == int(state.replay.stored) == first + count
    assert sorted((-state.replay.reward).tolist()) == list(range(4, 44))
    assert_equal_trees(state.learned, learned)
    assert (state.seed, state.iteration) == (7, 0)
    np.testing.assert_array_equal(state.key, jax.random.PRNGKey(7))


def test_policy_file_holds_all_networks_except_targets() -> None:
    state = after(0, config())
    assert set(state.parameters()) == {"policy", "value", "temperature"}
    other = after(0, config(), seed=1)
    moved = state.start_from(other.parameters(), other.normalizer)
    assert_equal_trees(moved.learned, other.learned)
    assert moved.seed == state.seed


def test_initial_bounds_are_those_of_the_environment() -> None:
    bounds = off_policy.init(config(), SPEC, 1, 0, None)["bounds"]
    np.testing.assert_array_equal(bounds.center, [1.0, 6.0])
    np.testing.assert_array_equal(bounds.reach, [2.0, 4.0])


def test_other_seeds_give_other_initial_networks() -> None:
    first, second = (
        networks.init_uniform(off_policy.generator(seed), (3, 4, 1)) for seed in (0, 1)
    )
    assert not np.any(first[0].weight == second[0].weight)


# Unbounded actions


def boundless(low: Any, high: Any) -> type[probes.Wide]:
    box = gym.spaces.Box(np.float32(low), np.float32(high), (2, 2), np.float32)

    class Boundless(probes.Wide):
        action_space: ClassVar[Any] = box

    return Boundless


CORNER = np.float32([[1.0, 1.0], [1.0, np.inf]])


@pytest.mark.parametrize(
    ("low", "high"),
    [(-np.inf, np.inf), (-1.0, np.inf), (-np.inf, 1.0), (-np.ones((2, 2)), CORNER)],
)
@pytest.mark.parametrize("kind", [DDPG, TD3, SAC, SQL])
def test_unbounded_actions_raise(kind: type[Agent], low: Any, high: Any) -> None:
    with pytest.raises(DiscError, match="needs actions with bounds") as refused:
        kind(boundless(low, high), replay_size=10, widths=(4, 4))
    assert str(refused.value).count(".") == 1
    assert str(refused.value).endswith(".")
