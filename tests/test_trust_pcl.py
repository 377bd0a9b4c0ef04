"""Trust-PCL's loss against hand-worked chunks and double loops, its steps against plain Adam."""

from __future__ import annotations

import dataclasses
import math
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import DiscError, networks, optim
from disc.algos import trust_pcl
from disc.algos.trust_pcl import Carry, Config, Pair, State
from disc.networks import GaussianPolicy, Linear
from disc.replay import ChunkReplay
from disc.types import Rollout, Spec

S, D, T, B = 2, 2, 3, 4
SPEC = Spec(S, D, (S,), (D,), np.full(D, -1.0, np.float32), np.full(D, 1.0, np.float32))
UNCLIPPED = 1e9


def assert_close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def assert_close_trees(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert_close(x, y, rtol, atol)


def equal_trees(found: Any, wanted: Any) -> None:
    assert_close_trees(found, wanted, rtol=0.0, atol=0.0)


def gradient_of(config: Config, both: Pair, targets: Pair, chunks: Any, lam: float) -> Any:
    gradient, _ = jax.grad(partial(trust_pcl.loss, config), has_aux=True)(
        both, targets, chunks, jnp.float32(lam)
    )
    return gradient


# By hand: γ = ½, V(s) = 1 + 2x + 3x² and V'(s) = 4x of states s = (x, 0). So V(s_t) = 1, 6, 2 at
# x_t = 0, 1, −1 and V'(s_{t+1}) = 4, −4, 8. Both policies are N(0, I) and every action is 0 unless
# a test says more. The batch is one chunk several times.

HAND = {"horizon": T, "chunk_length": T, "path_length": 1, "path_stride": 1, "gamma": 0.5}
HAND |= {"residual_clip": UNCLIPPED}
STATES = np.float32([0, 1, -1])


def gaussian(mean: float = 0.0, log_std: float = 0.0) -> GaussianPolicy:
    """A policy that does not look at the observation, in both dimensions the same."""
    return GaussianPolicy((Linear(jnp.zeros((S, D)), jnp.full(D, mean)),), jnp.full(D, log_std))


def linear(*weights: float, bias: float = 0.0) -> networks.MLP:
    return (Linear(jnp.float32(weights)[:, None], jnp.full(1, bias)),)


VALUE, TARGET_VALUE = linear(1, 2, 0, 3, 0), linear(0, 4, 0, 0, 0)


def states(*x: float) -> Any:
    return np.stack([np.float32(x), np.zeros(T, np.float32)], axis=1)


def hand_chunks(**columns: Any) -> ChunkReplay:
    no = np.zeros(T, bool)
    arrays = {
        "observation": states(*STATES),
        "next_observation": states(1, -1, 2),
        "action": np.zeros((T, D), np.float32),
        "reward": np.float32([1, 2, 4]),
        "terminated": no,
        "truncated": no,
        "border": no,
        **columns,
    }
    stacked = {name: jnp.asarray(np.stack([x] * B)) for name, x in arrays.items()}
    return ChunkReplay(**stacked, number=jnp.arange(B, dtype=jnp.int32))


def held(
    chunks: ChunkReplay,
    lam: float = 0.0,
    policy: GaussianPolicy | None = None,
    value: networks.MLP = VALUE,
    target_value: networks.MLP = TARGET_VALUE,
    **options: Any,
) -> Any:
    """C_t, held within its bounds: the gradient of a linear value is −Σ_t C_t [1, x_t, x_t²]."""
    config = Config(**{**HAND, **options})
    both, targets = Pair(policy or gaussian(), value), Pair(gaussian(), target_value)
    gradient = gradient_of(config, both, targets, chunks, lam)
    features = np.stack([np.ones(T), STATES, STATES**2], axis=1)
    return np.linalg.solve(features.T, -np.asarray(gradient.value[0].weight)[[0, 1, 3], 0])


def at(step: int) -> Any:
    return np.arange(T) == step


@pytest.mark.parametrize(
    ("d", "wanted"),
    [
        # −1 + 1 + ½·4,  −6 + 2 − ½·4,  −2 + 4 + ½·8
        (1, [2, -6, 6]),
        # −1 + 1 + ½·2 − ¼·4,  −6 + 2 + ½·4 + ¼·8; the chunk ends: as before
        (2, [0, 0, 6]),
        # −1 + 1 + ½·2 + ¼·4 + ⅛·8
        (3, [3, 0, 6]),
    ],
)
def test_residual_of_one_episode(d: int, wanted: list[float]) -> None:
    assert_close(held(hand_chunks(), path_length=d), wanted)


# Step 1 is the last of its episode, whose true final observation is 3: V' = 12. Step 2 is the first
# of another. −1 + 1 + ½·2 + ¼·12 = 4 and −6 + 2 + ½·12 = 2 with that value, 1 and −4 without.
FINAL = states(1, 3, 2)
BOOTSTRAPPED = {1: [2, 2, 6], 2: [4, 2, 6], 3: [4, 2, 6]}
TERMINAL = {1: [2, -4, 6], 2: [1, -4, 6], 3: [1, -4, 6]}


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(
    ("ends", "bootstrap", "wanted"),
    [
        (["terminated"], True, TERMINAL),
        (["terminated"], False, TERMINAL),
        (["terminated", "truncated"], True, TERMINAL),
        (["truncated"], True, BOOTSTRAPPED),
        (["truncated"], False, TERMINAL),
        (["border"], True, BOOTSTRAPPED),
        (["border"], False, BOOTSTRAPPED),
        (["truncated", "border"], True, BOOTSTRAPPED),
        (["truncated", "border"], False, TERMINAL),
        (["terminated", "border"], True, TERMINAL),
    ],
)
def test_residual_at_an_end(ends: list[str], bootstrap: bool, wanted: Any, d: int) -> None:
    chunk = hand_chunks(next_observation=FINAL, **dict.fromkeys(ends, at(1)))
    assert_close(held(chunk, path_length=d, bootstrap_time_limits=bootstrap), wanted[d])


@pytest.mark.parametrize("d", [1, 3])
def test_the_end_of_a_chunk_may_be_that_of_an_episode(d: int) -> None:
    """Without 8 beyond: −1 + 1 + ½·2 + ¼·4 = 2 and −6 + 2 + ½·4 = −2 (d = 3), −2 + 4."""
    chunk = hand_chunks(terminated=at(2))
    assert_close(held(chunk, path_length=d), {1: [2, -6, 2], 3: [2, -2, 2]}[d])


@pytest.mark.parametrize(("d", "wanted"), [(1, [4, -4, 8]), (3, [6.5, 3, 8])])
def test_moving_away_from_the_target_policy_costs(d: int, wanted: list[float]) -> None:
    """Of action 0, log N(1, 1) − log N(0, 1) = −½ twice: λ = 2 adds 2 to every reward."""
    assert_close(held(hand_chunks(), lam=2.0, policy=gaussian(1.0), path_length=d), wanted)


@pytest.mark.parametrize(("d", "sums"), [(1, [1, 1, 1]), (3, [1.75, 1.5, 1])])
def test_entropy_weight_pays_for_surprise(d: int, sums: list[float]) -> None:
    """τ = 1 adds −log N(0; 0, I) = log 2π to every reward, λ nothing as the policies agree."""
    plain = held(hand_chunks(), path_length=d)
    found = held(hand_chunks(), lam=3.0, path_length=d, entropy_weight=1.0)
    assert_close(found - plain, math.log(2.0 * math.pi) * np.array(sums))


def test_residuals_are_clipped() -> None:
    """C = (2, −6, 6) within ±1 and ±5."""
    assert_close(held(hand_chunks(), residual_clip=1.0), [1, -1, 1])
    assert_close(held(hand_chunks(), residual_clip=5.0), [2, -5, 5])


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(("lam", "tau"), [(0.7, 0.0), (0.7, 0.4), (0.0, 0.4)])
def test_the_best_policy_is_consistent(d: int, lam: float, tau: float) -> None:
    """Reward −‖a − 1‖² for ever: π ∝ exp((r + λ log π') / (τ + λ)), V(s) the log of its sum.

    Whatever was done, nothing is left to explain.
    """
    action = np.float32([[-1.0, 0.2], [0.3, 1.4], [2.0, 0.0]])
    reward = -np.sum((action - 1.0) ** 2, axis=1)
    x, width = np.linspace(-15.0, 15.0, 20_001, retstep=True)
    exponent = (-((x - 1.0) ** 2) - lam * (0.5 * x**2 + 0.5 * np.log(2.0 * np.pi))) / (tau + lam)
    value = D * (tau + lam) * np.log(np.sum(np.exp(exponent)) * width) / (1.0 - 0.5)
    best = gaussian(2.0 / (lam + 2.0), -0.5 * math.log((lam + 2.0) / (tau + lam)))
    constant = linear(0, 0, 0, 0, 0, bias=value)
    chunks = hand_chunks(action=action, reward=reward, truncated=at(1))
    options = {"path_length": d, "entropy_weight": tau}
    values = {"value": constant, "target_value": constant}
    assert_close(held(chunks, lam, best, **values, **options), np.zeros(T), atol=1e-4)
    assert np.max(np.abs(held(chunks, lam, gaussian(0.5), **values, **options))) > 0.1


# By double loops, in double precision

CONFIG = {"horizon": 4 * T, "chunk_length": T, "batch_chunks": B, "replay_chunks": 6}
CONFIG |= {"gamma": 0.9, "residual_clip": 1.0, "lambda_episodes": 20, "path_stride": 1}


def network(rng: np.random.Generator, inputs: int, outputs: int) -> networks.MLP:
    mlp = networks.init_mlp(rng, (inputs, 3, outputs), head_gain=0.5)
    return tuple(x._replace(bias=jnp.float32(0.3 * rng.standard_normal(x.bias.shape))) for x in mlp)


def pair(seed: int) -> Pair:
    rng = np.random.default_rng(seed)
    policy = GaussianPolicy(network(rng, S, D), jnp.float32(rng.uniform(-0.4, 0.4, D)))
    return Pair(policy, network(rng, 1 + 2 * S, 1))


def random_chunks(count: int = B) -> ChunkReplay:
    """The first goes on, the others end in every way."""
    rng = np.random.default_rng(3)
    terminated, truncated, border = np.zeros((3, count, T), bool)
    terminated[1, 1] = terminated[3, 0] = terminated[2, 2] = True
    truncated[2, 0] = truncated[3, 0] = truncated[1, 2] = True
    border[3, 1] = True

    def normal(*shape: int) -> Any:
        return jnp.float32(rng.standard_normal((count, T, *shape)))

    flags = map(jnp.asarray, (terminated, truncated, border))
    columns = (normal(S), normal(S), normal(D), normal())
    return ChunkReplay(*columns, *flags, number=jnp.arange(count, dtype=jnp.int32))


def forward(mlp: Any, x: Any) -> Any:
    for layer in mlp[:-1]:
        x = np.tanh(x @ layer.weight + layer.bias)
    return x @ mlp[-1].weight + mlp[-1].bias


class Formula:
    """The loss by its definition; networks are trees of numpy arrays."""

    def __init__(self, config: Config, targets: Pair, chunks: ChunkReplay, lam: float) -> None:
        self.config, self.lam = config, lam
        self.chunks = jax.tree.map(doubles, chunks)
        self.targets = doubles(targets)

    def log_pi(self, policy: Any) -> Any:
        result = np.zeros((B, T))
        for b, t in np.ndindex(B, T):
            mean = forward(policy.mean, self.chunks.observation[b, t])
            for d in range(D):
                std = math.exp(policy.log_std[d])
                distance = (self.chunks.action[b, t, d] - mean[d]) / std
                result[b, t] -= 0.5 * distance**2 + math.log(std * math.sqrt(2.0 * math.pi))
        return result

    def value(self, mlp: Any, states: Any) -> Any:
        result = np.zeros((B, T))
        for b, t in np.ndindex(B, T):
            s = states[b, t].tolist()
            result[b, t] = forward(mlp, np.array([1.0, *s, *(x * x for x in s)])).item()
        return result

    def paths(self) -> Any:
        """Start and steps of every path."""
        chunks = self.chunks
        stride, following = self.config.path_stride, np.zeros(B, int)
        for b, t in np.ndindex(B, T):
            if t % stride if stride else t < following[b]:
                continue
            steps = [t]
            while len(steps) < self.config.path_length and steps[-1] + 1 < T:
                last = b, steps[-1]
                if chunks.terminated[last] or chunks.truncated[last] or chunks.border[last]:
                    break
                steps.append(steps[-1] + 1)
            following[b] = steps[-1] + 1
            yield b, t, steps

    def residual(self, both: Any) -> Any:
        config, chunks, result = self.config, self.chunks, np.zeros((B, T))
        log_pi, log_pi_target = self.log_pi(both.policy), self.log_pi(self.targets.policy)
        value = self.value(both.value, chunks.observation)
        following = self.value(self.targets.value, chunks.next_observation)
        for b, t, steps in self.paths():
            result[b, t] = -value[b, t]
            for i, step in enumerate(steps):
                here = b, step
                reward = chunks.reward[here]
                reward -= (config.entropy_weight + self.lam) * log_pi[here]
                reward += self.lam * log_pi_target[here]
                result[b, t] += config.gamma**i * reward
            last = b, steps[-1]
            limit = chunks.truncated[last] and not config.bootstrap_time_limits
            if not (chunks.terminated[last] or limit):
                result[b, t] += config.gamma ** len(steps) * following[last]
        return result

    def loss(self, both: Any, fixed: Any) -> float:
        """With C as given, whatever the networks say."""
        log_pi, result = self.log_pi(both.policy), 0.0
        value = self.value(both.value, self.chunks.observation)
        for b, t, steps in self.paths():
            total = sum(self.config.gamma**i * log_pi[b, step] for i, step in enumerate(steps))
            result -= fixed[b, t] * (total + value[b, t]) / B
        return result

    def half_square(self, both: Any) -> float:
        """Mean over chunks of Σ_t ½ C_t², the target networks fixed."""
        return float(np.sum(0.5 * self.residual(both) ** 2) / B)


def doubles(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, bool if x.dtype == bool else np.float64), tree)


def differences(function: Any, tree: Any, step: float = 1e-5) -> Any:
    """Central differences by every parameter."""
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


@pytest.mark.parametrize(("length", "stride"), [(2, 2), (3, 2), (4, 3), (3, None)])
def test_a_stride_leaves_out_the_paths_between(
    length: int, stride: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default they are laid end to end, also after the end of an episode."""
    monkeypatch.setattr(sys.modules[__name__], "T", 4)
    some = {"chunk_length": 4, "horizon": 16, "path_length": length, "path_stride": stride}
    config = Config(**{**CONFIG, **some})
    both, targets, chunks = pair(1), pair(2), random_chunks()
    formula = Formula(config, targets, chunks, 0.7)
    fixed = np.clip(formula.residual(doubles(both)), -1.0, 1.0)
    if stride:
        assert np.all(np.any(fixed, axis=0) == (np.arange(4) % stride == 0))
    found, _ = trust_pcl.loss(config, both, targets, chunks, jnp.float32(0.7))
    assert_close(found, formula.loss(doubles(both), fixed))


@pytest.mark.parametrize(
    ("lam", "options"),
    [
        (0.7, {"path_length": 3, "path_stride": 3}),
        (0.7, {"path_length": 1}),
        (0.7, {"path_length": 2, "entropy_weight": 0.2}),
        (0.0, {"path_length": T, "bootstrap_time_limits": False}),
    ],
)
def test_the_gradient_is_that_with_c_fixed(lam: float, options: Any) -> None:
    config = Config(**{**CONFIG, **options})
    both, targets, chunks = pair(1), pair(2), random_chunks()
    formula = Formula(config, targets, chunks, lam)
    residual = formula.residual(doubles(both))
    outside = np.abs(residual) > 1.0
    assert 2 <= np.sum(outside) <= B * T - 2
    fixed = np.clip(residual, -1.0, 1.0)

    found, _ = trust_pcl.loss(config, both, targets, chunks, jnp.float32(lam))
    assert_close(found, formula.loss(doubles(both), fixed))
    gradient = gradient_of(config, both, targets, chunks, lam)
    assert_close_trees(gradient, differences(lambda x: formula.loss(x, fixed), doubles(both)))


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("lam", "tau"), [(0.0, 1.0), (0.0, 0.3), (0.0, 0.0), (0.7, 0.2)])
def test_the_gradient_is_that_of_half_the_square(lam: float, tau: float, same: bool) -> None:
    """Without a clip, and the target networks fixed, whether or not they are the networks.

    For the value it is exactly that. For the policy it is that divided by τ + λ, the factor of
    log π in C; where τ = λ = 0, C does not depend on the policy, but the loss's gradient remains.
    """
    options = {"path_length": 3, "residual_clip": UNCLIPPED, "entropy_weight": tau}
    config = Config(**{**CONFIG, **options})
    both, chunks = pair(1), random_chunks()
    targets = both if same else pair(2)
    formula = Formula(config, targets, chunks, lam)
    wanted = differences(formula.half_square, doubles(both))
    gradient = gradient_of(config, both, targets, chunks, lam)
    assert_close_trees(gradient.value, wanted.value)
    assert_close_trees(jax.tree.map(lambda g: (tau + lam) * g, gradient.policy), wanted.policy)
    assert max(float(jnp.max(jnp.abs(g))) for g in jax.tree.leaves(gradient.policy)) > 0.1


def test_what_is_measured() -> None:
    config = Config(**CONFIG, path_length=2)
    both, targets, chunks = pair(1), pair(2), random_chunks()
    formula = Formula(config, targets, chunks, 0.7)
    residual = formula.residual(doubles(both))
    value = formula.value(doubles(both).value, doubles(chunks).observation)
    kl, new, old = 0.0, doubles(both).policy, doubles(targets).policy
    for b, t in np.ndindex(B, T):
        state = doubles(chunks).observation[b, t]
        apart = (forward(new.mean, state) - forward(old.mean, state)) ** 2
        variance, old_variance = np.exp(2.0 * new.log_std), np.exp(2.0 * old.log_std)
        terms = (old_variance + apart) / variance - 1.0 - np.log(old_variance / variance)
        kl += 0.5 * np.sum(terms) / (B * T)
    _, found = trust_pcl.loss(config, both, targets, chunks, jnp.float32(0.7))
    fixed = np.clip(residual, -1.0, 1.0)
    wanted = {
        "train/objective": -formula.loss(doubles(both), fixed) / T,
        "train/value_loss": 0.5 * np.mean(residual**2),
        "train/residual": np.mean(np.abs(residual)),
        "train/residual_clipped": np.mean(np.abs(residual) > 1.0),
        "train/explained_variance": 1.0 - np.var(residual) / np.var(residual + value),
        "is/kl": kl,
    }
    assert set(found) == set(wanted)
    for name, x in found.items():
        np.testing.assert_allclose(x, wanted[name], rtol=1e-4, err_msg=name)


def test_the_values_features_are_one_the_state_and_its_square() -> None:
    """[1, 2, −3, 4, 9] · [1, 10, 100, 1000, 10⁴] + ½."""
    found = trust_pcl.values(linear(1, 10, 100, 1e3, 1e4, bias=0.5), jnp.float32([[2, -3]]))
    np.testing.assert_array_equal(found, [93_721.5])


# λ

KL = math.log(2) + 0.25 * math.log(0.25) + 0.75 * math.log(0.75)  # of q = (¼, ¾) from p = (½, ½)


@pytest.mark.parametrize("lengths", [[10.0] * 20, [5.0, 15.0] * 10])
@pytest.mark.parametrize("known", [10, 20])
def test_the_goal_of_lambda(lengths: list[float], known: int) -> None:
    """Half the returns are 7 higher: at q = (¼, ¾), λ = 7/log 3, which is to be ε · 10."""
    returns, lengths = np.float32([[3, 10] * 10, lengths])
    returns[: 20 - known] = lengths[: 20 - known] = np.nan
    found = trust_pcl.lambda_goal(Config(divergence=KL / 10.0), returns, lengths)
    assert found == pytest.approx(7.0 / math.log(3), rel=1e-5)


@pytest.mark.parametrize(("episodes", "known", "early"), [(20, 8, True), (20, 9, False)])
def test_before_nine_episodes_have_ended_the_goal_is_500(
    episodes: int, known: int, early: bool
) -> None:
    returns = np.full(episodes, np.nan, np.float32)
    returns[episodes - known :] = np.arange(known)
    found = trust_pcl.lambda_goal(Config(lambda_episodes=episodes), returns, returns)
    assert (found == 500.0) == early


def test_the_goal_does_not_wait_for_more_episodes_than_are_kept() -> None:
    config, returns = Config(lambda_episodes=4), np.float32([np.nan, 1, 2, 3])
    assert trust_pcl.lambda_goal(config, returns, returns) == 500.0
    assert trust_pcl.lambda_goal(config, np.float32([0, 1, 2, 3]), returns + 1) != 500.0


# Gradient steps

DRAWN = np.int32([[0, 0, 0, 3], [1, 1, 2, 4], [5, 0, 1, 1], [2, 3, 3, 0]])


def small(**options: Any) -> Config:
    """Gradients that are small enough for Adam's ε to matter, some of them beyond their bound.

    Half of 20 returns 7 higher than the others call for λ = 7/log 3, as above.
    """
    step = {"learning_rate": 0.05, "residual_clip": 1e-4, "max_gradient_norm": 1e-3}
    step |= {"path_length": 3, "target_decay": 0.6, "divergence": KL / 7.0}
    return Config(**{**CONFIG, "widths": (3,), **step, **options})


def start(both: Pair, targets: Pair, lam: float) -> Carry:
    return Carry(optim.init(both.policy), optim.init(both.value), targets, jnp.float32(lam))


def test_lambda_and_targets_move_by_the_decay() -> None:
    """With 0.75 kept at each step: λ from 20 to 100, the targets from 0 to 1."""
    config = Config(**HAND, target_decay=0.75, learning_rate=1e-30)
    both = Pair(gaussian(), VALUE)
    ones, zeros = (jax.tree.map(lambda x, c=c: jnp.full_like(x, c), both) for c in (1.0, 0.0))
    carry, slots = start(ones, zeros, 20.0), np.int32([[0, 1, 2, 3]])
    for lam, share in ((40.0, 0.25), (55.0, 0.4375), (66.25, 0.578125)):
        carry, _ = trust_pcl.descend(config, carry, hand_chunks(), slots, 100.0)
        assert carry.lam == lam
        equal_trees(carry.targets, jax.tree.map(lambda x, c=share: jnp.full_like(x, c), both))
        equal_trees((carry.policy.parameters, carry.value.parameters), tuple(ones))


def test_a_step_is_adams_on_the_gradient_of_both_held_within_its_norm() -> None:
    """In double precision, λ moved before each step and the targets after it."""
    config, lam, goal = small(), 2.0, 0.5
    rate, decay, bound = config.learning_rate, config.target_decay, config.max_gradient_norm
    replay, both, targets = random_chunks(6), pair(1), pair(2)
    carry, measured = trust_pcl.descend(config, start(both, targets, lam), replay, DRAWN, goal)

    leaves, structure = jax.tree.flatten(doubles(both))
    first, second = ([np.zeros_like(x) for x in leaves] for _ in range(2))
    beyond = []
    for n, slots in enumerate(DRAWN, start=1):
        lam = decay * lam + (1.0 - decay) * goal
        chunks = jax.tree.map(lambda x, slots=slots: x[slots], replay)
        here = jax.tree.map(jnp.float32, jax.tree.unflatten(structure, leaves))
        gradient = jax.tree.leaves(doubles(gradient_of(config, here, targets, chunks, lam)))
        norm = math.sqrt(sum(np.sum(g**2) for g in gradient))
        beyond.append(norm > bound)
        assert_close(measured["train/gradient_norm"][n - 1], norm, rtol=1e-3, atol=0.0)
        for i, g in enumerate(gradient):
            g = g * min(1.0, bound / norm)
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g**2
            root = np.sqrt(second[i] / (1.0 - 0.999**n))
            leaves[i] = leaves[i] - rate * first[i] / (1.0 - 0.9**n) / (root + 2e-4)
        both = jax.tree.unflatten(structure, leaves)
        targets = jax.tree.map(lambda x, y: jnp.float32(0.6 * x + 0.4 * y), targets, both)
    assert len(set(beyond)) == 2, measured["train/gradient_norm"]
    assert_close_trees(Pair(carry.policy.parameters, carry.value.parameters), both)
    assert_close_trees(carry.targets, targets)
    assert_close(carry.lam, lam)


# The state


def rollout(returns: list[float], steps: int = 4 * T) -> Rollout:
    rng = np.random.default_rng(len(returns))

    def normal(*shape: int) -> Any:
        return np.float32(rng.standard_normal((steps, *shape)))

    no = np.zeros(steps, bool)
    return Rollout(
        observation=normal(S),
        action=normal(D),
        mean=normal(D),
        log_std=np.zeros(D, np.float32),
        reward=normal(),
        next_observation=normal(S),
        terminated=no,
        truncated=no,
        border=np.arange(steps) == steps - 1,
        returns=np.float32(returns),
        lengths=np.float32(returns) + 0.5,
    )


def observed(config: Config, *episodes: list[float], seed: int = 0) -> State:
    state = trust_pcl.init(config, SPEC, 1, seed)
    for returns in episodes:
        state = trust_pcl.observe(config, state, rollout(returns))
    return state


def test_a_fresh_state() -> None:
    state = trust_pcl.init(small(), SPEC, 1, 0)
    assert [layer.weight.shape for layer in state.policy.parameters.mean] == [(S, 3), (3, D)]
    assert [layer.weight.shape for layer in state.value.parameters] == [(1 + 2 * S, 3), (3, 1)]
    equal_trees(state.targets, Pair(state.policy.parameters, state.value.parameters))
    assert state.lam == 0.0
    assert state.replay.filled == 0
    np.testing.assert_array_equal(state.returns, np.full(20, np.nan))
    np.testing.assert_array_equal(state.lengths, np.full(20, np.nan))


def test_the_last_returns_are_kept_in_order() -> None:
    config, nan = small(lambda_episodes=4), np.nan
    state = trust_pcl.init(config, SPEC, 1, 0)
    for i, (returns, wanted) in enumerate(
        [
            ([], [nan, nan, nan, nan]),
            ([1], [nan, nan, nan, 1]),
            ([2, 3], [nan, 1, 2, 3]),
            ([], [nan, 1, 2, 3]),
            ([4, 5], [2, 3, 4, 5]),
            ([6, 7, 8, 9, 10, 11], [8, 9, 10, 11]),
        ]
    ):
        state = trust_pcl.observe(config, state, rollout(returns))
        np.testing.assert_array_equal(state.returns, wanted)
        np.testing.assert_array_equal(state.lengths, np.array(wanted) + 0.5)
        assert state.step == (i + 1) * 4 * T
        assert state.replay.filled == min(6, 4 * (i + 1))


def test_the_policy_acts_on_observations_as_they_are() -> None:
    config = small()
    state = observed(config, [])
    policy = pair(1).policy._replace(log_std=jnp.float32([0.5, -0.5]))
    state = dataclasses.replace(state, policy=optim.init(policy))
    x = np.float32([[0.1, -0.2], [40.0, -30.0]])
    acting = trust_pcl.act(config, SPEC, state)
    assert_close(acting.mean(x), forward(doubles(policy.mean), x))
    action, mean = acting(x[0], np.float32([1.0, -2.0]))
    assert_close(action - mean, [np.exp(0.5), -2.0 * np.exp(-0.5)])


def test_a_run_from_other_networks_has_its_targets_there() -> None:
    state, both = trust_pcl.init(small(), SPEC, 1, 0), pair(1)
    state = state.start_from(both._asdict(), state.normalizer)
    equal_trees(state.targets, both)
    equal_trees((state.policy.parameters, state.value.parameters), tuple(both))


def test_an_update_takes_a_gradient_step_for_each_chunk() -> None:
    """Four of them; λ goes 1 − 0.6⁴ of its way from 1 to 7/log 3, as above."""
    before = dataclasses.replace(observed(small(), [3, 10] * 10), lam=1.0)
    after, metrics = trust_pcl.update(small(), before, 1)
    assert after.policy.moments.count == after.value.moments.count == 4
    assert (after.iteration, after.step) == (1, 4 * T)
    goal = 7.0 / math.log(3)
    assert metrics["train/lambda_goal"] == pytest.approx(goal, rel=1e-5)
    assert after.lam == pytest.approx(goal - (goal - 1.0) * 0.6**4, rel=1e-5)
    assert metrics["train/lambda"] == after.lam
    for name in ("policy", "value"):
        moved = getattr(after, name).parameters, getattr(before, name).parameters
        for new, old in zip(*map(jax.tree.leaves, moved), strict=True):
            assert np.all(new != old), name
            assert np.max(np.abs(new - old)) < 4.1 * small().learning_rate


def test_an_update_reads_stored_chunks_only() -> None:
    """Nothing that reads a NaN is finite; four of six slots are filled."""
    state = observed(small(), [])
    for slots, finite in (([4, 5], True), ([0], False)):
        reward = state.replay.reward.at[np.array(slots)].set(jnp.nan)
        spoilt = dataclasses.replace(state, replay=state.replay._replace(reward=reward))
        after, _ = trust_pcl.update(small(), spoilt, 1)
        learned = (after.policy.parameters, after.value.parameters, after.targets)
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(learned)) == finite


def drawn_by_update(monkeypatch: pytest.MonkeyPatch, config: Config, state: State) -> Any:
    """The slots that an update hands to its gradient steps."""
    seen: list[Any] = []

    def record(config: Config, carry: Carry, replay: Any, drawn: Any, goal: float) -> Any:
        seen.append(drawn)
        return carry, {}

    monkeypatch.setattr(trust_pcl, "descend", record)
    trust_pcl.update(config, state, 1)
    assert seen[0].shape == (4, B)
    return seen[0]


def test_each_update_draws_anew_and_repeatably(monkeypatch: pytest.MonkeyPatch) -> None:
    state = observed(small(), [])
    changes: list[Any] = [{}, {}, {"iteration": 1}, {"seed": 1}]
    first, again, *others = (
        drawn_by_update(monkeypatch, small(), dataclasses.replace(state, **change))
        for change in changes
    )
    np.testing.assert_array_equal(first, again)
    assert all(np.any(first != other) for other in others)


def test_recency_chooses_the_chunks_of_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight were pushed into six slots: the newest is in slot 1."""
    state = observed(small(), [], [])
    assert np.all(drawn_by_update(monkeypatch, small(recency=1000.0), state) == 1)
    assert len(np.unique(drawn_by_update(monkeypatch, small(recency=0.0), state))) > 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path_length": 11}, "path_length must be at most chunk_length, 10"),
        ({"path_stride": 0}, r"path_stride must be within \[1, 10\]"),
        ({"path_length": 1, "path_stride": 2}, r"path_stride must be within \[1, 1\]"),
        ({"horizon": 1001}, "horizon must be divisible by chunk_length, 10"),
        ({"target_decay": 1.1}, "target_decay must be within"),
        ({"residual_clip": 0.0}, "residual_clip must be above 0"),
        ({"max_gradient_norm": 0.0}, "max_gradient_norm must be above 0"),
        ({"recency": -1.0}, "recency must be at least 0"),
        ({"lambda_episodes": 1}, "lambda_episodes must be at least 2"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, message: str) -> None:
    with pytest.raises(DiscError, match=message):
        Config(**options)
