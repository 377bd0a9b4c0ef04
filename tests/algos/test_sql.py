"""SQL's gradient steps against finite differences and triple loops in NumPy."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import DiscError
from disc.algos import sql
from disc.algos.sql import Config, Learned
from disc.learning import optim
from disc.types import Spec
from tests.support.compare import assert_close, assert_equal_trees
from tests.support.learners import (
    assert_first_step,
    assert_gradient,
    assert_moved,
    assert_starts_from,
)
from tests.support.networks import layers
from tests.support.plain import differences, doubles, least, q, run, squares, targets
from tests.support.transitions import IDENTITY, KEY, SPEC, B, D, S, batch, compiled, rollout

OPTIONS: dict[str, Any] = {"widths": (5, 4), "learning_rate": 0.01, "gamma": 0.9}
OPTIONS |= {"reward_scale": 3.0, "replay_size": 20, "batch_size": B, "random_steps": 4}
K, F, U = 5, 4, 3
COUNTS = {"value_particles": K, "fixed_particles": F, "moved_particles": U, "target_interval": 3}
CONFIG = Config(**OPTIONS, **COUNTS)
POLICY, CRITIC = ((S + D, 5), (5, 4), (4, D)), ((S + D, 5), (5, 4), (4, 1))
UNIFORM, NORMAL = jax.random.split(KEY)

step = compiled(sql.learn)


def learned(updates: int = 0) -> Learned:
    """Fresh optimisers with this update count; the targets differ from the critics."""
    found = sql.rest(layers(14, *POLICY), (layers(3, *CRITIC), layers(13, *CRITIC)))
    elsewhere = layers(16, *CRITIC), layers(17, *CRITIC)
    return found._replace(target=elsewhere, updates=jnp.int32(updates))


# The critics


def test_critic_gradient_matches_finite_differences() -> None:
    """The target is c·r + γ log ∫ exp min Q̄, from five uniform actions in a square of area 4."""
    before, rows = learned(), doubles(batch())
    after, measured = step(CONFIG, before, batch(), KEY, IDENTITY)
    plain, x = doubles(before), rows.next_observation
    actions = np.asarray(jax.random.uniform(UNIFORM, (B, K, D), minval=-1.0, maxval=1.0), float)
    exponentials = [np.exp(least(plain.target, x, actions[:, k])) for k in range(K)]
    soft = np.log(4.0 * sum(exponentials) / K)
    y = targets(rows, soft, 0.9, 3.0)
    critics = plain.value.parameters
    assert_gradient(after.value, differences(lambda c: squares(c, rows, y), critics))
    assert_first_step(before.value, after.value, 0.01)
    assert_close(measured["train/value_loss"], squares(critics, rows, y))
    assert_close(measured["train/soft_value"], np.mean(soft))


def test_targets_are_copied_at_every_third_step_only() -> None:
    now = learned()
    for n in range(1, 8):
        before = now
        now, _ = step(CONFIG, before, batch(n), KEY, IDENTITY)
        assert now.updates == n
        assert_equal_trees(now.target, before.target if n % 3 else now.value.parameters)
        assert_moved(before.value, now.value)


# The sampler


def log_density(critics: Any, x: Any, action: Any) -> float:
    """Of one action before the tanh, up to a constant."""
    value = min(q(critic, x[None], action[None])[0] for critic in critics)
    return value + sum(math.log(1.0 - a**2 + 1e-6) for a in action)


def score(critics: Any, x: Any, action: Any) -> Any:
    return differences(lambda a: log_density(critics, x, a), action)


def test_score_is_the_gradient_of_the_log_density() -> None:
    critics, x = learned().value.parameters, batch().observation
    actions = np.float32(np.random.default_rng(2).uniform(-0.98, 0.98, (B, F, D)))
    slopes = jax.jit(jax.grad(sql.log_density, argnums=2, has_aux=True))
    found, mean = slopes(critics, x, actions)
    plain, rows, values = doubles(critics), np.asarray(x, float), []
    for m, i in np.ndindex(B, F):
        wanted = score(plain, rows[m], actions[m, i].astype(float))
        assert_close(found[m, i], wanted, rtol=1e-3)
    for i in range(F):
        values.append(least(plain, rows, actions[:, i].astype(float)))
    assert_close(mean, np.mean(values))


def sampled(policy: Any, x: Any, noise: Any) -> Any:
    """tanh(f(s, ξ)): (M, S), (M, K, D) → (M, K, D)."""
    return np.stack([np.tanh(run(policy, x, noise[:, k])) for k in range(noise.shape[1])], axis=1)


def direction(fixed: Any, moved: Any, scores: Any) -> Any:
    """φ of one state's moved particles, pair by pair."""
    square = np.zeros((len(fixed), len(moved)))
    for i, j in np.ndindex(square.shape):
        square[i, j] = sum((fixed[i, d] - moved[j, d]) ** 2 for d in range(D))
    middle = sorted(square.ravel())[(square.size - 1) // 2]
    width = max(middle / math.log(len(fixed)), 1e-3)
    phi = np.zeros(moved.shape)
    for j in range(len(moved)):
        for i in range(len(fixed)):
            kernel = math.exp(-square[i, j] / width)
            for d in range(D):
                slope = 2.0 * (moved[j, d] - fixed[i, d]) / width * kernel
                phi[j, d] += (kernel * scores[i, d] + slope) / len(fixed)
    return phi


def test_policy_gradient_follows_the_stein_direction() -> None:
    """−mean Jᵀφ, with φ from the updated critics and the old particles."""
    before, x = learned(), np.asarray(batch().observation, float)
    after, measured = step(CONFIG, before, batch(), KEY, IDENTITY)
    critics, start = doubles(after.value.parameters), doubles(before.policy.parameters)
    noise = np.asarray(jax.random.normal(NORMAL, (B, F + U, D)), float)
    fixed, moved = sampled(start, x, noise[:, :F]), sampled(start, x, noise[:, F:])
    assert np.max(np.abs(fixed)) < 0.99
    phi, values = np.zeros((B, U, D)), []
    for m in range(B):
        scores = [score(critics, x[m], action) for action in fixed[m]]
        phi[m] = direction(fixed[m], moved[m], np.array(scores))
    for i in range(F):
        values.append(least(critics, x, fixed[:, i]))

    def loss(policy: Any) -> Any:
        return -np.sum(sampled(policy, x, noise[:, F:]) * phi) / (B * U)

    assert_gradient(after.policy, differences(loss, start))
    assert_first_step(before.policy, after.policy, 0.01)
    assert_close(measured["train/objective"], np.mean(values))
    assert_close(measured["train/action_spread"], np.mean(np.std(fixed, axis=1)))


BEST = Spec(1, 1, (1,), (1,), np.float32([-1.0]), np.float32([1.0]))


def test_sampler_learns_to_sample_from_exp_q() -> None:
    """One step, reward −30 (a − ½)²: about N(½, 1/60), times 1 − a² as published."""
    config = Config(
        widths=(32, 32),
        learning_rate=3e-3,
        reward_scale=30.0,
        steps_per_update=600,
        updates_per_step=3.0,
        horizon=600,
        random_steps=0,
        replay_size=600,
        batch_size=32,
    )
    action = np.random.default_rng(0).uniform(-1.0, 1.0, (600, 1)).astype(np.float32)
    zeros, reward = np.zeros((600, 1), np.float32), -((action[:, 0] - 0.5) ** 2)
    columns = {"observation": zeros, "next_observation": zeros, "reward": reward}
    rows = rollout(600, **columns, action=action, terminated=np.ones(600, bool))
    state = sql.observe(config, sql.init(config, BEST, 1, 0), rows)

    def samples() -> Any:
        acting = sql.act(config, BEST, state)
        acting.seed(1)
        return acting.predict(np.zeros((2000, 1)))[0]

    first = samples()
    assert abs(np.mean(first) - 0.5) > 0.2
    state, _ = sql.update(config, state, 1)
    assert state.learned.updates == 1800
    grid = np.linspace(-1.0, 1.0, 2001)
    density = np.exp(-30.0 * (grid - 0.5) ** 2) * (1.0 - grid**2)
    mean = np.average(grid, weights=density)
    spread = math.sqrt(np.average((grid - mean) ** 2, weights=density))
    assert (mean, spread) == pytest.approx((0.5, 1.0 / math.sqrt(60.0)), abs=0.03)
    found = samples()
    assert np.mean(found) == pytest.approx(mean, abs=0.05)
    assert spread / 1.4 < np.std(found) < 1.4 * spread


# The state


def test_policy_always_samples() -> None:
    """Bounds of −1 to 3: 1 + 2 tanh(f(s, noise))."""
    spec = SPEC._replace(action_low=np.float32([-1, -1]), action_high=np.float32([3, 3]))
    state, x = sql.init(CONFIG, spec, 1, 0), np.asarray(batch().observation)
    acting = sql.act(CONFIG, spec, state)
    acting.seed(0)
    for deterministic in (True, False):
        one, other = (acting.predict(x, deterministic=deterministic)[0] for _ in range(2))
        assert np.mean(one != other) > 0.5
    noise = np.float32(np.random.default_rng(1).standard_normal((B, D)))
    wanted = 1.0 + 2.0 * np.tanh(run(doubles(state.policy.parameters), x, noise))
    assert type(sql.explore(CONFIG, spec, state)).__name__ == "Uniform"
    state = sql.observe(CONFIG, state, rollout(4))
    explore = sql.explore(CONFIG, spec, state)
    assert_close([explore(x[b], noise[b])[0] for b in range(B)], wanted)


def test_initial_state_has_expected_networks_and_targets() -> None:
    state = sql.init(CONFIG, SPEC, 1, 0)
    found = state.learned
    assert [x.weight.shape for x in found.policy.parameters] == list(POLICY)
    first, second = found.value.parameters
    for critic in (first, second):
        assert [x.weight.shape for x in critic] == list(CRITIC)
    assert np.all(first[0].weight != second[0].weight)
    assert_equal_trees(found.target, (first, second))
    assert found.updates == 0
    assert set(state.parameters()) == {"policy", "value"}


def test_targets_start_at_the_loaded_networks() -> None:
    state, other = sql.init(CONFIG, SPEC, 1, 0), learned(5)
    state = assert_starts_from(state, other)
    assert_equal_trees(state.learned.target, other.value.parameters)
    assert_equal_trees(state.policy, optim.init(other.policy.parameters))
    assert state.learned.updates == 0


# Options


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ("Hopper-v5", 30.0),
        ("HalfCheetah-v5", 30.0),
        ("Walker2d-v5", 10.0),
        ("Ant-v5", 300.0),
        ("Humanoid-v5", 100.0),
        ("HumanoidStandup-v5", 1.0),
        ("Pendulum-v1", 1.0),
    ],
)
def test_reward_scale_defaults_to_that_of_the_task(task: str, wanted: float) -> None:
    assert Config().for_task(task).reward_scale == wanted
    assert Config(reward_scale=7.0).for_task(task).reward_scale == 7.0


@pytest.mark.parametrize(
    "options",
    [
        {"fixed_particles": 1},
        {"moved_particles": 0},
        {"value_particles": 0},
        {"target_interval": 0},
        {"target_interval": 2.5},
        {"learning_rate": 0.0},
        {"reward_scale": -1.0},
        {"gamma": -0.1},
        {"steps_per_update": 0},
    ],
)
def test_invalid_options_raise(options: dict[str, Any]) -> None:
    with pytest.raises(DiscError, match=f"^{next(iter(options))} must be"):
        Config(**options)
