"""Products of categorical distributions, against an enumeration of all joint actions."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.equations import categorical, clipping, importance

COUNTS = [(3,), (4, 4), (2, 5, 3), (1, 2, 2)]
EPSILON = 0.4
M = 24
log_ratio_of = jax.jit(categorical.log_ratio, static_argnums=3)
kl_of = jax.jit(categorical.kl, static_argnums=2)
entropy_of = jax.jit(categorical.entropy, static_argnums=1)
every_count = pytest.mark.parametrize("counts", COUNTS, ids=str)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-4) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-6)


def probabilities(logits: Any, counts: tuple[int, ...]) -> list[Any]:
    """The probabilities of each dimension's values in one state, in double precision."""
    parts = np.split(np.asarray(logits, float), np.cumsum(counts)[:-1])
    return [np.exp(part) / np.exp(part).sum() for part in parts]


def joint(logits: Any, counts: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """The probability of every joint action in one state."""
    each = probabilities(logits, counts)
    return {
        action: float(np.prod([p[i] for p, i in zip(each, action, strict=True)]))
        for action in product(*map(range, counts))
    }


def samples(counts: tuple[int, ...], spread: float = 1.0) -> tuple[Any, Any, Any]:
    """Actions, logits and old logits of M states."""
    rng = np.random.default_rng(sum(counts))
    action = np.stack([rng.integers(k, size=M) for k in counts], axis=1)
    logits, old = spread * rng.standard_normal((2, M, sum(counts)))
    return np.float32(action), np.float32(logits), np.float32(old)


@every_count
def test_joint_ratio_is_that_of_the_enumerated_joint_actions(counts: tuple[int, ...]) -> None:
    action, logits, old = samples(counts)
    found = importance.ratio(importance.joint(log_ratio_of(action, logits, old, counts)))
    for row in range(M):
        chosen = tuple(int(i) for i in action[row])
        wanted = joint(logits[row], counts)[chosen] / joint(old[row], counts)[chosen]
        assert_close(found[row], wanted)


@every_count
def test_ratio_of_each_dimension_is_that_of_its_own_probabilities(counts: tuple[int, ...]) -> None:
    action, logits, old = samples(counts)
    found = np.exp(log_ratio_of(action, logits, old, counts))
    for row, d in np.ndindex(M, len(counts)):
        i = int(action[row, d])
        new, before = (probabilities(x[row], counts)[d][i] for x in (logits, old))
        assert_close(found[row, d], new / before)


@every_count
def test_kl_and_entropy_are_sums_over_the_enumerated_joint_actions(counts: tuple[int, ...]) -> None:
    _, logits, old = samples(counts)
    kl = kl_of(old, logits, counts)
    entropy = entropy_of(logits, counts)
    for row in range(M):
        new, before = joint(logits[row], counts), joint(old[row], counts)
        wanted = sum(before[a] * (np.log(before[a]) - np.log(new[a])) for a in before)
        assert_close(kl[row], wanted)
        assert_close(entropy[row], -sum(p * np.log(p) for p in new.values()))


def test_ratios_do_not_depend_on_the_level_of_logits() -> None:
    action, logits, old = samples((2, 5, 3))
    shift = np.float32([[7.0] * 2 + [-3.0] * 5 + [50.0] * 3])
    found = log_ratio_of(action, logits + shift, old, (2, 5, 3))
    np.testing.assert_allclose(found, log_ratio_of(action, logits, old, (2, 5, 3)), atol=1e-4)


@every_count
def test_same_policy_has_ratio_one_and_no_divergence(counts: tuple[int, ...]) -> None:
    action, logits, _ = samples(counts)
    assert not np.any(log_ratio_of(action, logits, logits, counts))
    assert not np.any(kl_of(logits, logits, counts))


def test_one_dimension_is_clipped_as_ppo_does() -> None:
    action, logits, old = samples((5,))
    advantage = np.random.default_rng(0).standard_normal(M).astype(np.float32)
    log_ratio = log_ratio_of(action, logits, old, (5,))
    found = clipping.dimension_clip(log_ratio, advantage, EPSILON)
    rho, a = np.exp(np.asarray(log_ratio, float))[:, 0], np.asarray(advantage)
    ppo = np.minimum(rho * a, np.clip(rho, 1.0 - EPSILON, 1.0 + EPSILON) * a)
    assert_close(found * a, ppo)
    assert_close(found, clipping.joint_clip(log_ratio, advantage, EPSILON))


@pytest.mark.parametrize("counts", [(4, 4), (2, 5, 3)], ids=str)
def test_each_dimensions_ratio_is_clipped_by_itself(counts: tuple[int, ...]) -> None:
    action, logits, old = samples(counts)
    advantage = np.random.default_rng(0).standard_normal(M)
    wanted = []
    for row in range(M):
        weight = 1.0
        for d in range(len(counts)):
            i = int(action[row, d])
            new, before = (probabilities(x[row], counts)[d][i] for x in (logits, old))
            rho = new / before
            weight *= min(rho, 1.0 + EPSILON) if advantage[row] > 0 else max(rho, 1.0 - EPSILON)
        wanted.append(weight)
    log_ratio = log_ratio_of(action, logits, old, counts)
    assert_close(clipping.dimension_clip(log_ratio, np.float32(advantage), EPSILON), wanted)


@every_count
def test_gradients_match_finite_differences(counts: tuple[int, ...]) -> None:
    """Of the weighted log-ratios, the KL divergence and the entropy, in double precision."""
    with jax.enable_x64(True):
        action, logits, old = (np.asarray(x, float) for x in samples(counts))
        weight = np.random.default_rng(1).standard_normal((M, len(counts)))

        @jax.jit
        def total(z: Any) -> Any:
            ratios = jnp.sum(weight * log_ratio_of(action, z, old, counts))
            entropy = entropy_of(z, counts)
            return ratios + jnp.sum(kl_of(old, z, counts)) + 2.0 * jnp.sum(entropy)

        gradient, step = np.asarray(jax.jit(jax.grad(total))(logits)), 1e-5
        for row, k in ((0, 0), (3, sum(counts) - 1), (7, sum(counts) // 2)):
            moved = np.zeros_like(logits)
            moved[row, k] = step
            slope = (total(logits + moved) - total(logits - moved)) / (2.0 * step)
            np.testing.assert_allclose(gradient[row, k], slope, rtol=1e-6, atol=1e-8)


@every_count
def test_extreme_logits_give_finite_values_and_gradients(counts: tuple[int, ...]) -> None:
    action, logits, old = samples(counts, spread=1e4)

    def total(z: Any) -> Any:
        entropy = jnp.sum(entropy_of(z, counts))
        ratios = jnp.sum(log_ratio_of(action, z, old, counts))
        return ratios + jnp.sum(kl_of(old, z, counts)) + entropy

    value, gradient = jax.jit(jax.value_and_grad(total))(logits)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
