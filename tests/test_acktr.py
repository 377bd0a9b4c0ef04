"""ACKTR's steps against K-FAC written out with explicit matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import actor_critic, distributions, minibatch, networks, optim, seeding
from disc.algos import acktr, ppo
from disc.minibatch import Rows
from disc.networks import GaussianPolicy, Linear
from disc.types import Rollout, Spec

S, H, D, N = 2, 3, 2, 40
STEPS = 25
CONFIG = acktr.Config(  # no two alike
    horizon=N,
    widths=(H,),
    step_size=0.2,
    target_kl=0.003,
    damping=0.02,
    kl_clip=0.01,
    decay=0.6,
    value_damping=0.3,
    value_kl_clip=0.05,
    value_decay=0.5,
    value_learning_rate=0.07,
    value_steps=STEPS,
    momentum=0.8,
    decompose_every=2,
)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-3, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def perceptron(seed: int, *sizes: int) -> networks.MLP:
    """A network with biases."""
    rng = np.random.default_rng(seed)
    mlp = networks.init_mlp(rng, sizes, head_gain=0.7)
    return tuple(Linear(w, jnp.float32(0.3 * rng.standard_normal(len(b)))) for w, b in mlp)


def policy() -> GaussianPolicy:
    return GaussianPolicy(perceptron(1, S, H, D), jnp.float32([-0.4, 0.3]))


def value() -> networks.MLP:
    return perceptron(2, S, H, 1)


def elu(x: Any) -> Any:
    return np.where(x > 0.0, x, np.exp(np.minimum(x, 0.0)) - 1.0)


def elu_slope(x: Any) -> Any:
    return np.where(x > 0.0, 1.0, np.exp(np.minimum(x, 0.0)))


def tanh_slope(x: Any) -> Any:
    return 1.0 - np.tanh(x) ** 2


def sampled(scale: float = 1.0, target: float = 1.0) -> Rows:
    """Actions of `policy()`, with advantages and targets as large as asked."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, S))
    mean, _ = Plain(policy().mean).forward(x, np.tanh)
    columns = (
        x,
        mean + np.exp(policy().log_std) * rng.standard_normal((N, D)),
        mean,
        np.tile(policy().log_std, (N, 1)),
        scale * rng.standard_normal(N),
        target * (1.0 + rng.standard_normal(N)),
        np.zeros(N),
        np.ones(N),
    )
    return Rows(*map(jnp.float32, columns))


class Plain:
    """K-FAC of a network with one hidden layer, in numpy and double precision.

    Layers are matrices (in + 1, out); A ⊗ G is built and (A ⊗ G + damping) U = ∇ solved.
    `free` are parameters beside the network whose Fisher matrix is known.
    """

    def __init__(self, mlp: networks.MLP, free: Any = (), fisher: float = 0.0) -> None:
        self.layers = [np.concatenate([w, b[None]]).astype(float) for w, b in mlp]
        self.free, self.fisher = np.asarray(free, float), fisher
        self.factors = [
            (np.zeros((len(w), len(w))), np.zeros((w.shape[1], w.shape[1]))) for w in self.layers
        ]
        self.used = self.factors
        self.velocity = [np.zeros_like(w) for w in [*self.layers, self.free]]
        self.taken = 0

    def forward(self, x: Any, activation: Any) -> tuple[Any, Any]:
        first, second = self.layers
        hidden = np.column_stack([x, np.ones(len(x))]) @ first
        return np.column_stack([activation(hidden), np.ones(len(x))]) @ second, hidden

    def backward(self, x: Any, g: Any, activation: Any, slope: Any) -> list[tuple[Any, Any]]:
        """Each layer's inputs, and g taken back to its outputs."""
        _, hidden = self.forward(x, activation)
        one = np.ones(len(x))
        back = slope(hidden) * (g @ self.layers[1][:-1].T)
        return [
            (np.column_stack([x, one]), back),
            (np.column_stack([activation(hidden), one]), g),
        ]

    def step(
        self, gradient: Any, scores: Any, rate: float, damping: float, kl_clip: float, decay: float
    ) -> Any:
        """Of `gradient` (with that of `free` last) and of the sampled likelihood's `scores`."""
        keep = min(decay, self.taken / (self.taken + 1))
        self.factors = [
            (keep * a + (1 - keep) * x.T @ x / len(x), keep * b + (1 - keep) * g.T @ g / len(x))
            for (a, b), (x, g) in zip(self.factors, scores, strict=True)
        ]
        if self.taken % CONFIG.decompose_every == 0:
            self.used = self.factors
        self.taken += 1
        natural = []
        for nabla, (a, g) in zip(gradient[:-1], self.used, strict=True):
            matrix = np.kron(a, g) + damping * np.eye(nabla.size)
            natural.append(np.linalg.solve(matrix, nabla.ravel()).reshape(nabla.shape))
        natural.append(gradient[-1] / (self.fisher + damping))
        size = rate**2 * sum(np.sum(u * n) for u, n in zip(natural, gradient, strict=True))
        nu = 1.0 if size <= kl_clip else np.sqrt(kl_clip / size)
        m = CONFIG.momentum
        self.velocity = [
            m * v + (1 - m) * nu * u for v, u in zip(self.velocity, natural, strict=True)
        ]
        *self.layers, self.free = (
            p - rate * v for p, v in zip([*self.layers, self.free], self.velocity, strict=True)
        )
        return nu

    def assert_is(self, mlp: networks.MLP, before: networks.MLP) -> None:
        """Both have moved alike."""
        for layer, (w, b), (old_w, old_b) in zip(self.layers, mlp, before, strict=True):
            start = np.concatenate([old_w, old_b[None]]).astype(float)
            found = np.concatenate([w, b[None]]) - start
            assert_close(found, layer - start, atol=2e-3 * np.max(np.abs(found)))


# The policy


def column(rows: Rows, name: str) -> Any:
    return np.asarray(getattr(rows, name), float)


def loss(plain: Plain, rows: Rows) -> Any:
    """−mean(Â log π), less a constant."""
    mean, _ = plain.forward(column(rows, "observation"), np.tanh)
    z = (column(rows, "action") - mean) / np.exp(plain.free)
    return -np.mean(column(rows, "advantage") * np.sum(-0.5 * z**2 - plain.free, axis=1))


def differentiate(plain: Plain, rows: Rows) -> tuple[Any, Any]:
    """The gradient of the loss, layer by layer and then of log σ, and the scores."""
    x, advantage = column(rows, "observation"), column(rows, "advantage")[:, None]
    z = column(rows, "action") - plain.forward(x, np.tanh)[0]
    precision = np.exp(-2.0 * plain.free)
    scores = plain.backward(x, z * precision, np.tanh, tanh_slope)
    gradient = [-a.T @ (advantage * g) / N for a, g in scores]
    return [*gradient, -np.mean(advantage * (z**2 * precision - 1.0), axis=0)], scores


def test_the_gradient_by_hand_is_that_of_the_loss() -> None:
    """Central differences in every parameter."""
    rows, plain, shift = sampled(), Plain(policy().mean, policy().log_std), 1e-6
    gradient, _ = differentiate(plain, rows)
    for parameters, slopes in zip([*plain.layers, plain.free], gradient, strict=True):
        for index in np.ndindex(parameters.shape):
            parameters[index] += shift
            above = loss(plain, rows)
            parameters[index] -= 2.0 * shift
            assert_close(slopes[index], (above - loss(plain, rows)) / (2.0 * shift))
            parameters[index] += shift


@pytest.mark.parametrize(("scale", "bound"), [(0.3, False), (1e3, True)])
def test_policy_steps_are_plain_k_fac(scale: float, bound: bool) -> None:
    """Four of them: two with the factors of the first batch, two with those of three."""
    rows, rate = sampled(scale), 0.2
    learner = optim.init_kfac(policy(), policy().mean)
    plain = Plain(policy().mean, policy().log_std, fisher=2.0)
    measure = jax.jit(actor_critic.measure_step)
    for _ in range(4):
        gradient, scores = differentiate(plain, rows)
        nu = plain.step(gradient, scores, rate, CONFIG.damping, CONFIG.kl_clip, CONFIG.decay)
        learner, measured = acktr.policy_step(CONFIG, learner, rows, rate)
        assert_close(measured["train/nu"], nu)
        assert (nu < 1.0) == bound
        plain.assert_is(learner.parameters.mean, policy().mean)
        assert_close(learner.parameters.log_std, plain.free, atol=1e-5)
        for name, x in measure(learner.parameters, rows).items():
            assert_close(measured[name], x, atol=1e-4 * scale)


def test_the_fisher_matrix_of_log_std_is_two() -> None:
    """E[(∂ log π / ∂ log σ)²] by Gauss and Hermite's rule; nothing in common with the mean's."""
    z, weight = np.polynomial.hermite_e.hermegauss(12)
    weight = weight / np.sum(weight)
    mean, log_std = jnp.float32([0.7, -0.2]), jnp.float32([-0.4, 0.3])
    score = jax.jit(jax.grad(distributions.log_density, argnums=(1, 2)))
    fisher = np.zeros((4, 4))
    for i, j in np.ndindex(12, 12):
        action = mean + jnp.exp(log_std) * jnp.float32([z[i], z[j]])
        s = np.concatenate(score(action, mean, log_std)).astype(float)
        fisher += weight[i] * weight[j] * np.outer(s, s)
    wanted = np.diag([*np.exp(-2.0 * np.float64(log_std)), 2.0, 2.0])
    assert_close(fisher, wanted, atol=1e-4)


def predicted_kl(bases: Any, gradient: Any, damping: float, rate: float) -> Any:
    """Σ rate² U·∇ of a network, U by explicit matrices from the factors' decomposition."""
    total = 0.0
    for basis, layer in zip(bases, gradient, strict=True):
        q, e, r, f = (np.asarray(part, float) for part in basis)
        fisher = np.kron(q @ np.diag(e) @ q.T, r @ np.diag(f) @ r.T)
        nabla = layer.ravel()
        total += nabla @ np.linalg.solve(fisher + damping * np.eye(nabla.size), nabla)
    return rate**2 * total


def test_an_absurd_advantage_moves_the_policy_no_further_than_allowed() -> None:
    rows, rate = sampled(scale=1e6), 0.5
    learner, x = optim.init_kfac(policy(), policy().mean), column(rows, "observation")
    for _ in range(5):
        before = Plain(learner.parameters.mean, learner.parameters.log_std)
        learner, measured = acktr.policy_step(CONFIG, learner, rows, rate)
        gradient, _ = differentiate(before, rows)
        whole = predicted_kl(learner.moments.bases, gradient[:-1], CONFIG.damping, rate)
        whole += rate**2 * np.sum(gradient[-1] ** 2) / (2.0 + CONFIG.damping)
        assert whole > 1e3 * CONFIG.kl_clip
        assert_close(float(measured["train/nu"]) ** 2 * whole, CONFIG.kl_clip, rtol=0.01)

        after = Plain(learner.parameters.mean, learner.parameters.log_std)
        distance = (before.forward(x, np.tanh)[0] - after.forward(x, np.tanh)[0]) ** 2
        ratio = (np.exp(2.0 * before.free) + distance) / np.exp(2.0 * after.free)
        kl = np.sum(after.free - before.free + (ratio - 1.0) / 2.0, axis=1)
        assert np.mean(kl) < CONFIG.kl_clip


@pytest.mark.parametrize("feature", [0.0, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_a_policy_step_stays_finite(feature: float, scale: float) -> None:
    """Without advantages, and with inputs of which every one is the same."""
    rows = sampled(scale)._replace(observation=jnp.full((N, S), jnp.float32(feature)))
    learner = optim.init_kfac(policy(), policy().mean)
    for _ in range(5):
        learner, measured = acktr.policy_step(CONFIG, learner, rows, 0.1)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((learner, measured)))
    if scale == 0.0:
        for x, y in zip(*map(jax.tree.leaves, (learner.parameters, policy())), strict=True):
            np.testing.assert_array_equal(x, y)


# Its step size


@pytest.mark.parametrize(
    ("step_size", "kl", "wanted"),
    [
        (0.3, 0.004, 0.3),
        (0.3, np.nextafter(0.004, 1.0), 0.3 / 1.5),
        (0.3, 1e9, 0.3 / 1.5),
        (0.3, 0.001, 0.3),
        (0.3, np.nextafter(0.001, 0.0), 0.3 * 1.5),
        (0.3, 0.0, 0.3 * 1.5),
        (0.9, 0.0, 1.0),
        (1.0, 0.0, 1.0),
        (1e-8, 1.0, 1e-8),
        (1.2e-8, 1.0, 1e-8),
        (1e-8, 0.0, 1.5e-8),
        (1.0, 1.0, 1.0 / 1.5),
        (0.3, np.nan, 0.3),
    ],
)
def test_adapt_at_its_thresholds_and_bounds(step_size: float, kl: float, wanted: float) -> None:
    assert acktr.adapt(step_size, kl, target=0.002) == pytest.approx(wanted, rel=1e-12)


# The value network


def noise() -> Any:
    return np.random.default_rng(3).standard_normal((STEPS, N)).astype(np.float32)


@pytest.mark.parametrize(("target", "bound"), [(1.0, False), (1e2, True)])
def test_value_steps_are_plain_k_fac(target: float, bound: bool) -> None:
    """With scores of N(V, 1) at the outcomes V + noise, whatever the targets are."""
    rows = sampled(target=target)
    x, wanted = column(rows, "observation"), column(rows, "target")
    plain, losses, nus = Plain(value()), [], []
    for row in noise():
        error = plain.forward(x, elu)[0][:, 0] - wanted
        losses.append(np.mean(error**2) / 2.0)
        parts = plain.backward(x, error[:, None], elu, elu_slope)
        gradient = [*(a.T @ g / N for a, g in parts), np.zeros(0)]
        scores = plain.backward(x, row.astype(float)[:, None], elu, elu_slope)
        options = (CONFIG.value_damping, CONFIG.value_kl_clip, CONFIG.value_decay)
        nus.append(plain.step(gradient, scores, CONFIG.value_learning_rate, *options))
    learner, measured = acktr.value_steps(
        CONFIG, optim.init_kfac(value(), value()), rows, jnp.asarray(noise())
    )
    plain.assert_is(learner.parameters, value())
    assert_close(measured["train/value_loss"], losses)
    assert_close(measured["train/value_nu"], nus)
    assert (min(nus) < 1.0) == bound
    for factors, (a, g) in zip(learner.moments.factors, plain.factors, strict=True):
        assert_close(factors.inputs, a, atol=1e-5)
        assert_close(factors.outputs, g, atol=1e-5)


def test_value_steps_lower_the_loss() -> None:
    rows, learner = sampled(), optim.init_kfac(value(), value())
    learner, measured = acktr.value_steps(CONFIG, learner, rows, jnp.asarray(noise()))
    losses = np.asarray(measured["train/value_loss"])
    assert np.all(np.diff(losses) < 0.0)
    predicted = Plain(learner.parameters).forward(np.asarray(rows.observation, float), elu)[0]
    after = np.mean((predicted[:, 0] - np.asarray(rows.target)) ** 2) / 2.0
    assert after < losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("feature", [None, 0.0, 1.0])
@pytest.mark.parametrize("target", [0.0, 1e4])
def test_value_steps_stay_finite(feature: float | None, target: float) -> None:
    """With huge targets, and with inputs of which every one is the same."""
    rows = sampled(target=target)
    if feature is not None:
        rows = rows._replace(observation=jnp.full((N, S), jnp.float32(feature)))
    learner = optim.init_kfac(value(), value())
    learner, measured = acktr.value_steps(CONFIG, learner, rows, jnp.asarray(noise()))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((learner, measured)))
    losses, nus = np.asarray(measured["train/value_loss"]), measured["train/value_nu"]
    assert losses[-1] < losses[0]
    assert np.all(nus < 0.1) if target else np.all(nus <= 1.0)


# The whole iteration


SPEC = Spec(S, D, (S,), (D,), -np.ones(D, np.float32), np.ones(D, np.float32))


def observed(state: Any) -> Any:
    """The state after a rollout of its own policy in a world of noise."""
    rng = np.random.default_rng(state.iteration)
    x, following = rng.standard_normal((2, N, S)).astype(np.float32)
    act = acktr.act(CONFIG, SPEC, state)
    pairs = [act(row, rng.standard_normal(D).astype(np.float32)) for row in x]
    action, mean = (np.stack(column) for column in zip(*pairs, strict=True))
    reward, ends = rng.standard_normal(N).astype(np.float32), rng.random((2, N)) < 0.1
    border, none = np.arange(N) == N - 1, np.zeros(0, np.float32)
    facts = (x, action, mean, act.log_std, reward, following, *ends, border, none, none)
    return acktr.observe(CONFIG, state, Rollout(*facts))


def test_an_update_moves_both_networks_and_the_step_size() -> None:
    state = acktr.init(CONFIG, SPEC, 1, 0)
    assert state.step_size == CONFIG.step_size
    for iteration in range(1, 4):
        state, before = observed(state), state
        rows = minibatch.whole(
            actor_critic.read(
                CONFIG, state, lambda *arguments: ppo.estimate(*arguments, activation=jax.nn.elu)
            )
        )
        stream = seeding.generator(state.seed, seeding.MINIBATCHES, state.iteration)
        drawn = jnp.asarray(stream.standard_normal((STEPS, N), np.float32))
        wanted = (
            acktr.policy_step(CONFIG, state.policy, rows, state.step_size)[0],
            acktr.value_steps(CONFIG, state.value, rows, drawn)[0],
        )
        state, metrics = acktr.update(CONFIG, state, threads=1)
        for x, y in zip(*map(jax.tree.leaves, ((state.policy, state.value), wanted)), strict=True):
            np.testing.assert_array_equal(x, y)
        assert state.iteration == state.policy.moments.taken == iteration
        assert state.value.moments.taken == STEPS * iteration
        assert metrics["train/step_size"] == before.step_size
        assert state.step_size == acktr.adapt(before.step_size, metrics["is/kl"], 0.003)
        predicted = Plain(before.value.parameters).forward(np.asarray(rows.observation), elu)[0]
        assert_close(rows.value, predicted[:, 0], atol=1e-5)
    assert state.step_size != CONFIG.step_size
