"""GAE and GAE-V against the sums that define them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.equations import advantages
from disc.learning import replay, snapshot
from disc.types import Spec

GAMMA, LAM = 0.97, 0.9
SPEC = Spec(1, 1, (1,), (1,), np.float32([-1]), np.float32([1]))


def discounts(terminated: Any, truncated: Any, border: Any, **options: Any) -> Any:
    """`discount` and `decay` of one batch with these flags, (T,) each."""
    flags = {"terminated": terminated, "truncated": truncated, "border": border}
    stored = replay.init(1, len(terminated), SPEC)._replace(
        **{name: jnp.asarray(flag)[None] for name, flag in flags.items()}
    )
    options = {"gamma": GAMMA, "lam": LAM, "bootstrap_time_limits": True, **options}
    return tuple(x[0] for x in snapshot.discounts(stored, **options))


class Trajectory:
    """Steps of a batch with ends of every kind, and their advantage by definition."""

    def __init__(self, seed: int, steps: int = 40) -> None:
        rng = np.random.default_rng(seed)
        self.steps = steps
        self.reward, self.value, self.next_value = rng.standard_normal((3, steps))
        self.terminated, self.truncated, self.border = rng.random((3, steps)) < 0.08
        self.border[-1] = True
        self.stops = self.terminated | self.truncated | self.border
        # Within an episode the next value is the next row's; at an end it is not.
        inside = np.flatnonzero(~self.stops)
        self.next_value[inside] = self.value[inside + 1]
        self.rho = np.exp(rng.standard_normal(steps))

    def arguments(self) -> tuple[Any, ...]:
        discount, decay = discounts(self.terminated, self.truncated, self.border)
        reward, value, next_value = map(jnp.asarray, (self.reward, self.value, self.next_value))
        return reward, discount, decay, value, next_value

    def delta(self, t: int) -> float:
        discount = 0.0 if self.terminated[t] else GAMMA
        return self.reward[t] + discount * self.next_value[t] - self.value[t]

    def last(self, t: int) -> int:
        """T − 1: the last step that the trajectory of t reaches."""
        return t + int(np.argmax(self.stops[t:]))

    def advantage(self, rho: Any) -> Any:
        """Σ_l (∏_{i=t+1..l} min(1, ρ_i)) (γλ)^{l−t} δ_l (eq. 7)."""
        result = np.zeros(self.steps)
        for t in range(self.steps):
            for j in range(t, self.last(t) + 1):
                trace = np.prod(np.minimum(1.0, rho[t + 1 : j + 1]))
                result[t] += trace * (GAMMA * LAM) ** (j - t) * self.delta(j)
        return result

    def v_trace(self) -> Any:
        """V + Σ_l γ^{l−t} (∏_{i=t..l−1} c_i) min(1, ρ_l) δ_l, c = λ min(1, ρ).

        As in Espeholt et al. (2018). The paper's eq. 6 has c_l in place of min(1, ρ_l), one λ
        too many: its target would not equal GAE's for ρ = 1, as the paper says it does.
        """
        result = self.value.copy()
        for t in range(self.steps):
            for j in range(t, self.last(t) + 1):
                c = np.prod(LAM * np.minimum(1.0, self.rho[t:j]))
                weight = GAMMA ** (j - t) * c * min(1.0, self.rho[j])
                result[t] += weight * self.delta(j)
        return result


SEEDS = pytest.mark.parametrize("seed", range(4))


def assert_close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_sample_trajectories_contain_every_kind_of_end() -> None:
    flags = [(t.terminated, t.truncated, t.border) for t in map(Trajectory, range(4))]
    terminated, truncated, border = (np.concatenate(x) for x in zip(*flags, strict=True))
    alone = [terminated & ~truncated & ~border, ~terminated & truncated & ~border]
    assert all(np.any(x) for x in [*alone, ~terminated & ~truncated & border])


@SEEDS
def test_gae_matches_its_definition(seed: int) -> None:
    trajectory = Trajectory(seed)
    wanted = trajectory.advantage(np.ones(trajectory.steps))
    advantage, target = advantages.gae(*trajectory.arguments())
    assert_close(advantage, wanted)
    assert_close(target, trajectory.value + wanted)


@SEEDS
def test_gae_v_matches_its_definition(seed: int) -> None:
    trajectory = Trajectory(seed)
    advantage, _ = advantages.gae_v(*trajectory.arguments(), jnp.asarray(trajectory.rho))
    assert_close(advantage, trajectory.advantage(trajectory.rho))


@SEEDS
def test_gae_v_target_is_v_trace(seed: int) -> None:
    trajectory = Trajectory(seed)
    _, target = advantages.gae_v(*trajectory.arguments(), jnp.asarray(trajectory.rho))
    assert_close(target, trajectory.v_trace())


@SEEDS
@pytest.mark.parametrize("rho", [1.0, 7.0])
def test_gae_v_with_weights_of_at_least_one_equals_gae(seed: int, rho: float) -> None:
    arguments = Trajectory(seed).arguments()
    found = advantages.gae_v(*arguments, jnp.full_like(arguments[0], rho))
    for x, y in zip(found, advantages.gae(*arguments), strict=True):
        np.testing.assert_array_equal(x, y)


def test_gae_v_of_three_steps_matches_hand_calculation() -> None:
    """γ = λ = ½: δ = (−2, 3, 1), so that 3 + ½·½·¼·1 = 3.0625 and −2 + ½·½·½·3.0625."""
    reward, value, next_value = jnp.float32([[1, 2, 3], [4, 2, 6], [2, 6, 8]])
    discount, decay = jnp.float32([0.5, 0.5, 0.5]), jnp.float32([0.25, 0.25, 0])
    rho = jnp.float32([2, 0.5, 0.25])
    advantage, target = advantages.gae_v(reward, discount, decay, value, next_value, rho)
    np.testing.assert_array_equal(advantage, [-1.6171875, 3.0625, 1])
    np.testing.assert_array_equal(target, [2.3828125, 3.53125, 6.25])


def test_environments_in_a_batch_are_independent() -> None:
    lanes = [(*t.arguments(), jnp.asarray(t.rho)) for t in map(Trajectory, range(3))]
    together = advantages.gae_v(*(jnp.stack(column, axis=1) for column in zip(*lanes, strict=True)))
    for e, lane in enumerate(lanes):
        for whole, alone in zip(together, advantages.gae_v(*lane), strict=True):
            assert_close(whole[:, e], alone)


def test_terminated_takes_precedence_over_truncated() -> None:
    """A step that is both has no next value."""
    both = np.array([True, False])
    discount, decay = discounts(both, both, np.array([False, True]))
    assert_close(discount, [0.0, GAMMA])
    assert_close(decay, [0.0, 0.0])


@pytest.mark.parametrize("bootstrap", [True, False])
def test_value_of_a_time_limited_cycle_needs_bootstrapping(bootstrap: bool) -> None:
    """One state, constant reward 1, cut every 5 steps: V = 1/(1 − γ) if time limits bootstrap.

    The batch stops in the middle of an episode.
    """
    gamma, steps = 0.9, 23
    time = np.arange(steps)
    no, truncated, border = np.zeros(steps, bool), time % 5 == 4, time == steps - 1
    discount, decay = discounts(no, truncated, border, gamma=gamma, bootstrap_time_limits=bootstrap)
    value, gae = jnp.zeros(steps), jax.jit(advantages.gae)
    for _ in range(300):
        _, target = gae(jnp.ones(steps), discount, decay, value, value)
        value = jnp.full(steps, jnp.mean(target))
    truth = 1.0 / (1.0 - gamma)
    if bootstrap:
        assert_close(value, np.full(steps, truth))
    else:
        assert float(value[0]) < 0.5 * truth


def test_standardize_uses_the_weighted_mean_and_std(rng: np.random.Generator) -> None:
    advantage, weight = 3.0 + 2.0 * rng.standard_normal(50), rng.random(50)
    center = np.average(advantage, weights=weight)
    wanted = (advantage - center) / np.std(weight * advantage)
    found = advantages.standardize(jnp.asarray(advantage), jnp.asarray(weight), jnp.ones(50))
    assert_close(found, wanted)


def test_standardize_with_equal_weights_is_the_z_score(rng: np.random.Generator) -> None:
    advantage = 3.0 + 2.0 * rng.standard_normal(50)
    found = advantages.standardize(jnp.asarray(advantage), jnp.ones(50), jnp.ones(50))
    assert_close(found, (advantage - advantage.mean()) / advantage.std())


def test_standardize_ignores_padding(rng: np.random.Generator) -> None:
    advantage, weight = (jnp.asarray(x, jnp.float32) for x in rng.random((2, 50)))
    mask = jnp.arange(50) < 30
    found = advantages.standardize(advantage, weight, mask.astype(jnp.float32))
    assert_close(found[:30], advantages.standardize(advantage[:30], weight[:30], jnp.ones(30)))
    assert not np.any(found[30:])
