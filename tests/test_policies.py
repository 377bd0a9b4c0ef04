"""Policies in numpy: each is its network, stays within its bounds and is refused if damaged."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import DiscError, networks, normalize, policy
from disc.networks import Linear, NormalizedLinear
from disc.normalize import Scale
from disc.policies import Deterministic, Gaussian, Policy, Sampler, Squashed, Uniform

SHAPE, S, D, H = (2, 3), 6, 4, 7
LOW, HIGH = np.float32([-1.0, -0.4, 2.0, 0.0]), np.float32([3.0, 0.4, 10.0, 0.01])
KINDS = ["squashed", "deterministic", "normalized", "sampler"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def make(kind: str, seed: int = 0, reach: float = 1.0, **changes: Any) -> tuple[Any, Any]:
    """A policy, and the same network's layers for JAX; `reach` multiplies the head's weights."""
    rng = np.random.default_rng(seed)
    sizes = {"squashed": (S, H, H, 2 * D), "sampler": (S + D, H, H, D)}.get(kind, (S, H, H, D))
    layers: list[Any] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        weight, rest = rng.standard_normal((a, b)) / math.sqrt(a), rng.standard_normal((3, b))
        weight = weight * (reach if i == 2 else 1.0)
        arrays = [np.float32(weight), *np.float32(rest)]
        layers.append(
            NormalizedLinear(*arrays) if kind == "normalized" and i < 2 else Linear(*arrays[:2])
        )
    fields: dict[str, Any] = {
        "weights": tuple(layer.weight for layer in layers),
        "biases": tuple(layer.bias for layer in layers),
        "observation_mean": np.float32(rng.standard_normal(S)),
        "observation_inverse_std": np.float32(rng.uniform(0.5, 2.0, S)),
        "observation_shape": SHAPE,
        "action_low": LOW,
        "action_high": HIGH,
        "action_shape": (2, 2),
    }
    if kind in ("deterministic", "normalized"):
        fields["exploration"] = 0.3
    if kind == "normalized":
        fields["scales"] = tuple(layer.scale for layer in layers[:-1])
        fields["shifts"] = tuple(layer.shift for layer in layers[:-1])
    kinds: dict[str, type[Policy]] = {
        "squashed": Squashed,
        "sampler": Sampler,
        "deterministic": Deterministic,
        "normalized": Deterministic,
    }
    return kinds[kind](**{**fields, **changes}), tuple(layers)


def stretched(squashed: Any) -> Any:
    """−1 is the lower bound, 1 the upper, and all between lies on the line."""
    share = (np.float64(squashed) + 1.0) / 2.0
    return np.float64(LOW) * (1.0 - share) + np.float64(HIGH) * share


def wanted_action(kind: str, acting: Any, layers: Any, x: Any, noise: Any) -> Any:
    """The action that the JAX network takes; without noise if that is None."""
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


def observations(count: int = 9, seed: int = 1, reach: float = 2.0) -> Any:
    return np.float32(reach * np.random.default_rng(seed).standard_normal((count, *SHAPE)))


def noise_of(count: int = 9, seed: int = 2) -> Any:
    return np.random.default_rng(seed).standard_normal((count, D)).astype(np.float32)


# Acting


@pytest.mark.parametrize("clip", [None, 0.7])
@every_kind
def test_acting_in_numpy_is_the_network(kind: str, clip: float | None) -> None:
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
def test_the_actor_of_a_rollout_samples_one_at_a_time(kind: str) -> None:
    """As an actor it has no mean to report, and stores what it did."""
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
def test_a_batch_is_its_rows(kind: str) -> None:
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
def test_only_a_sampler_samples_when_told_not_to(kind: str) -> None:
    acting, _ = make(kind)
    x = observations(1)[0]
    for deterministic, differ in ((True, kind == "sampler"), (False, True)):
        first, second = (acting.predict(x, deterministic=deterministic)[0] for _ in range(2))
        assert np.any(first != second) == differ
    assert acting.sampled_only == (kind == "sampler")


@every_kind
def test_actions_stay_within_their_bounds(kind: str) -> None:
    """And come up to all of them, where the network or its mirror image says so."""
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


def test_the_deviation_of_a_squashed_gaussian_is_held_within_its_range() -> None:
    """A log σ of −1000 is one of −20, and 1000 is 2."""
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


def test_a_deterministic_policy_by_hand() -> None:
    """relu(2·(3 − 1)·½) = 2; tanh 2 of the way from the middle, 1, to the bound, 3."""

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
    assert_close(acting.sample(number(3.0), number(1.0)), [3.0])  # 0.964 + 0.1 is held at 1
    assert_close(acting.predict([-3.0])[0], [1.0])
    held = Deterministic(**fields, exploration=0.0, observation_clip=0.25)
    assert_close(held.predict([3.0])[0], [1.0 + 2.0 * math.tanh(0.5)])
    assert_close(held.sample(number(3.0), number(9.0)), held.predict([3.0])[0])


# At random


def uniform() -> Uniform:
    return Uniform(LOW, HIGH, (2, 2))


def test_random_actions_are_uniform_in_every_dimension() -> None:
    """Kolmogorov's distance of n draws is below 1.95/√n but once in a thousand times."""
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


def test_random_actions_by_hand() -> None:
    """Noise 0 is the middle; 1.96 leaves 2.5 % above it; far noise is at the bounds."""
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


def test_random_actions_do_not_look_and_have_a_shape() -> None:
    actor, noise = uniform(), noise_of(1)[0]
    first, second = (actor(x, noise)[0] for x in observations(2).reshape(2, S))
    np.testing.assert_array_equal(first, second)
    assert actor.bound(first).tolist() == first.reshape(2, 2).tolist()
    assert actor.episode(1) is actor
    assert np.all(np.isnan(actor.log_std))


# The file


def contents(acting: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A policy file's tensors and header, by the names that are documented."""
    tensors = {**acting.tensors()}
    groups = {"weight": acting.weights, "bias": acting.biases}
    if isinstance(acting, Deterministic):
        groups |= {"scale": acting.scales, "shift": acting.shifts}
    for name, arrays in groups.items():
        tensors |= {f"policy/{name}_{i}": array for i, array in enumerate(arrays)}
    return tensors, acting.header()


@pytest.mark.parametrize("clip", [None, 5.0])
@every_kind
def test_a_file_gives_the_policy_back(kind: str, clip: float | None, tmp_path: Path) -> None:
    acting, _ = make(kind, observation_clip=clip)
    policy.write(tmp_path / "p.disc", *contents(acting))
    found = policy.read(tmp_path / "p.disc").policy
    assert type(found) is type(acting)
    x, noise = observations().reshape(-1, S), noise_of()
    np.testing.assert_array_equal(found.mean(x), acting.mean(x))
    np.testing.assert_array_equal(found.sample(x, noise), acting.sample(x, noise))
    for field in dataclasses.fields(acting):
        if field.name != "rng":
            one, other = (getattr(x, field.name) for x in (found, acting))
            assert jax.tree.structure(one) == jax.tree.structure(other)
            for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
                np.testing.assert_array_equal(a, b)


def assert_refused(
    path: Path, tensors: dict[str, Any], header: dict[str, Any], says: str = "not complete"
) -> None:
    policy.write(path, tensors, header)
    with pytest.raises(DiscError, match=says) as refused:
        policy.read(path)
    assert str(refused.value).startswith(f"{path}: ")


@every_kind
def test_a_file_without_one_of_its_arrays_is_refused(kind: str, tmp_path: Path) -> None:
    tensors, header = contents(make(kind)[0])
    assert len(tensors) == (14 if kind == "normalized" else 10)
    for name in tensors:
        rest = {other: array for other, array in tensors.items() if other != name}
        assert_refused(tmp_path / "p.disc", rest, header)


@every_kind
def test_a_file_without_one_of_its_facts_is_refused(kind: str, tmp_path: Path) -> None:
    """But for the clip, which older files do not name, and the kind, which was Gaussian."""
    tensors, header = contents(make(kind)[0])
    own = {"exploration"} if kind in ("deterministic", "normalized") else set()
    shared = {"kind", "observation_shape", "action_shape", "observation_clip", "clip_actions"}
    assert set(header) == shared | own
    for name in set(header) - {"observation_clip"}:
        rest = {other: fact for other, fact in header.items() if other != name}
        assert_refused(tmp_path / "p.disc", tensors, rest)


@every_kind
def test_arrays_that_do_not_fit_are_refused(kind: str, tmp_path: Path) -> None:
    """One row or one column too few, or another number of dimensions, of any array."""
    tensors, header = contents(make(kind)[0])
    for name, array in tensors.items():
        for wrong in (array[:-1], array[..., :-1], array[None], array[..., None]):
            assert_refused(tmp_path / "p.disc", {**tensors, name: np.array(wrong)}, header)


@pytest.mark.parametrize("kind", ["", "Squashed", "uniform", 3, ["squashed"], {"a": 1}])
def test_a_policy_of_an_unknown_kind_is_refused(kind: Any, tmp_path: Path) -> None:
    tensors, header = contents(make("squashed")[0])
    says = "a policy of kind .*, which this disc-rl does not know"
    assert_refused(tmp_path / "p.disc", tensors, {**header, "kind": kind}, says)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("squashed", "deterministic"),
        ("squashed", "sampler"),
        ("squashed", "gaussian"),
        ("deterministic", "squashed"),
        ("deterministic", "sampler"),
        ("deterministic", "gaussian"),
        ("sampler", "squashed"),
        ("sampler", "deterministic"),
        ("normalized", "sampler"),
    ],
)
def test_a_policy_of_one_kind_is_none_of_another(written: str, read: str, tmp_path: Path) -> None:
    tensors, header = contents(make(written)[0])
    facts = {**header, "kind": read, "exploration": 0.1, "clip_actions": False}
    assert_refused(tmp_path / "p.disc", tensors, facts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"observation_shape": [5]},
        {"observation_shape": None},
        {"observation_shape": 6},
        {"action_shape": [2]},
        {"action_shape": ["a"]},
        {"observation_clip": -1.0},
        {"observation_clip": 0},
        {"observation_clip": "ten"},
        {"exploration": None},
        {"exploration": "much"},
    ],
    ids=str,
)
def test_facts_that_make_no_sense_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    tensors, header = contents(make("normalized")[0])
    assert_refused(tmp_path / "p.disc", tensors, {**header, **wrong})


def test_a_file_of_no_kind_is_a_gaussian_as_before(tmp_path: Path) -> None:
    tensors, header = contents(make("deterministic")[0])
    tensors["policy/log_std"] = np.zeros(D, np.float32)
    facts = {name: fact for name, fact in header.items() if name not in ("kind", "exploration")}
    policy.write(tmp_path / "p.disc", tensors, {**facts, "clip_actions": True})
    found = policy.read(tmp_path / "p.disc").policy
    assert isinstance(found, Gaussian)
    assert found.clip_actions
