"""Handmade transitions, and networks and slopes in numpy, for tests of off-policy algorithms."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from disc import normalize, optim
from disc.networks import Linear, NormalizedLinear
from disc.off_policy import Batch
from disc.types import Rollout, Spec

S, D, B = 3, 2, 10
SPEC = Spec(S, D, (S,), (D,), np.full(D, -1.0, np.float32), np.full(D, 1.0, np.float32))
IDENTITY = normalize.scale(normalize.init(S, 1))
KEY = jax.random.PRNGKey(7)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def assert_close_trees(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert_close(x, y, rtol, atol)


def assert_equal_trees(found: Any, wanted: Any) -> None:
    assert_close_trees(found, wanted, rtol=0.0, atol=0.0)


def assert_gradient(after: optim.Learner, wanted: Any) -> None:
    """Adam's average after its first step is a tenth of the gradient."""
    assert after.moments.count == 1
    slopes = np.concatenate([np.ravel(x) for x in jax.tree.leaves(wanted)])
    assert np.mean(np.abs(slopes) > 1e-4) > 0.6, "too many units are dead for a test"
    assert_close_trees(jax.tree.map(lambda x: x / 0.1, after.moments.mu), wanted, atol=3e-6)


def assert_first_step(before: optim.Learner, after: optim.Learner, rate: float) -> None:
    """Adam's first step is the rate, against the gradient's sign."""
    assert before.moments.count == 0
    for old, new, mean in zip(
        *map(jax.tree.leaves, (before.parameters, after.parameters, after.moments.mu)), strict=True
    ):
        steep = np.abs(mean) > 1e-5
        assert_close((new - old)[steep], -rate * np.sign(mean)[steep], rtol=2e-3, atol=0.0)
        np.testing.assert_array_equal(new[mean == 0.0], old[mean == 0.0])


def assert_follows(before: Any, after: Any, network: Any, tau: float) -> None:
    """A target that moved by τ of its way to the network."""
    wanted = jax.tree.map(
        lambda old, new: old + tau * (new - old), *map(doubles, (before, network))
    )
    assert_close_trees(after, wanted, rtol=1e-6, atol=1e-7)
    assert np.any(jax.tree.leaves(after)[0] != jax.tree.leaves(before)[0])


def compiled(learn: Any) -> Any:
    """A gradient step, in a hurry: networks this small take longer to compile than to run."""
    options = {"xla_backend_optimization_level": 0}
    return jax.jit(learn, static_argnums=0, compiler_options=options)


def batch(seed: int = 0) -> Any:
    """Rows of which every third is final."""
    rng = np.random.default_rng(seed)
    here, there = rng.standard_normal((2, B, S))
    action, reward = rng.uniform(-0.95, 0.95, (B, D)), rng.standard_normal(B)
    columns = (np.float32(x) for x in (here, action, reward, there))
    return Batch(*columns, np.arange(B) % 3 == 1)


def rollout(steps: int, **columns: Any) -> Rollout:
    """Steps of no policy, the third the last of an episode."""
    rng = np.random.default_rng(0)
    x, following = rng.standard_normal((2, steps, S)).astype(np.float32)
    action = rng.uniform(-1.0, 1.0, (steps, D)).astype(np.float32)
    none = np.zeros(0, np.float32)
    facts = {
        "observation": x,
        "action": action,
        "mean": action,
        "log_std": np.full(D, np.nan, np.float32),
        "reward": rng.standard_normal(steps).astype(np.float32),
        "next_observation": following,
        "terminated": np.arange(steps) == 2,
        "truncated": np.zeros(steps, bool),
        "border": np.arange(steps) == steps - 1,
        "returns": none,
        "lengths": none,
    }
    return Rollout(**{**facts, **columns})


def layers(seed: int, *shapes: tuple[int, int], normalized: bool = False) -> Any:
    """A network with nothing at 0 or 1; all but the last layer normalised if asked for."""
    rng = np.random.default_rng(seed)
    result: list[Any] = []
    for i, (rows, columns) in enumerate(shapes):
        weight = rng.standard_normal((rows, columns)) * 1.3 / np.sqrt(rows)
        bias, scale, shift = 0.3 * rng.standard_normal((3, columns))
        arrays = [np.float32(x) for x in (weight, bias, 1.0 + scale, shift)]
        hidden = normalized and i < len(shapes) - 1
        result.append(NormalizedLinear(*arrays) if hidden else Linear(*arrays[:2]))
    return tuple(result)


# The same in numpy


def doubles(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, bool if x.dtype == bool else np.float64), tree)


def run(network: Any, x: Any, beside: Any = None, entry: int = 0) -> Any:
    """ReLU layers, (M, in) → (M, out); `beside` joins the inputs of the layer `entry`."""
    for i, layer in enumerate(network):
        if beside is not None and i == entry:
            x = np.concatenate([x, beside], axis=1)
        x = x @ layer.weight + layer.bias
        if len(layer) == 4:
            mean, variance = np.mean(x, axis=1), np.var(x, axis=1)
            x = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-6) * layer.scale + layer.shift
        if i < len(network) - 1:
            x = np.maximum(x, 0.0)
    return x


def q(critic: Any, x: Any, action: Any, entry: int = 0) -> Any:
    return run(critic, x, action, entry)[:, 0]


def least(critics: Any, x: Any, action: Any) -> Any:
    """The smaller of two, each of which is it somewhere."""
    first, second = (q(critic, x, action) for critic in critics)
    assert 0 < np.sum(first < second) < len(first), "one critic alone decides"
    return np.where(first < second, first, second)


def targets(batch: Any, following: Any, gamma: float, scale: float = 1.0) -> Any:
    """c·r + γ V(s'), row by row."""
    return np.array(
        [
            scale * reward + (0.0 if final else gamma * value)
            for reward, final, value in zip(batch.reward, batch.final, following, strict=True)
        ]
    )


def squares(critics: Any, batch: Any, y: Any, entry: int = 0) -> Any:
    """Σ_i mean (Q_i(s, a) − y)²."""
    found = (q(critic, batch.observation, batch.action, entry) for critic in critics)
    return sum(np.mean((x - y) ** 2) for x in found)


def differences(function: Any, tree: Any, step: float = 1e-6) -> Any:
    """Central differences by every number of a tree of arrays."""
    tree = jax.tree.map(np.array, tree)
    leaves, structure = jax.tree.flatten(tree)
    slopes = [np.zeros(leaf.shape) for leaf in leaves]
    for leaf, slope in zip(leaves, slopes, strict=True):
        for index in np.ndindex(leaf.shape):
            before, ends = leaf[index], []
            for moved in (before + step, before - step):
                leaf[index] = moved
                ends.append(function(tree))
            leaf[index] = before
            slope[index] = (ends[0] - ends[1]) / (2.0 * step)
    return jax.tree.unflatten(structure, slopes)
