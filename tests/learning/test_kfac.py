"""K-FAC's factors against loops; running averages and steps against hand calculations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.learning import kfac, networks
from disc.learning.distribution import GaussianPolicy
from disc.learning.kfac import Factors
from disc.learning.networks import Linear
from disc.learning.optim import Learner
from tests.support.compare import assert_equal_trees
from tests.support.networks import perceptron
from tests.support.plain import elu, elu_slope, tanh_slope

SLOPES = {
    "tanh": (jnp.tanh, np.tanh, tanh_slope),
    "elu": (jax.nn.elu, elu, elu_slope),
}
ACTIVATIONS = pytest.mark.parametrize("activation", list(SLOPES))


def assert_close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


# Factors


@ACTIVATIONS
def test_offsets_are_added_to_each_layers_output(activation: str, rng: np.random.Generator) -> None:
    """Like biases."""
    mlp = perceptron(rng, 3, 5, 4, 2)
    x = rng.standard_normal((7, 3)).astype(np.float32)
    jax_activation, plain, _ = SLOPES[activation]
    added = [rng.standard_normal((7, width)) for width in (5, 4, 2)]
    y, inputs = networks.forward_with_offsets(mlp, x, list(map(jnp.float32, added)), jax_activation)
    for m in range(7):
        row: Any = x[m].astype(float)
        for i, (layer, offset) in enumerate(zip(mlp, added, strict=True)):
            row = plain(row) if i else row
            assert_close(inputs[i][m], row)
            row = row @ np.asarray(layer.weight, float) + np.asarray(layer.bias) + offset[m]
        assert_close(y[m], row)


@ACTIVATIONS
def test_zero_offsets_equal_the_plain_network(activation: str, rng: np.random.Generator) -> None:
    mlp, x = perceptron(rng, 3, 5, 2), jnp.float32(rng.standard_normal((7, 3)))
    nothing, function = [jnp.zeros((7, 5)), jnp.zeros((7, 2))], SLOPES[activation][0]
    y, _ = networks.forward_with_offsets(mlp, x, nothing, function)
    assert_close(y, networks.forward(mlp, x, function))


@ACTIVATIONS
def test_factors_are_means_of_outer_products(activation: str, rng: np.random.Generator) -> None:
    """One sample at a time, with the chain rule by hand; the likelihood is N(y, diag σ²)."""
    mlp = perceptron(rng, 3, 5, 4, 2)
    x = rng.standard_normal((11, 3)).astype(np.float32)
    sampled, sigma = rng.standard_normal((11, 2)).astype(np.float32), np.float32([0.5, 2.0])
    function, plain, slope = SLOPES[activation]

    @jax.jit
    def measure(mlp: networks.MLP, x: Any) -> Any:
        def log_likelihood(y: Any) -> Any:
            return jnp.sum(-0.5 * jnp.square((sampled - y) / sigma[None]), axis=1)

        return kfac.measure_factors(mlp, x, log_likelihood, function)

    found = measure(mlp, x)
    weights = [np.asarray(layer.weight, float) for layer in mlp]
    wanted = [(np.zeros((i + 1, i + 1)), np.zeros((o, o))) for i, o in ((3, 5), (5, 4), (4, 2))]
    for m in range(11):
        a, outputs = [x[m].astype(float)], []
        for w, layer in zip(weights, mlp, strict=True):
            outputs.append(a[-1] @ w + np.asarray(layer.bias, float))
            a.append(plain(outputs[-1]))
        g = (sampled[m] - outputs[-1]) / sigma**2
        for i in (2, 1, 0):
            g = g if i == 2 else slope(outputs[i]) * (weights[i + 1] @ g)
            homogeneous = np.append(a[i], 1.0)
            wanted[i][0][:] += np.outer(homogeneous, homogeneous) / 11
            wanted[i][1][:] += np.outer(g, g) / 11
    for factors, (inputs, outputs) in zip(found, wanted, strict=True):
        assert_close(factors.inputs, inputs)
        assert_close(factors.outputs, outputs)


# Steps


def test_trust_factor_matches_hand_calculation() -> None:
    """U·∇ = 1·2 + 3·1 − 2·1 = 3; √(0.03 / (½² · 3)) = 0.2."""
    natural = {"a": jnp.float32([1, 3]), "b": (jnp.float32([[-2]]),)}
    gradient = {"a": jnp.float32([2, 1]), "b": (jnp.float32([[1]]),)}
    assert_close(kfac.trust_factor(natural, gradient, 0.5, 0.03), 0.2)
    assert kfac.trust_factor(natural, gradient, 0.5, 0.75) == 1.0  # just reached
    assert kfac.trust_factor(natural, gradient, 0.5, 7.0) == 1.0


@pytest.mark.parametrize("product", [0.0, -1e-7])
def test_zero_step_is_not_shortened(product: float) -> None:
    """U·∇ may be 0, or negative by rounding."""
    assert kfac.trust_factor(jnp.float32([1]), jnp.float32([product]), 0.1, 1e-3) == 1.0


def numbered(value: float) -> tuple[Factors, ...]:
    """Factors of a 1 → 1 layer that encode their batch."""
    return (Factors(jnp.diag(jnp.float32([value, 1.0])), jnp.float32([[10.0 * value]])),)


step = jax.jit(kfac.step)
follow = jax.jit(kfac.follow)


def one_unit() -> Learner:
    mlp = (Linear(jnp.float32([[1.0]]), jnp.float32([-2.0])),)
    return kfac.init(mlp, mlp)


def move(learner: Learner, weight: float, bias: float, rate: float = 0.5) -> Learner:
    natural = (Linear(jnp.float32([[weight]]), jnp.float32([bias])),)
    return step(learner, natural, rate, 0.75)


def test_momentum_matches_hand_calculation() -> None:
    """With v = ¾v + ¼U: 1, 1.75, 0.3125 for the weight and −2, −1.5, −0.125 for the bias."""
    learner = one_unit()
    found = []
    for weight, bias in ((4.0, -8.0), (4.0, 0.0), (-4.0, 4.0)):
        learner = move(learner, weight, bias)
        ((w, b),) = learner.parameters
        found.append((float(w[0, 0]), float(b[0])))
    assert found == [(0.5, -1.0), (-0.375, -0.25), (-0.53125, -0.1875)]
    assert learner.moments.taken == 3


def test_velocity_does_not_depend_on_the_learning_rate() -> None:
    """The velocity averages U, not U times the rate."""
    learner = move(move(one_unit(), 4.0, 0.0, rate=0.0), 0.0, 0.0, rate=1.0)
    assert learner.parameters[0].weight == 1.0 - 0.75


def test_step_does_not_change_the_factors() -> None:
    before = one_unit()
    curvature = follow(before.moments, numbered(2.0), 0.9, 1)
    after = move(before._replace(moments=curvature), 1.0, 1.0).moments
    assert_equal_trees(after[:2], curvature[:2])


def followed(values: list[float], decay: float, every: int = 1) -> list[kfac.Curvature]:
    """The curvature that each of a learner's steps uses."""
    learner, seen = one_unit(), []
    for value in values:
        curvature = follow(learner.moments, numbered(value), decay, every)
        assert curvature.taken == learner.moments.taken  # only steps are counted
        seen.append(curvature)
        learner = move(learner._replace(moments=curvature), 1.0, 1.0)
    return seen


def test_running_averages_start_as_plain_means() -> None:
    """1; then (1 + 4)/2; then (1 + 4 + 10)/3, which a decay of 0.7 allows; then 0.7 · 5 + 0.3."""
    found = []
    for curvature in followed([1.0, 4.0, 10.0, 1.0, 1.0], decay=0.7):
        (factors,) = curvature.factors
        found.append(float(factors.inputs[0, 0]))
        assert_close(factors.outputs, [[10.0 * found[-1]]])
        assert_close(factors.inputs[1], [0.0, 1.0])
    assert_close(found, [1.0, 2.5, 5.0, 3.8, 0.7 * 3.8 + 0.3])


def test_decay_of_zero_keeps_the_newest_batch_only() -> None:
    found = followed([5.0, 3.0, 8.0], decay=0.0)
    assert_close([c.factors[0].outputs[0, 0] for c in found], [50.0, 30.0, 80.0])


@pytest.mark.parametrize("every", [1, 2, 3])
def test_factors_are_decomposed_at_the_given_interval(every: int) -> None:
    """From the first step on, with averages that include the current batch."""
    wanted = 0.0
    for taken, curvature in enumerate(followed([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 0.9, every)):
        (factors,), (basis,) = curvature.factors, curvature.bases
        if taken % every == 0:
            wanted = float(factors.outputs[0, 0])
        assert_close(basis.output_values, [wanted])
        assert_close(np.sort(basis.input_values), np.sort([wanted / 10.0, 1.0]))


def test_follow_changes_only_the_factors_and_bases() -> None:
    learner = move(one_unit(), 4.0, -8.0)
    curvature = follow(learner.moments, numbered(2.0), 0.9, 1)
    assert_equal_trees(curvature[2:], learner.moments[2:])


def test_learner_starts_with_zero_velocity(rng: np.random.Generator) -> None:
    policy = GaussianPolicy(perceptron(rng, 3, 4, 2), jnp.zeros(2))
    learner = kfac.init(policy, policy.mean)
    curvature = learner.moments
    assert jax.tree.structure(curvature.velocity) == jax.tree.structure(policy)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(curvature.velocity))
    assert [f.inputs.shape for f in curvature.factors] == [(4, 4), (5, 5)]
    assert [f.outputs.shape for f in curvature.factors] == [(4, 4), (2, 2)]
    assert curvature.taken == 0
    for basis, factors in zip(curvature.bases, curvature.factors, strict=True):
        assert basis.inputs.shape == factors.inputs.shape
        assert basis.outputs.shape == factors.outputs.shape


@jax.jit
def descend(learner: Learner, x: Any, target: Any, scale: float) -> Learner:
    """A step of K-FAC on ½ · scale · mean (y − target)²."""

    def squares(y: Any) -> Any:
        return -0.5 * scale * jnp.square(y[:, 0] - target)

    def loss(mlp: networks.MLP) -> Any:
        return -jnp.mean(squares(networks.forward(mlp, x)))

    gradient = jax.grad(loss)(learner.parameters)
    measured = kfac.measure_factors(learner.parameters, x, squares, jnp.tanh)
    curvature = kfac.follow(learner.moments, measured, 0.95, 2)
    natural = kfac.precondition(curvature.bases, gradient, 0.01)
    nu = kfac.trust_factor(natural, gradient, 0.1, 1e-3)
    natural = jax.tree.map(lambda u: nu * u, natural)
    return kfac.step(Learner(learner.parameters, curvature), natural, 0.1, 0.9)


@pytest.mark.parametrize("feature", [0.0, 1.0])
@pytest.mark.parametrize("scale", [1.0, 0.0], ids=["learning", "no gradient"])
def test_steps_with_a_constant_feature_stay_finite(
    feature: float, scale: float, rng: np.random.Generator
) -> None:
    """The weight of a 0 stays; that of a constant 1 moves like the bias, though A is singular."""
    mlp = networks.init_mlp(rng, (3, 4, 1), head_gain=1.0)
    x, target = rng.standard_normal((20, 3)), rng.standard_normal(20)
    x[:, 1] = feature
    learner = kfac.init(mlp, mlp)
    for _ in range(6):
        learner = descend(learner, jnp.float32(x), jnp.float32(target), scale)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(learner))
    moved = jax.tree.map(np.subtract, learner.parameters, mlp)
    assert np.any(moved[0].weight[0]) == (scale > 0.0)
    assert_close(moved[0].weight[1], feature * moved[0].bias, rtol=1e-3)
