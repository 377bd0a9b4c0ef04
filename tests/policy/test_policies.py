"""NumPy policies match their networks and stay within the action bounds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import DiscError
from disc.learning import networks, normalize
from disc.learning.types import Scale
from disc.policy.policies import Deterministic, Uniform
from tests.support.compare import assert_close
from tests.support.policies import HIGH, LOW, SHAPE, D, S, every_kind, make, noise_of, observations


def stretched(squashed: Any) -> Any:
    """Map [−1, 1] linearly to the action bounds."""
    share = (np.float64(squashed) + 1.0) / 2.0
    return np.float64(LOW) * (1.0 - share) + np.float64(HIGH) * share


def wanted_action(kind: str, acting: Any, layers: Any, x: Any, noise: Any) -> Any:
    """The action of the JAX network; without noise if `noise` is None."""
    clip = 1e9 if acting.observation_clip is None else acting.observation_clip
    scale = Scale(acting.observation_mean, acting.observation_inverse_std, np.float32(1.0))
    seen = normalize.observations(scale, jnp.asarray(x.reshape(-1, S)), clip)
    if kind == "sampler":
        noise = np.zeros((len(x), D), np.float32) if noise is None else noise
        return stretched(np.tanh(np.float64(networks.forward_pairs(layers, seen, noise))))
    output = np.float64(networks.forward(layers, seen, jax.nn.relu))
    if kind == "squashed":
        mean, log_std = output[:, :D], np.clip(output[:, D:], -20.0, 2.0)
        return stretched(np.tanh(mean if noise is None else mean + np.exp(log_std) * noise))
    squashed = np.tanh(output)
    if noise is not None:
        squashed = np.clip(squashed + acting.exploration * noise, -1.0, 1.0)
    return stretched(squashed)


# Acting


@pytest.mark.parametrize("clip", [None, 0.7])
@every_kind
def test_numpy_actions_match_the_network(kind: str, clip: float | None) -> None:
    acting, layers = make(kind, observation_clip=clip)
    x, noise = observations(), noise_of()
    mean = acting.mean(x.reshape(-1, S))
    assert mean.dtype == np.float32
    assert_close(mean, wanted_action(kind, acting, layers, x, None))
    sampled = acting.sample(x.reshape(-1, S), noise)
    assert sampled.dtype == np.float32
    assert_close(sampled, wanted_action(kind, acting, layers, x, noise))
    assert np.mean(sampled != mean) > 0.9


@every_kind
def test_rollout_actor_samples_one_action_per_call(kind: str) -> None:
    """An actor has no mean to report and returns the action in its place."""
    acting, layers = make(kind)
    x, noise = observations(), noise_of()
    wanted = wanted_action(kind, acting, layers, x, noise)
    for row in range(len(x)):
        action, mean = acting(x[row].ravel(), noise[row])
        assert action.shape == (D,)
        assert action.dtype == np.float32
        assert_close(action, wanted[row])
        np.testing.assert_array_equal(mean, action)
        np.testing.assert_array_equal(acting.bound(action), action.reshape(2, 2))
    assert np.all(np.isnan(acting.log_std))
    assert acting.log_std.shape == (D,)
    assert acting.episode(3, 1) is acting


@every_kind
def test_batch_matches_its_single_rows(kind: str) -> None:
    acting, _ = make(kind)
    x, noise = observations(), noise_of()
    flat = x.reshape(-1, S)
    together, means = acting.sample(flat, noise), acting.mean(flat)
    for row in range(len(x)):
        assert_close(acting.sample(flat[row], noise[row]), together[row], rtol=1e-5, atol=1e-6)
        assert_close(acting.mean(flat[row]), means[row], rtol=1e-5, atol=1e-6)


@every_kind
def test_predict_takes_one_observation_or_a_batch(kind: str) -> None:
    acting, layers = make(kind)
    x = observations()
    for deterministic in (True, False):
        draws = deterministic is False or kind == "sampler"
        acting.seed(5)
        noise = np.random.default_rng(5).standard_normal((9, D), np.float32) if draws else None
        wanted = wanted_action(kind, acting, layers, x, noise).reshape(9, 2, 2)
        found, state = acting.predict(x, deterministic=deterministic)
        assert state is None
        assert_close(found, wanted)
        acting.seed(5)
        one, _ = acting.predict(x[0], deterministic=deterministic)
        assert one.shape == (2, 2)
        assert_close(one, wanted[0])
    with pytest.raises(DiscError, match=r"shape \(6,\)"):
        acting.predict(x[0].ravel())


@every_kind
def test_only_samplers_stay_random_with_deterministic_true(kind: str) -> None:
    acting, _ = make(kind)
    x = observations(1)[0]
    for deterministic, differ in ((True, kind == "sampler"), (False, True)):
        first, second = (acting.predict(x, deterministic=deterministic)[0] for _ in range(2))
        assert np.any(first != second) == differ
    assert acting.sampled_only == (kind == "sampler")


@every_kind
def test_actions_stay_within_their_bounds(kind: str) -> None:
    """And reach every bound, for large outputs of the network or of its negation."""
    x, noise = observations(2000, reach=3.0).reshape(-1, S), 3.0 * noise_of(2000)
    reached = []
    for reach in (1.0, -1.0, 1000.0, -1000.0):
        acting, _ = make(kind, reach=reach)
        predicted, _ = acting.predict(x.reshape(-1, *SHAPE), deterministic=False)
        for action in (acting.mean(x), acting.sample(x, noise), predicted.reshape(-1, D)):
            assert np.all(action >= LOW)
            assert np.all(action <= HIGH)
            reached.append(action)
    assert_close(np.min(reached, axis=(0, 1)), LOW)
    assert_close(np.max(reached, axis=(0, 1)), HIGH)


def test_squashed_gaussian_clamps_log_std() -> None:
    """A log σ of −1000 acts as −20, one of 1000 as 2."""
    acting, _ = make("squashed")
    one = np.ones(D, np.float32)
    for log_std, std in ((-1000.0, math.exp(-20.0)), (1000.0, math.exp(2.0)), (-1.0, 1 / math.e)):
        bias = np.append(0.05 * one, np.float32(log_std) * one)
        still = dataclasses.replace(
            acting,
            weights=(*acting.weights[:2], np.zeros_like(acting.weights[2])),
            biases=(*acting.biases[:2], bias),
        )
        found = still.sample(np.zeros(S, np.float32), 0.1 * one)
        assert_close(found, stretched(np.tanh(0.05 + std * 0.1) * one))


def test_deterministic_policy_matches_hand_calculation() -> None:
    """relu(2·(3 − 1)·½) = 2; the action is tanh 2 of the way from the middle, 1, to bound 3."""

    def number(*values: float) -> Any:
        return np.float32(values)

    fields: dict[str, Any] = {
        "weights": (number(2.0).reshape(1, 1), number(1.0).reshape(1, 1)),
        "biases": (number(0.0), number(0.0)),
        "observation_mean": number(1.0),
        "observation_inverse_std": number(0.5),
        "observation_shape": (1,),
        "action_low": number(-1.0),
        "action_high": number(3.0),
        "action_shape": (1,),
    }
    acting = Deterministic(**fields, exploration=0.1)
    middle = 1.0 + 2.0 * math.tanh(2.0)
    assert_close(acting.predict([3.0])[0], [middle])
    assert_close(acting.sample(number(3.0), number(-0.5)), [middle - 2.0 * 0.05])
    assert_close(acting.sample(number(3.0), number(1.0)), [3.0])  # 0.964 + 0.1 is clipped to 1
    assert_close(acting.predict([-3.0])[0], [1.0])
    held = Deterministic(**fields, exploration=0.0, observation_clip=0.25)
    assert_close(held.predict([3.0])[0], [1.0 + 2.0 * math.tanh(0.5)])
    assert_close(held.sample(number(3.0), number(9.0)), held.predict([3.0])[0])


# Random actions


def uniform() -> Uniform:
    return Uniform(LOW, HIGH, (2, 2))


def test_random_actions_are_uniform_in_every_dimension() -> None:
    """The Kolmogorov–Smirnov distance of n draws exceeds 1.95/√n once in a thousand times."""
    count = 20_000
    noise, actor, nothing = noise_of(count, seed=3), uniform(), np.zeros(S, np.float32)
    actions = np.array([actor(nothing, row)[0] for row in noise], np.float64)
    assert actions.shape == (count, D)
    shares = (actions - np.float64(LOW)) / (np.float64(HIGH) - np.float64(LOW))
    for column in np.sort(shares, axis=0).T:
        steps = np.arange(count + 1) / count
        distance = max(np.max(steps[1:] - column), np.max(column - steps[:-1]))
        assert distance < 1.95 / math.sqrt(count)
    mixed = np.corrcoef(shares.T)[np.triu_indices(D, 1)]
    assert np.max(np.abs(mixed)) < 4.0 / math.sqrt(count)


def test_random_actions_match_hand_calculation() -> None:
    """Noise 0 gives the middle, 1.96 leaves 2.5 % above it, and large noise gives the bounds."""
    actor, seen = uniform(), np.ones(S, np.float32)
    one = np.ones(D, np.float32)
    middle, mean = actor(seen, 0.0 * one)
    assert_close(middle, stretched(0.0 * one))
    np.testing.assert_array_equal(mean, middle)
    assert middle.dtype == np.float32
    assert_close(actor(seen, 1.959964 * one)[0], stretched(0.95 * one))
    assert_close(actor(seen, -1.959964 * one)[0], stretched(-0.95 * one))
    assert_close(actor(seen, 30.0 * one)[0], HIGH)
    assert_close(actor(seen, -30.0 * one)[0], LOW)


def test_random_actions_ignore_observations_and_keep_their_shape() -> None:
    actor, noise = uniform(), noise_of(1)[0]
    first, second = (actor(x, noise)[0] for x in observations(2).reshape(2, S))
    np.testing.assert_array_equal(first, second)
    assert actor.bound(first).tolist() == first.reshape(2, 2).tolist()
    assert actor.episode(1) is actor
    assert np.all(np.isnan(actor.log_std))
