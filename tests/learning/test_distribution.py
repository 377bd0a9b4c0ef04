"""The two policies in the stages of learning: losses, gradients, metrics and the replay."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from disc.algos import disc, ppo
from disc.learning import actor_critic, networks, snapshot
from disc.learning import replay as replays
from disc.learning.distribution import CategoricalPolicy
from disc.learning.types import Rows, Scale
from disc.types import Choices, Spec
from tests.support.rollouts import rollout_of

COUNTS, S, D, P, M = (2, 3, 2), 3, 3, 7, 16
SPEC = Spec(
    S, D, (S,), (D,), np.zeros(D, np.float32), np.float32(COUNTS) - 1.0,
    Choices(COUNTS, np.zeros(D, np.int64), "int64"),
)  # fmt: skip


def policy(seed: int = 0) -> CategoricalPolicy:
    rng = np.random.default_rng(seed)
    return CategoricalPolicy(networks.init_mlp(rng, (S, 5, P), 1.0), COUNTS)


def rows(dtype: Any = np.float32) -> Rows:
    """Samples of a policy that differs from the current one."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((M, S))
    action = np.stack([rng.integers(k, size=M) for k in COUNTS], axis=1)
    old = 0.5 * rng.standard_normal((M, P))
    columns = (x, action, old, np.full((M, D), np.nan), rng.standard_normal(M))
    rest = (*rng.standard_normal((2, M)), rng.uniform(0.5, 1.0, M), np.ones(M))
    return Rows(*(jnp.asarray(np.asarray(column, dtype)) for column in (*columns, *rest)))


@pytest.mark.parametrize(
    ("module", "config"),
    [
        (ppo, ppo.Config()),
        (disc, disc.Config(penalty="is", epsilon_b=0.1, center="behaviour")),
        (disc, disc.Config(penalty="kl", epsilon_b=0.1, center="start")),
    ],
)
def test_gradient_of_the_loss_matches_finite_differences(module: Any, config: Any) -> None:
    with jax.enable_x64(True):
        samples = rows(np.float64)
        start = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), policy())
        theta, unravel = ravel_pytree(start)
        denominator = module.policy_loss(config, start, samples, 2.0).denominator

        @jax.jit
        def loss(theta: Any) -> Any:
            parts = module.policy_loss(config, unravel(theta), samples, 2.0)
            return parts.numerator / denominator + parts.penalty

        gradient, step = np.asarray(jax.grad(loss)(theta)), 1e-6
        for i in range(0, len(theta), 5):
            moved = jnp.zeros_like(theta).at[i].set(step)
            slope = (loss(theta + moved) - loss(theta - moved)) / (2.0 * step)
            np.testing.assert_allclose(gradient[i], slope, rtol=1e-5, atol=1e-7)


def test_metrics_of_a_loss_match_the_joint_probabilities() -> None:
    samples, current = rows(), policy()
    parts = jax.jit(lambda p, r: disc.policy_loss(disc.Config(), p, r, 1.0))(current, samples)
    logits = np.asarray(current.output(samples.observation), float)
    for row in range(M):
        rho = 1.0
        kl = entropy = 0.0
        for d, (a, b) in enumerate(((0, 2), (2, 5), (5, 7))):
            new, old = (np.exp(z[a:b]) for z in (logits[row], np.asarray(samples.mean[row], float)))
            new, old = new / new.sum(), old / old.sum()
            i = int(samples.action[row, d])
            rho *= new[i] / old[i]
            kl += np.sum(old * np.log(old / new))
            entropy -= np.sum(new * np.log(new))
        found = {name: float(x[row]) for name, x in parts.measured.items()}
        assert found["rho"] == pytest.approx(1.0 + abs(rho - 1.0), rel=1e-4)
        assert found["j_is"] == pytest.approx(0.5 * np.log(rho) ** 2, rel=1e-3, abs=1e-6)
        assert found["kl"] == pytest.approx(kl, rel=1e-3)
        assert found["entropy"] == pytest.approx(entropy, rel=1e-4)


def test_snapshot_reads_ratios_of_stored_logits() -> None:
    samples, current = rows(), policy()
    columns = {
        "observation": np.asarray(samples.observation),
        "next_observation": np.asarray(samples.observation),
        "action": np.asarray(samples.action),
        "mean": np.asarray(samples.mean),
        "reward": np.zeros(M, np.float32),
        "terminated": np.zeros(M, np.bool_),
        "truncated": np.zeros(M, np.bool_),
    }
    replay = replays.push(replays.init(2, M, SPEC), rollout_of(columns), 0)
    assert replay.mean.shape == (2, M, P)
    scale = Scale(np.zeros(S, np.float32), np.ones(S, np.float32), np.float32(1.0))
    found = jax.jit(snapshot.ratios)(current, scale, replay)
    log_ratio, output = actor_critic.ratio_of(current, samples)
    np.testing.assert_allclose(found.log_rho[0], log_ratio.sum(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.output[0], output, rtol=1e-4, atol=1e-5)
    deviation = np.mean(np.abs(np.exp(log_ratio) - 1.0))
    assert float(found.dimension_deviation[0]) == pytest.approx(deviation, rel=1e-4)
    reference = snapshot.current(current, found)
    assert reference.log_std.shape == (2, D)
    assert np.isnan(reference.log_std).all()


def test_initial_policy_is_nearly_uniform() -> None:
    rng = np.random.default_rng(0)
    found, _ = actor_critic.init_networks(disc.Config(), SPEC, 0)
    assert isinstance(found, CategoricalPolicy)
    logits = found.output(jnp.float32(rng.standard_normal((50, S))))
    assert logits.shape == (50, P)
    assert np.max(np.abs(logits)) < 0.1
