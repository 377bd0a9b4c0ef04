"""What the four off-policy algorithms share: draws, targets, losses, and when updates happen."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import networks, off_policy
from disc import replay as replays
from disc.algos import sac
from disc.networks import Linear
from disc.off_policy import Batch, Bounds, OffPolicy
from disc.policies import Uniform
from disc.replay import TransitionReplay
from disc.types import Rollout, Spec

S, D, SIZE = 2, 2, 5
LOW, HIGH = np.float32([-1.0, 2.0]), np.float32([3.0, 10.0])
SPEC = Spec(S, D, (S,), (D,), LOW, HIGH)
BOUNDS = Bounds(jnp.float32([1.0, 6.0]), jnp.float32([2.0, 4.0]))

draw = jax.jit(off_policy.draw, static_argnums=(3, 4))


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def assert_equal_trees(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


def numbered(first: int, count: int) -> Rollout:
    """Steps that carry their number in every field; flags are its two last bits."""
    step = np.arange(first, first + count)
    column = np.repeat(np.float32(step)[:, None], S, axis=1)
    nothing = np.zeros(0, np.float32)
    return Rollout(
        observation=column,
        next_observation=column + np.float32(0.5),
        action=LOW + (HIGH - LOW) * np.float32(step % 5 / 4)[:, None],
        reward=np.float32(-step),
        terminated=step % 2 == 1,
        truncated=step // 2 % 2 == 1,
        mean=column,
        log_std=column[0],
        border=step < 0,
        returns=nothing,
        lengths=nothing,
    )


def filled(count: int, size: int = SIZE) -> TransitionReplay:
    return replays.push_transitions(replays.init_transitions(size, SPEC), numbered(0, count))


# The draw


def assert_drawn(batch: Batch, bootstrap: bool) -> Any:
    """All fields of a row belong to the same step; returns the steps' numbers."""
    batch = Batch(*map(np.asarray, batch))
    step = np.rint(batch.observation[:, 0]).astype(int)
    for column in range(S):
        np.testing.assert_array_equal(batch.observation[:, column], step)
        np.testing.assert_array_equal(batch.next_observation[:, column], step + 0.5)
    np.testing.assert_array_equal(batch.reward, -step)
    for column in range(D):  # a fifth of the way after the other, from one bound to the other
        assert_close(batch.action[:, column], [(-1.0, -0.5, 0.0, 0.5, 1.0)[t % 5] for t in step])
    assert batch.final.tolist() == [t % 2 == 1 or (t % 4 == 2 and not bootstrap) for t in step]
    return step


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("stored", [1, 2, 4, SIZE, SIZE + 1, 3 * SIZE + 2])
def test_all_filled_slots_are_drawn_and_no_others(stored: int, bootstrap: bool) -> None:
    """Of 4000 draws each of n gets 4000/n ± √(4000/n); the oldest are gone."""
    batch = draw(jax.random.PRNGKey(stored), filled(stored), BOUNDS, 4000, bootstrap)
    assert batch.observation.shape == (4000, S)
    assert batch.action.shape == (4000, D)
    step = assert_drawn(batch, bootstrap)
    count = min(stored, SIZE)
    times = np.bincount(step, minlength=stored)
    assert not np.any(times[: stored - count])
    each = 4000 / count
    assert np.all(np.abs(times[stored - count :] - each) < 4.5 * math.sqrt(each))


def test_nothing_follows_a_terminal_but_something_a_time_limit() -> None:
    """Steps 0 to 3 end not at all, by themselves, by time, and by both."""
    wanted = {True: {0: False, 1: True, 2: False, 3: True}, False: {0: False, 1: 1, 2: 1, 3: 1}}
    for bootstrap, final in wanted.items():
        batch = draw(jax.random.PRNGKey(3), filled(4), BOUNDS, 40, bootstrap)
        step = np.asarray(batch.observation)[:, 0].tolist()
        assert dict(zip(step, batch.final.tolist(), strict=True)) == final


def test_another_key_draws_others_and_the_same_the_same() -> None:
    replay = filled(1000, 1000)
    first, again, second = (
        draw(jax.random.PRNGKey(key), replay, BOUNDS, 100, True).observation for key in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.mean(np.asarray(first == second)) < 0.1


def test_draws_are_with_replacement_and_in_no_order() -> None:
    step = assert_drawn(draw(jax.random.PRNGKey(0), filled(50, 50), BOUNDS, 50, True), True)
    assert 20 < len(set(step.tolist())) < 45
    assert np.any(np.diff(step) < 0)
    assert np.any(np.diff(step) > 0)


@pytest.mark.parametrize(
    ("low", "high"),
    [([-1.0, -0.4], [1.0, 0.4]), ([-1.0, 2.0], [3.0, 10.0]), ([0.0, -9.0], [1e-3, -8.0])],
)
def test_networks_see_actions_within_one(low: list[float], high: list[float]) -> None:
    """The bounds are ±1, their middle is 0, and a quarter of the way −½."""
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


def test_the_target_by_hand() -> None:
    """1 + 0.9·10 where something follows, 2 and no more where nothing does."""
    batch = batch_of([1.0, 2.0, -3.0], [False, True, False])
    next_value = jnp.float32([10.0, 10.0, -20.0])
    assert_close(off_policy.target(batch, next_value, 0.9), [10.0, 2.0, -21.0])
    assert_close(off_policy.target(batch, next_value, 0.9, 5.0), [14.0, 10.0, -33.0])
    assert_close(off_policy.target(batch, next_value, 0.0, 2.0), [2.0, 4.0, -6.0])


def test_time_limits_are_bootstrapped_and_terminals_are_not() -> None:
    """From the stored flags to the goal: −t + ½·100 but where the episode ended by itself."""
    for bootstrap, ends in ((True, (1, 3)), (False, (1, 2, 3))):
        batch = draw(jax.random.PRNGKey(1), filled(4), BOUNDS, 40, bootstrap)
        step = np.asarray(batch.observation)[:, 0].astype(int)
        found = off_policy.target(batch, jnp.full(40, 100.0), 0.5)
        assert_close(found, [-t if t in ends else 50.0 - t for t in step])
        assert set(step.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_value_beyond_the_end_is_not_even_looked_at(value: float) -> None:
    batch = batch_of([1.0, 2.0], [True, False])
    found = off_policy.target(batch, jnp.float32([value, 4.0]), 0.5)
    np.testing.assert_array_equal(found, [1.0, 4.0])


def test_the_target_is_not_differentiated() -> None:
    def total(reward: jax.Array, value: jax.Array) -> jax.Array:
        batch = batch_of([0.0, 0.0], [False, True])._replace(reward=reward)
        return jnp.sum(off_policy.target(batch, value, 0.9))

    for gradient in jax.grad(total, argnums=(0, 1))(jnp.ones(2), jnp.ones(2)):
        np.testing.assert_array_equal(gradient, [0.0, 0.0])


# Following


def network(rng: np.random.Generator, *sizes: int) -> Any:
    return tuple(
        Linear(jnp.float32(rng.standard_normal((a, b))), jnp.float32(rng.standard_normal(b)))
        for a, b in pairwise(sizes)
    )


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.3, 1.0])
def test_targets_move_by_tau(tau: float, rng: np.random.Generator) -> None:
    """Every number (1 − τ)·old + τ·new, to the last bit of single precision; τ = 0 and 1 exact."""
    old, new = ((network(rng, 3, 4, 1), network(rng, 3, 4, 1)) for _ in range(2))
    found = off_policy.follow(old, new, tau)
    assert jax.tree.structure(found) == jax.tree.structure(old)
    leaves = (jax.tree.leaves(tree) for tree in (found, old, new))
    for moved, before, aim in zip(*leaves, strict=True):
        assert moved.dtype == np.float32
        x, y = np.float64(before), np.float64(aim)
        wanted = (1.0 - tau) * x + tau * y
        error = np.abs(np.float64(moved) - wanted)
        assert np.all(error <= 2.0**-23 * (np.abs(x) + np.abs(y)))
    if tau in (0.0, 1.0):
        assert_equal_trees(found, new if tau else old)


def test_targets_reach_what_stands_still() -> None:
    """After n steps of τ = ½ a share 2⁻ⁿ of the way is left."""
    target: Any = {"a": jnp.float32([8.0, 0.0])}
    for left in (0.5, 0.25, 0.125):
        target = off_policy.follow(target, {"a": jnp.float32([0.0, 16.0])}, 0.5)
        np.testing.assert_array_equal(target["a"], [8.0 * left, 16.0 * (1.0 - left)])


def test_networks_start_where_their_targets_are(rng: np.random.Generator) -> None:
    policy, value = network(rng, 2, 3, 2), (network(rng, 4, 3, 1),)
    moving, critics, targets = off_policy.rest(policy, value)
    assert_equal_trees((moving.parameters, critics.parameters), (targets.policy, targets.value))
    assert_equal_trees((targets.policy, targets.value), (policy, value))


# Losses, against numpy in double precision


def plain(layers: Any, x: Any) -> Any:
    """A ReLU network."""
    for i, (weight, bias) in enumerate(layers):
        x = x @ np.float64(weight) + np.float64(bias)
        x = np.where(x > 0.0, x, 0.0) if i < len(layers) - 1 else x
    return x


def plain_q(layers: Any, observation: Any, action: Any) -> Any:
    return plain(layers, np.concatenate([observation, action], axis=-1))[..., 0]


@pytest.fixture
def case(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "critics": tuple(network(rng, S + D, 6, 5, 1) for _ in range(3)),
        "policy": network(rng, S, 6, 5, D),
        "observation": np.float32(3.0 * rng.standard_normal((7, S))),
        "action": np.float32(rng.uniform(-1.0, 1.0, (7, D))),
        "y": np.float32(rng.standard_normal(7)),
    }


def test_each_critic_is_asked_and_the_least_believed(
    case: dict[str, Any], rng: np.random.Generator
) -> None:
    critics, observation, action = case["critics"], case["observation"], case["action"]
    wanted = np.array([plain_q(critic, observation, action) for critic in critics])
    assert_close(off_policy.q_values(critics, observation, action), wanted, rtol=1e-4)
    found = off_policy.least(critics, observation, action)
    assert_close(found, [min(column) for column in wanted.T], rtol=1e-4)
    assert len(set(np.argmin(wanted, axis=0).tolist())) > 1
    several = np.float32(rng.uniform(-1.0, 1.0, (7, 4, D)))
    wide = np.repeat(observation[:, None], 4, axis=1)
    wanted = np.array([plain_q(critic, wide, several) for critic in critics])
    assert_close(off_policy.q_values(critics, observation, several), wanted, rtol=1e-4)
    found = off_policy.least(critics, observation, several)
    assert found.shape == (7, 4)
    assert_close(found, wanted.min(axis=0), rtol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_value_loss_adds_the_critics_mean_squares(count: int, case: dict[str, Any]) -> None:
    critics = case["critics"][:count]
    q = [plain_q(critic, case["observation"], case["action"]) for critic in critics]
    loss = sum(sum((a - b) ** 2 for a, b in zip(x, case["y"], strict=True)) / 7 for x in q)
    found, mean = off_policy.value_loss(
        critics, case["observation"], case["action"], jnp.asarray(case["y"])
    )
    assert found.shape == mean.shape == ()
    assert_close(found, loss, rtol=1e-4)
    assert_close(mean, np.mean(q), rtol=1e-4)


def slopes(function: Any, layers: Any) -> Any:
    """The derivative by every number of a network, by central differences."""
    arrays = [[np.float64(x) for x in layer] for layer in layers]
    found = []
    for array in (x for layer in arrays for x in layer):
        slope = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            kept, ends = array[place], []
            for step in (1e-6, -1e-6):
                array[place] = kept + step
                ends.append(function(arrays))
            array[place] = kept
            slope[place] = (ends[0] - ends[1]) / 2e-6
        found.append(slope)
    return found


def assert_slopes(gradient: Any, wanted: Any) -> None:
    for one, other in zip(jax.tree.leaves(gradient), wanted, strict=True):
        assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_the_gradient_of_the_value_loss_is_its_slope(case: dict[str, Any]) -> None:
    critics, observation, action, y = (
        case[name] for name in ("critics", "observation", "action", "y")
    )

    def loss(critic: Any) -> float:
        return float(np.mean((plain_q(critic, observation, action) - y) ** 2))

    gradient = jax.jit(jax.grad(off_policy.value_loss, has_aux=True))(
        critics[:2], observation, action, y
    )[0]
    for found, critic in zip(gradient, critics[:2], strict=True):
        assert_slopes(found, slopes(loss, critic))


def test_a_deterministic_action_is_squashed(case: dict[str, Any]) -> None:
    found = off_policy.deterministic_action(case["policy"], case["observation"])
    assert_close(found, np.tanh(plain(case["policy"], case["observation"])), rtol=1e-4)
    far = off_policy.deterministic_action(case["policy"], 1e6 * case["observation"])
    assert np.max(np.abs(far)) <= 1.0


def test_the_policys_loss_is_minus_the_critics_mean(case: dict[str, Any]) -> None:
    """And its gradient goes through the action."""
    critic, observation = case["critics"][0], case["observation"]

    def loss(policy: Any) -> float:
        return -float(np.mean(plain_q(critic, observation, np.tanh(plain(policy, observation)))))

    found, gradient = jax.jit(jax.value_and_grad(off_policy.policy_loss))(
        case["policy"], critic, observation
    )
    assert_close(found, loss(case["policy"]), rtol=1e-4)
    assert_slopes(gradient, slopes(loss, case["policy"]))


# Updates


def config(**options: Any) -> sac.Config:
    small: dict[str, Any] = {
        "widths": (4,),
        "batch_size": 3,
        "replay_size": 40,
        "random_steps": 10,
        "reward_scale": 1.0,
    }
    return sac.Config(**{**small, **options})


def after(steps: int, options: sac.Config, seed: int = 0) -> Any:
    """SAC's state after so many steps were stored."""
    state = sac.init(options, SPEC, 1, seed)
    return off_policy.observe(options, state, numbered(0, steps)) if steps else state


def counting(
    config: sac.Config, learned: Any, batch: Batch, key: jax.Array, scale: Any
) -> tuple[Any, Any]:
    """In the place of a gradient step: keeps what it was given, the newest first."""

    def kept(old: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.roll(old, 1, axis=0).at[0].set(new)

    learned = {
        "count": learned["count"] + 1,
        "keys": kept(learned["keys"], key),
        "rows": kept(learned["rows"], batch.reward),
        "final": kept(learned["final"], batch.final),
    }
    return learned, {"train/count": learned["count"]}


def watched(steps: int, options: sac.Config, seed: int = 0) -> OffPolicy:
    """A state on which `counting` can be used."""
    b = options.batch_size
    learned = {
        "count": jnp.float32(0.0),
        "keys": jnp.zeros((12, 2), jnp.uint32),
        "rows": jnp.ones((12, b)),
        "final": jnp.zeros((12, b), bool),
    }
    return dataclasses.replace(after(steps, options, seed), learned=learned)


def test_how_many_steps_are_random_is_an_option() -> None:
    assert off_policy.random_steps(config(random_steps=0)) == 0
    assert off_policy.random_steps(config(random_steps=123)) == 123
    assert off_policy.random_steps(config(random_steps=None).suited("Hopper-v5")) == 1_000
    assert off_policy.random_steps(config(random_steps=None).suited("Ant-v5")) == 10_000


@pytest.mark.parametrize(("steps", "random"), [(0, True), (9, True), (10, False), (11, False)])
def test_actions_are_random_at_the_start(steps: int, random: bool) -> None:
    options = config()
    state = after(steps, options)
    policy = sac.act(options, SPEC, state)
    actor = off_policy.explore(options, SPEC, state, lambda: policy)
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
def test_an_update_has_as_many_gradient_steps_as_asked_for(
    per_update: int, per_step: float, updates: int
) -> None:
    """The mean of the counts 1 to K is measured."""
    options = config(steps_per_update=per_update, updates_per_step=per_step)
    state, metrics = off_policy.improve(options, watched(11, options), counting)
    assert int(state.learned["count"]) == updates
    assert_close(metrics.pop("train/count"), (updates + 1) / 2)
    assert metrics.pop("time/updating") > 0.0
    assert not metrics
    assert (state.step, state.iteration) == (11, 1)


def test_no_noise_and_no_batch_comes_twice() -> None:
    """Within an update, from one update to the next, and in the key that is left."""
    options = config(updates_per_step=6.0, batch_size=30)
    state = watched(40, options)
    seen = {tuple(np.asarray(state.key).tolist())}
    for _ in range(2):
        state, _ = off_policy.improve(options, state, counting)
        seen.add(tuple(np.asarray(state.key).tolist()))
    assert len(seen) == 3
    keys = [tuple(key) for key in np.asarray(state.learned["keys"]).tolist()]
    assert len(seen | set(keys)) == 3 + 12
    rows = [tuple(row) for row in np.asarray(state.learned["rows"]).tolist()]
    assert len(set(rows)) == 12


def test_another_seed_is_another_noise() -> None:
    options = config(updates_per_step=6.0, batch_size=30)
    first, second, again = (
        off_policy.improve(options, watched(40, options, seed), counting)[0].learned
        for seed in (0, 1, 0)
    )
    assert not np.any(np.all(first["keys"][:6] == second["keys"][:6], axis=1))
    assert not np.array_equal(first["rows"][:6], second["rows"][:6])
    assert_equal_trees(first, again)


def test_several_gradient_steps_are_that_many_updates_of_one() -> None:
    """The same keys, batches and order, to the bit."""
    at_once, apart = config(updates_per_step=6.0), config(updates_per_step=1.0)
    wanted, _ = off_policy.improve(at_once, watched(20, at_once), counting)
    state = watched(20, apart)
    for _ in range(6):
        state, _ = off_policy.improve(apart, state, counting)
    assert_equal_trees(state.learned, wanted.learned)
    np.testing.assert_array_equal(state.key, wanted.key)
    assert (state.iteration, wanted.iteration) == (6, 1)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_an_update_reads_the_option_about_time_limits(bootstrap: bool) -> None:
    """Step t is stored with reward −t, and bit 1 of t says that its time was up."""
    options = config(bootstrap_time_limits=bootstrap, batch_size=30, updates_per_step=6.0)
    learned = off_policy.improve(options, watched(20, options), counting)[0].learned
    step = np.rint(-np.asarray(learned["rows"][0])).astype(int)
    wanted = [t % 2 == 1 or (t % 4 == 2 and not bootstrap) for t in step]
    assert learned["final"][0].tolist() == wanted


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


def test_a_policy_file_holds_all_networks_but_targets() -> None:
    state = after(0, config())
    assert set(state.parameters()) == {"policy", "value", "temperature"}
    other = after(0, config(), seed=1)
    moved = state.start_from(other.parameters(), other.normalizer)
    assert_equal_trees(moved.learned, other.learned)
    assert moved.seed == state.seed


def test_the_bounds_of_a_fresh_state_are_the_environments() -> None:
    bounds = off_policy.init(config(), SPEC, 1, 0, None)["bounds"]
    np.testing.assert_array_equal(bounds.center, [1.0, 6.0])
    np.testing.assert_array_equal(bounds.reach, [2.0, 4.0])


def test_other_seeds_start_from_other_networks() -> None:
    first, second = (
        networks.init_uniform(off_policy.generator(seed), (3, 4, 1)) for seed in (0, 1)
    )
    assert not np.any(first[0].weight == second[0].weight)
