"""Adam, against its definition in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc.learning import optim


def test_adam_follows_its_definition(rng: np.random.Generator) -> None:
    rates = {"w": 3e-3, "b": 1e-2}
    shapes = {"w": (3, 2), "b": (2,)}
    expected = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    m, v = ({name: np.zeros(shape) for name, shape in shapes.items()} for _ in range(2))
    learner = optim.init({name: jnp.asarray(x, jnp.float32) for name, x in expected.items()})
    move = jax.jit(lambda learner, gradient: optim.step(learner, gradient, rates, 1e-5))
    for t in range(1, 40):
        gradient = {n: rng.normal(size=s) * 10.0 ** rng.integers(-4, 3) for n, s in shapes.items()}
        learner = move(learner, {name: np.float32(g) for name, g in gradient.items()})
        for name, g in gradient.items():
            m[name] += 0.1 * (g - m[name])
            v[name] += 0.001 * (g * g - v[name])
            step = m[name] / (1 - 0.9**t) / (np.sqrt(v[name] / (1 - 0.999**t)) + 1e-5)
            expected[name] = expected[name] - rates[name] * step
    for name in shapes:
        np.testing.assert_allclose(learner.parameters[name], expected[name], atol=2e-6)
    assert learner.moments.count == 39


def test_first_step_of_adam_is_the_learning_rate() -> None:
    gradient = jnp.asarray([-7.0, 0.0, 1e3])
    learner = optim.step(optim.init(jnp.zeros(3)), gradient, 0.01)
    np.testing.assert_allclose(learner.parameters, [0.01, 0.0, -0.01], rtol=1e-5)


def test_norm_covers_all_leaves() -> None:
    assert optim.norm((jnp.asarray([3.0]), {"x": jnp.asarray([[0.0, -4.0]])})) == pytest.approx(5.0)
