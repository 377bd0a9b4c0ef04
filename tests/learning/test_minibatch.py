"""The chunks of a minibatch sum to one plain gradient step."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.algos import disc, ppo
from disc.learning import actor_critic, device, minibatch, networks, optim
from disc.learning.distribution import GaussianPolicy
from disc.learning.minibatch import Draw
from disc.learning.types import BatchReplay, Estimate, Reference, Scale, Table
from tests.support.compare import assert_close_trees, assert_equal_trees
from tests.support.minibatch import ROWS, STEPS, D, L, N, S, draw

ALPHA, RATE = 3.0, 0.01


def mlp(rng: np.random.Generator, outputs: int) -> networks.MLP:
    return networks.init_mlp(rng, (S, 8, outputs), head_gain=0.5)


def policy() -> GaussianPolicy:
    return GaussianPolicy(mlp(np.random.default_rng(1), D), device.put([-0.1, 0.2], np.float32))


def value() -> networks.MLP:
    return mlp(np.random.default_rng(2), 1)


def table(length: int = L) -> Table:
    """Batches of policies near `policy()`, some of their ratios beyond the clip."""
    rng = np.random.default_rng(3)

    def normal(*shape: int) -> Any:
        return rng.standard_normal((length, *shape)).astype(np.float32)

    scale = Scale(np.float32([0.5, 0.0, -1.0]), np.float32([2.0, 1.0, 0.5]), np.float32(1))
    observation = normal(N, S)
    inputs = (observation - scale.mean[None, None]) * scale.inverse_std[None, None]
    mean = np.asarray(networks.forward(policy().mean, inputs.reshape(-1, S)))
    mean = mean.reshape(length, N, D) + 0.6 * normal(N, D)
    log_std = np.asarray(policy().log_std)[None] + 0.1 * normal(D)
    action = mean + np.exp(log_std)[:, None] * normal(N, D)
    flags = np.zeros((length, N), bool)
    columns = (observation, observation, action, mean, log_std, normal(N), flags, flags, flags)
    return Table(
        BatchReplay(*columns, age=np.zeros(length, np.int32)),
        scale,
        Estimate(
            included=np.ones(length, bool),
            advantage=2.0 + normal(N),
            weight=np.minimum(np.float32(1.0), np.exp(0.3 * normal(N))),
            target=normal(N),
            value=0.5 * normal(N),
            reference=Reference(mean + 0.1 * normal(N, D), log_std + 0.1 * normal(D)),
            measured={},
        ),
    )


class Minibatch(NamedTuple):
    """The real rows of a minibatch, all at once."""

    observation: Any
    action: Any
    mean: Any
    log_std: Any
    advantage: Any
    target: Any
    value: Any
    weight: Any


def gather(data: Table, index: Any) -> Minibatch:
    slot, t = index // N, index % N
    stored, estimate = data.replay, data.estimate
    x = (stored.observation[slot, t] - data.scale.mean[None]) * data.scale.inverse_std[None]
    a, w = estimate.advantage[slot, t], estimate.weight[slot, t]
    return Minibatch(
        observation=np.clip(x, -10.0, 10.0),
        action=stored.action[slot, t],
        mean=estimate.reference.mean[slot, t],
        log_std=estimate.reference.log_std[slot],
        advantage=(a - np.average(a, weights=w)) / (np.std(w * a) + 1e-8),
        target=estimate.target[slot, t],
        value=estimate.value[slot, t],
        weight=w,
    )


def disc_parts(
    config: disc.Config, parameters: GaussianPolicy, batch: Minibatch
) -> tuple[Any, Any]:
    """−Σ wÂ / stop_gradient(Σ w), and the penalty of the newest rows, all at once."""

    def log_density(mean: Any, log_std: Any) -> Any:
        return -0.5 * ((batch.action - mean) / jnp.exp(log_std)) ** 2 - log_std

    mean = networks.forward(parameters.mean, batch.observation)
    log_std = jnp.broadcast_to(parameters.log_std[None], mean.shape)
    ratio = jnp.exp(log_density(mean, log_std) - log_density(batch.mean, batch.log_std))
    kappa = jnp.sign(batch.advantage)[:, None]
    bounded = jnp.clip(ratio, 1.0 - config.epsilon, 1.0 + config.epsilon)
    weight = jnp.prod(kappa * jnp.minimum(kappa * ratio, kappa * bounded), axis=1)
    if config.center == "start":
        weight = weight * batch.weight
    total = jnp.sum(weight) if config.divide_by_mean_ratio else len(weight)
    if config.penalty == "is":
        penalty = 0.5 * jnp.mean(jnp.sum(jnp.log(ratio[:ROWS]), axis=1) ** 2)
    else:
        distance = (batch.mean - mean) ** 2 + jnp.exp(2.0 * batch.log_std)
        kl = log_std - batch.log_std + 0.5 * distance / jnp.exp(2.0 * log_std) - 0.5
        penalty = jnp.mean(jnp.sum(kl[:ROWS], axis=1))
    return -jnp.sum(weight * batch.advantage) / jax.lax.stop_gradient(total), penalty


def disc_loss(config: disc.Config, parameters: GaussianPolicy, batch: Minibatch) -> Any:
    """The objective and α times the penalty."""
    objective, penalty = disc_parts(config, parameters, batch)
    return objective + ALPHA * penalty


def ppo_loss(config: ppo.Config, parameters: GaussianPolicy, batch: Minibatch) -> Any:
    """The mean of −min(ρÂ, clip(ρ)Â)."""
    mean = networks.forward(parameters.mean, batch.observation)
    z, old_z = (
        (batch.action - mean) / jnp.exp(parameters.log_std)[None],
        (batch.action - batch.mean) / jnp.exp(batch.log_std),
    )
    per_dimension = 0.5 * (old_z**2 - z**2) + batch.log_std - parameters.log_std[None]
    ratio = jnp.exp(jnp.sum(per_dimension, axis=1))
    bounded = jnp.clip(ratio, 1.0 - config.epsilon, 1.0 + config.epsilon)
    return -jnp.mean(jnp.minimum(ratio * batch.advantage, bounded * batch.advantage))


def value_loss(config: disc.Config, parameters: networks.MLP, batch: Minibatch) -> Any:
    """½ · ½ · the mean of the larger squared error."""
    v = networks.forward(parameters, batch.observation)[:, 0]
    held = jnp.clip(v, batch.value - config.epsilon, batch.value + config.epsilon)
    worse = jnp.maximum((v - batch.target) ** 2, (held - batch.target) ** 2)
    return 0.5 * 0.5 * jnp.mean(worse)


def adam(gradient: Any, parameters: Any, batches: list[Minibatch]) -> Any:
    """Adam as in its paper, one plain gradient per minibatch: −Δθ, m and v."""
    leaves, tree = jax.tree.flatten(jax.tree.map(np.asarray, parameters))
    first, second = [0.0] * len(leaves), [0.0] * len(leaves)
    for t, batch in enumerate(batches, start=1):
        slopes = jax.tree.leaves(gradient(jax.tree.unflatten(tree, leaves), batch))
        for i, g in enumerate(map(np.asarray, slopes)):
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g**2
            mean, spread = first[i] / (1 - 0.9**t), np.sqrt(second[i] / (1 - 0.999**t))
            leaves[i] = leaves[i] - RATE * mean / (spread + 1e-5)
    start = jax.tree.leaves(parameters)
    return [x - y for x, y in zip(start, leaves, strict=True)], first, second


def assert_steps_agree(
    loss: Any, gradient: Any, parameters: Any, data: Table, drawn: Draw, config: Any
) -> None:
    learner = optim.init(parameters)
    learner, _ = minibatch.descend(loss, config, ROWS, learner, data, drawn, RATE, ALPHA)
    moved = jax.tree.map(np.subtract, parameters, learner.parameters)
    found = (moved, learner.moments.mu, learner.moments.nu)
    batches = [gather(data, index) for index in drawn.rows[:, : ROWS * drawn.batches]]
    wanted = adam(gradient, parameters, batches)
    # Adam is nearly invariant to the gradient's scale, so the moments are compared as well.
    for tree, leaves in zip(found, wanted, strict=True):
        for x, y in zip(jax.tree.leaves(tree), leaves, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3 * np.max(np.abs(y)))


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(
    "options",
    [{}, {"center": "behaviour"}, {"penalty": "kl"}, {"divide_by_mean_ratio": False}],
    ids=["start", "behaviour", "kl", "mean"],
)
def test_disc_steps_match_plain_gradient_steps(n: int, options: dict[str, Any]) -> None:
    config = disc.Config(**options)
    gradient = jax.jit(jax.grad(partial(disc_loss, config)))
    assert_steps_agree(disc.policy_loss, gradient, policy(), table(), draw(n), config)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_value_steps_match_plain_gradient_steps(n: int) -> None:
    config = disc.Config()
    gradient = jax.jit(jax.grad(partial(value_loss, config)))
    assert_steps_agree(actor_critic.value_loss, gradient, value(), table(), draw(n), config)


def test_ppo_steps_on_one_batch_match_plain_gradient_steps() -> None:
    one = minibatch.draw(np.random.default_rng(0), np.int32([0]), np.ones(1, bool), N, 1, STEPS)
    config = ppo.Config()
    gradient = jax.jit(jax.grad(partial(ppo_loss, config)))
    assert_steps_agree(ppo.policy_loss, gradient, policy(), table(1), one, config)


def descend(drawn: Draw, data: Table) -> Any:
    learner, config = optim.init(policy()), disc.Config()
    return minibatch.descend(disc.policy_loss, config, ROWS, learner, data, drawn, RATE, ALPHA)


def test_sample_table_has_clipped_and_unclipped_dimensions() -> None:
    _, measured = descend(draw(5), table())
    share = measured["clipped_dimensions"]
    assert np.all((share > 0.1) & (share < 0.9))


def test_only_the_newest_rows_are_penalised() -> None:
    """With zero advantages only the penalty moves the policy, and old rows don't matter."""
    data = table()
    data = data._replace(estimate=data.estimate._replace(advantage=np.zeros((L, N), np.float32)))
    alone, _ = descend(draw(1), data)
    others, _ = descend(draw(5), data)
    assert_close_trees(alone.parameters, others.parameters, rtol=0.0, atol=1e-6)


def test_padding_changes_nothing() -> None:
    drawn = draw(2)
    padded = drawn.rows.copy()
    padded[:, 2 * ROWS :] = np.random.default_rng(0).integers(L * N, size=(STEPS, 5 * ROWS))
    results = [descend(Draw(rows, 2), table()) for rows in (drawn.rows, padded)]
    assert_equal_trees(*results)


def test_metrics_are_means_over_unpadded_rows() -> None:
    data, drawn, config = table(), draw(4), disc.Config(value_clip=False)
    learner, rate = optim.init(value()), 0.0
    _, measured = minibatch.descend(
        actor_critic.value_loss, config, ROWS, learner, data, drawn, rate, ()
    )
    for step, index in enumerate(drawn.rows[:, : 4 * ROWS]):
        batch = gather(data, index)
        v = networks.forward(value(), batch.observation)[:, 0]
        loss = np.asarray((v - batch.target) ** 2) / 2
        np.testing.assert_allclose(measured["value_loss"][step], loss.mean(), rtol=1e-5)
        newest = measured["newest/value_loss"][step]
        np.testing.assert_allclose(newest, loss[:ROWS].mean(), rtol=1e-5)


def test_inputs_that_change_in_a_run_do_not_recompile() -> None:
    data, config = table(), disc.Config()
    learner, _ = descend(draw(1), data)
    compiled = minibatch.descend._cache_size()
    for n in range(1, L + 1):
        drawn, rate, alpha = draw(n, seed=n), RATE / n, ALPHA * n
        learner, _ = minibatch.descend(
            disc.policy_loss, config, ROWS, learner, data, drawn, rate, alpha
        )
    assert minibatch.descend._cache_size() == compiled
