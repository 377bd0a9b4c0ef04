"""Conjugate gradients and K-FAC's natural gradient against explicit matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.learning import kfac, optim
from disc.learning.kfac import Factors
from disc.learning.networks import Linear
from tests.support.networks import perceptron

SIZE = 6


def assert_close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def positive_definite(rng: np.random.Generator, size: int) -> Any:
    root = rng.standard_normal((size, 2 * size))
    return root @ root.T / (2 * size) + 0.1 * np.eye(size)


# Conjugate gradients


def solve(matrix: Any, b: Any, iterations: int) -> Any:
    matrix = jnp.float32(matrix)
    return np.asarray(optim.conjugate_gradient(lambda v: matrix @ v, jnp.float32(b), iterations))


def textbook(matrix: Any, b: Any, iterations: int) -> Any:
    """Hestenes and Stiefel's formulas: products with F instead of a ratio of squares."""
    x = np.zeros_like(b)
    direction = residual = b
    for _ in range(iterations):
        image = matrix @ direction
        x = x + direction * (residual @ direction) / (direction @ image)
        residual = b - matrix @ x
        direction = residual - direction * (residual @ image) / (direction @ image)
    return x


def test_conjugate_gradients_converge_in_as_many_steps_as_unknowns(
    rng: np.random.Generator,
) -> None:
    matrix, b = positive_definite(rng, SIZE), rng.standard_normal(SIZE)
    wanted = np.linalg.solve(matrix, b)
    assert_close(solve(matrix, b, SIZE), wanted, rtol=1e-3)
    assert np.linalg.norm(solve(matrix, b, SIZE - 2) - wanted) > 0.01 * np.linalg.norm(wanted)


@pytest.mark.parametrize("iterations", [1, 2, 3, 4])
def test_fewer_iterations_are_optimal_in_their_krylov_space(
    iterations: int, rng: np.random.Generator
) -> None:
    """The minimum of ½xᵀFx − bᵀx over span{b, Fb, F²b, …}."""
    matrix, b = positive_definite(rng, SIZE), rng.standard_normal(SIZE)
    space = [b]
    for _ in range(iterations - 1):
        space.append(matrix @ space[-1])
    k = np.stack(space, axis=1)
    best = k @ np.linalg.solve(k.T @ matrix @ k, k.T @ b)
    found = solve(matrix, b, iterations)
    assert_close(found, best, rtol=1e-3)
    assert_close(found, textbook(matrix, b, iterations), rtol=1e-3)


def test_solution_for_a_zero_right_hand_side_is_zero(rng: np.random.Generator) -> None:
    found = solve(positive_definite(rng, SIZE), np.zeros(SIZE), 10)
    np.testing.assert_array_equal(found, np.zeros(SIZE))


def test_iterations_after_the_solution_change_nothing() -> None:
    """Of 2x = b the first residual is exactly 0, and the next step would be 0/0."""
    np.testing.assert_array_equal(solve(2.0 * np.eye(3), [1.0, -2.0, 4.0], 10), [0.5, -1.0, 2.0])


@pytest.mark.parametrize(("norm", "solved"), [(2e-5, True), (5e-6, False)])
def test_conjugate_gradients_stop_below_a_squared_residual_of_1e_10(
    norm: float, solved: bool
) -> None:
    assert_close(solve([[4.0]], [norm], 5), [norm / 4.0 if solved else 0.0], atol=0)


# K-FAC: the natural gradient


def flat(layer: Linear) -> Any:
    """A layer's parameters as a vector, (in + 1)·out: what kron(A, G) multiplies."""
    return np.concatenate([layer.weight, layer.bias[None]]).astype(float).ravel()


precondition = jax.jit(kfac.precondition)
decompose = jax.jit(kfac.decompose)


def gradient_like(rng: np.random.Generator, inputs: int, outputs: int) -> Linear:
    w, b = rng.standard_normal((inputs, outputs)), rng.standard_normal(outputs)
    return Linear(jnp.float32(w), jnp.float32(b))


def test_natural_gradient_solves_the_damped_kronecker_system(
    rng: np.random.Generator,
) -> None:
    shapes, damping = ((3, 5), (5, 2)), 0.3
    matrices = [(positive_definite(rng, i + 1), positive_definite(rng, o)) for i, o in shapes]
    gradient = tuple(gradient_like(rng, i, o) for i, o in shapes)
    bases = decompose(tuple(Factors(*map(jnp.float32, pair)) for pair in matrices))
    found = precondition(bases, gradient, damping)
    for layer, nabla, (a, g) in zip(found, gradient, matrices, strict=True):
        fisher = np.kron(a, g) + damping * np.eye(a.shape[0] * g.shape[0])
        assert_close(flat(layer), np.linalg.solve(fisher, flat(nabla)), rtol=1e-3)


def test_k_fac_of_a_linear_layer_is_the_exact_natural_gradient(rng: np.random.Generator) -> None:
    """The factorisation is exact if all inputs have the same outcomes, of covariance σ²."""
    sigma = np.array([0.5, 2.0])
    (layer,) = mlp = perceptron(rng, 3, 2)
    x = np.repeat(rng.standard_normal((9, 3)), 4, axis=0)
    z = np.tile(np.sqrt(2.0) * np.float64([[1, 0], [-1, 0], [0, 1], [0, -1]]), (9, 1))
    y = x @ np.asarray(layer.weight, float) + np.asarray(layer.bias)
    sampled = jnp.float32(y + sigma * z)

    fisher = np.zeros((8, 8))
    for row, noise in zip(x, z, strict=True):
        score = np.outer(np.append(row, 1.0), noise / sigma).ravel()
        fisher += np.outer(score, score) / len(x)

    def log_likelihood(y: Any) -> Any:
        return jnp.sum(-0.5 * jnp.square((sampled - y) / jnp.float32(sigma)[None]), axis=1)

    measure = jax.jit(lambda x: kfac.measure_factors(mlp, x, log_likelihood, jnp.tanh))
    measured = measure(jnp.float32(x))
    assert_close(np.kron(*measured[0]), fisher, atol=1e-5)
    gradient = gradient_like(rng, 3, 2)
    (found,) = precondition(decompose(measured), (gradient,), 1e-7)
    assert_close(flat(found), np.linalg.solve(fisher, flat(gradient)), rtol=1e-3)


def test_direction_without_curvature_is_divided_by_the_damping() -> None:
    """A = diag(4, 0) and G = 9: the weight's gradient over 36.5, the bias's over 0.5."""
    bases = decompose((Factors(jnp.diag(jnp.float32([4, 0])), jnp.float32([[9]])),))
    gradient = (Linear(jnp.float32([[73]]), jnp.float32([1])),)
    ((weight, bias),) = precondition(bases, gradient, 0.5)
    assert_close(weight, [[2.0]])
    assert_close(bias, [2.0])


def test_decomposition_reproduces_the_factors(rng: np.random.Generator) -> None:
    a, g = positive_definite(rng, 4), positive_definite(rng, 3)
    (basis,) = decompose((Factors(jnp.float32(a), jnp.float32(g)),))
    for q, e, matrix in (
        (basis.inputs, basis.input_values, a),
        (basis.outputs, basis.output_values, g),
    ):
        assert_close(q.T @ q, np.eye(len(matrix)), atol=1e-5)
        assert_close(np.asarray(q) @ np.diag(e) @ np.asarray(q).T, matrix, atol=1e-5)


def test_negative_eigenvalues_are_set_to_zero() -> None:
    """[[1, 2], [2, 1]] has 3 and −1."""
    matrix = jnp.float32([[1, 2], [2, 1]])
    (basis,) = decompose((Factors(matrix, -matrix),))
    assert_close(np.sort(basis.input_values), [0.0, 3.0])
    assert_close(np.sort(basis.output_values), [0.0, 1.0])
    assert np.min(basis.input_values) == np.min(basis.output_values) == 0.0
