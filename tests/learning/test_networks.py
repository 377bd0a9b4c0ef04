"""Networks of one input or of pairs against loops; initial weights against their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.learning import networks
from disc.learning.networks import Layers, Linear, NormalizedLinear

EPSILON = 1e-6

forward = jax.jit(networks.forward, static_argnums=2)
forward_pairs = jax.jit(networks.forward_pairs)
q_value = jax.jit(networks.q_value)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def layer(rng: np.random.Generator, rows: int, columns: int, normalized: bool = False) -> Any:
    weight = jnp.float32(rng.standard_normal((rows, columns)) / math.sqrt(rows))
    rest = jnp.float32(rng.standard_normal((3, columns)))
    return NormalizedLinear(weight, *rest) if normalized else Linear(weight, rest[0])


def network(rng: np.random.Generator, sizes: list[tuple[int, int]], normalized: bool) -> Layers:
    """Layers with these inputs and outputs; if `normalized`, all but the last are."""
    hidden = [layer(rng, *size, normalized) for size in sizes[:-1]]
    return (*hidden, layer(rng, *sizes[-1]))


def looped_layer(one: Any, x: list[float]) -> list[float]:
    """One layer of one input, element by element, in double precision."""
    weight, bias, *norm = (np.float64(array) for array in one)
    assert len(x) == len(weight)
    y = []
    for j in range(len(bias)):
        y.append(float(bias[j]) + sum(x[i] * float(weight[i, j]) for i in range(len(x))))
    if not norm:
        return y
    scale, shift = norm
    mean = sum(y) / len(y)
    variance = sum((value - mean) ** 2 for value in y) / len(y)
    return [
        (value - mean) / math.sqrt(variance + EPSILON) * scale[j] + shift[j]
        for j, value in enumerate(y)
    ]


def looped(
    layers: Any, x: Any, joined: dict[int, Any], activation: Callable[[float], float]
) -> list[float]:
    """A network of one input; `joined[i]` is appended to the input of layer i."""
    values = [float(value) for value in x]
    for i, one in enumerate(layers):
        values = looped_layer(one, [*values, *map(float, joined.get(i, ()))])
        if i < len(layers) - 1:
            values = [activation(value) for value in values]
    return values


def relu(x: float) -> float:
    return x if x > 0.0 else 0.0


# Initial weights


@pytest.mark.parametrize("sizes", [(3, 2), (11, 64, 64, 3), (17, 400, 300, 6), (1, 1, 1)])
def test_initial_weights_are_uniform_within_glorot_bounds(sizes: tuple[int, ...]) -> None:
    """The largest of n uniform numbers is within 20/n of the bound with probability 1 − e⁻²⁰."""
    layers = networks.init_uniform(np.random.default_rng(5), sizes)
    assert [one.weight.shape for one in layers] == list(pairwise(sizes))
    for one, rows, columns in zip(layers, sizes[:-1], sizes[1:], strict=True):
        bound, count = math.sqrt(6.0 / (rows + columns)), rows * columns
        weight = np.asarray(one.weight)
        assert weight.dtype == one.bias.dtype == np.float32
        assert np.max(np.abs(weight)) <= bound * 1.000001
        assert np.max(np.abs(weight)) >= bound * (1.0 - 20.0 / count)
        spread = bound / math.sqrt(3.0)
        assert abs(np.mean(weight)) < 5.0 * spread / math.sqrt(count)
        assert abs(np.mean(weight**2) - spread**2) < 5.0 * spread**2 / math.sqrt(count)
        np.testing.assert_array_equal(one.bias, np.zeros(columns))


@pytest.mark.parametrize("sizes", [(8, 16, 12, 400), (10, 200), (200, 1)])
def test_head_weights_and_biases_have_their_own_bound(sizes: tuple[int, ...]) -> None:
    *hidden, head = networks.init_uniform(np.random.default_rng(6), sizes, 3e-3)
    plain = networks.init_uniform(np.random.default_rng(6), sizes)
    for array in (head.weight, head.bias):
        assert np.max(np.abs(array)) <= 3e-3 * 1.000001
        assert np.all(np.asarray(array) != 0.0)
        assert array.size < 100 or np.max(np.abs(array)) > 2.7e-3
        assert array.size < 100 or np.min(array) < -2.5e-3
    for one, other in zip(hidden, plain[:-1], strict=True):
        np.testing.assert_array_equal(one.weight, other.weight)
        np.testing.assert_array_equal(one.bias, 0.0)


def test_head_bound_of_zero_gives_zeros() -> None:
    head = networks.init_uniform(np.random.default_rng(0), (3, 4, 2), 0.0)[-1]
    np.testing.assert_array_equal(head.weight, np.zeros((4, 2)))
    np.testing.assert_array_equal(head.bias, np.zeros(2))


def test_other_seeds_and_draws_give_other_networks() -> None:
    rng = np.random.default_rng(0)
    first, second = (networks.init_uniform(rng, (3, 4, 4, 4)) for _ in range(2))
    third, again = (
        networks.init_uniform(np.random.default_rng(seed), (3, 4, 4, 4)) for seed in (1, 0)
    )
    for i in range(3):
        assert not np.any(first[i].weight == second[i].weight)
        assert not np.any(first[i].weight == third[i].weight)
        np.testing.assert_array_equal(first[i].weight, again[i].weight)
    assert not np.any(first[1].weight == first[2].weight)


# One input


@pytest.mark.parametrize("normalized", [False, True])
def test_network_applies_its_layers_in_order(normalized: bool, rng: np.random.Generator) -> None:
    layers = network(rng, [(3, 5), (5, 4), (4, 2)], normalized)
    x = np.float32(rng.standard_normal((6, 3)))
    for activation, plain in ((jnp.tanh, math.tanh), (jax.nn.relu, relu)):
        wanted = [looped(layers, row, {}, plain) for row in x]
        assert_close(forward(layers, jnp.asarray(x), activation), wanted)
        several = forward(layers, jnp.asarray(x).reshape(2, 3, 3), activation)
        assert_close(several, np.reshape(wanted, (2, 3, 2)))
        assert_close(forward(layers, jnp.asarray(x[4]), activation), wanted[4])


def identity(size: int, scale: Any, shift: Any) -> NormalizedLinear:
    return NormalizedLinear(jnp.eye(size), jnp.zeros(size), jnp.float32(scale), jnp.float32(shift))


def test_layer_normalisation_matches_hand_calculation() -> None:
    """1, 3, 5, 7 have mean 4 and population variance 5."""
    one = identity(4, [1.0, 2.0, 1.0, 1.0], [0.0, 0.0, 10.0, 0.0])
    found = forward((one,), jnp.float32([[1.0, 3.0, 5.0, 7.0]]))
    root = math.sqrt(5.0)
    assert_close(found, [[-3.0 / root, -2.0 / root, 10.0 + 1.0 / root, 3.0 / root]])


def test_layer_normalisation_of_equal_numbers_is_the_shift() -> None:
    one = identity(3, [5.0, 5.0, 5.0], [1.0, 2.0, 3.0])
    found = forward((one,), jnp.full((2, 3), 0.25))
    np.testing.assert_array_equal(found, [[1.0, 2.0, 3.0]] * 2)


def test_layer_normalisation_of_small_numbers_is_damped() -> None:
    """±1e-3 has variance 1e-6, and ε adds as much: ±1/√2."""
    one = identity(2, [1.0, 1.0], [0.0, 0.0])
    found = forward((one,), jnp.float32([[1e-3, -1e-3]]))
    assert_close(found, [[math.sqrt(0.5), -math.sqrt(0.5)]])


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
def test_layer_normalisation_is_over_the_units_only(
    shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    scale, shift = np.float32(rng.standard_normal((2, 7)))
    x = np.float32(5.0 + 3.0 * rng.standard_normal(shape))
    x64 = x.astype(np.float64)
    mean, variance = np.mean(x64, -1, keepdims=True), np.var(x64, -1, keepdims=True)
    wanted = (x64 - mean) / np.sqrt(variance + EPSILON) * scale + shift
    found = forward((identity(7, scale, shift),), jnp.asarray(x))
    assert_close(found, wanted)


# Pairs


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("entry", [0, 1])
@pytest.mark.parametrize("depth", [2, 3])
def test_network_of_pairs_concatenates_its_inputs(
    normalized: bool, entry: int, depth: int, rng: np.random.Generator
) -> None:
    """The second input is appended to the first, or to the first hidden layer's output."""
    a, b, h, out, m, k = 3, 2, 5, 4, 6, 7
    sizes = [(a, h), *[(h, h)] * (depth - 2), (h, out)]
    sizes[entry] = (sizes[entry][0] + b, sizes[entry][1])
    layers = network(rng, sizes, normalized)
    first = np.float32(rng.standard_normal((m, a)))
    second = np.float32(rng.standard_normal((m, k, b)))
    wanted = [
        [looped(layers, first[i], {entry: second[i, j]}, relu) for j in range(k)] for i in range(m)
    ]
    found = forward_pairs(layers, jnp.asarray(first), jnp.asarray(second))
    assert found.shape == (m, k, out)
    assert_close(found, wanted)
    alone = forward_pairs(layers, jnp.asarray(first), jnp.asarray(second[:, 2]))
    assert alone.shape == (m, out)
    assert_close(alone, np.array(wanted)[:, 2])


@pytest.mark.parametrize("entry", [0, 1])
def test_equal_sizes_are_not_confused(entry: int, rng: np.random.Generator) -> None:
    """As many rows as actions per row, action and observation dimensions, and hidden units."""
    n = 3
    sizes = [(n, n), (n, n), (n, 1)]
    sizes[entry] = (2 * n, n)
    layers = network(rng, sizes, normalized=False)
    first, second = rng.standard_normal((n, n)), rng.standard_normal((n, n, n))
    first, second = np.float32(first), np.float32(second)
    wanted = [
        [looped(layers, first[i], {entry: second[i, j]}, relu)[0] for j in range(n)]
        for i in range(n)
    ]
    found = q_value(layers, jnp.asarray(first), jnp.asarray(second))
    assert_close(found, wanted)
    found = q_value(layers, jnp.asarray(first), jnp.asarray(second[:, 1]))
    assert_close(found, np.array(wanted)[:, 1])


def test_single_layer_of_pairs_is_linear(rng: np.random.Generator) -> None:
    layers = network(rng, [(5, 2)], normalized=False)
    first, second = np.float32(rng.standard_normal((4, 3))), np.float32(rng.standard_normal((4, 2)))
    joined = np.concatenate([first, second], axis=1).astype(np.float64)
    wanted = joined @ np.float64(layers[0].weight) + np.float64(layers[0].bias)
    assert_close(forward_pairs(layers, jnp.asarray(first), jnp.asarray(second)), wanted)


def test_q_matches_hand_calculation() -> None:
    """relu(s₁ − a) = 2 and relu(a − s₂) = 0 for s = (3, 5), a = 1; Q = 10·2 + 100·0 + 1."""
    hidden = Linear(jnp.float32([[1.0, 0.0], [0.0, -1.0], [-1.0, 1.0]]), jnp.zeros(2))
    head = Linear(jnp.float32([[10.0], [100.0]]), jnp.ones(1))
    observation = jnp.float32([[3.0, 5.0], [0.0, 0.0]])
    found = q_value((hidden, head), observation, jnp.float32([[1.0], [2.0]]))
    np.testing.assert_array_equal(found, [21.0, 201.0])
    several = jnp.float32([[[1.0], [6.0]], [[2.0], [-1.0]]])
    found = q_value((hidden, head), observation, several)
    np.testing.assert_array_equal(found, [[21.0, 101.0], [201.0, 11.0]])


def test_q_with_the_action_at_the_second_layer_matches_hand_calculation() -> None:
    """relu(3) = 3 and relu(−2) = 0; Q = 10·relu(s) + a + 1, without activation of the action."""
    hidden = Linear(jnp.float32([[1.0]]), jnp.zeros(1))
    head = Linear(jnp.float32([[10.0], [1.0]]), jnp.ones(1))
    observation = jnp.float32([[3.0], [-2.0]])
    found = q_value((hidden, head), observation, jnp.float32([[-7.0], [4.0]]))
    np.testing.assert_array_equal(found, [24.0, 5.0])


@pytest.mark.parametrize("entry", [0, 1])
def test_action_gradient_of_q_matches_finite_differences(
    entry: int, rng: np.random.Generator
) -> None:
    """Deterministic policies are trained with this gradient."""
    sizes = [(3, 6), (6, 5), (5, 1)]
    sizes[entry] = (sizes[entry][0] + 2, sizes[entry][1])
    layers = network(rng, sizes, normalized=True)
    observation, action = jnp.float32(rng.standard_normal(3)), np.float32(rng.standard_normal(2))

    @jax.jit
    @jax.grad
    def slope(action: jax.Array) -> jax.Array:
        return networks.q_value(layers, observation[None], action[None])[0]

    found = np.asarray(slope(jnp.asarray(action)))
    for d in range(2):
        ends = []
        for step in (1e-6, -1e-6):
            moved = action.astype(np.float64)
            moved[d] += step
            ends.append(looped(layers, observation, {entry: moved}, relu)[0])
        assert_close(found[d], (ends[0] - ends[1]) / 2e-6, rtol=1e-3, atol=1e-4)
