"""Policies for discrete actions in numpy: their distribution, their actions and their files."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import DiscError
from disc.cli.policy import _check_fit
from disc.envs.factory import Maker
from disc.policy import file
from disc.policy.policies import Categorical
from tests.support import environments as probes
from tests.support.compare import assert_equal_trees
from tests.support.environments import SPACES
from tests.support.policies import S, make_categorical
from tests.support.small import small

every_space = pytest.mark.parametrize("space", list(SPACES))


def observations(count: int = 9) -> Any:
    return np.random.default_rng(1).standard_normal((count, 2, 3)).astype(np.float32)


@every_space
def test_logits_and_most_probable_choice_match_the_jax_network(space: str) -> None:
    acting, policy = make_categorical(space)
    x = observations().reshape(-1, S)
    logits = np.asarray(policy.output(jnp.asarray(x)))
    np.testing.assert_allclose(acting.logits(x), logits, rtol=1e-4, atol=1e-5)
    starts = np.cumsum([0, *policy.counts])
    wanted = [[row[a:b].argmax() for a, b in pairwise(starts)] for row in logits]
    np.testing.assert_array_equal(acting.mean(x), wanted)
    for row, seen in zip(wanted, x, strict=True):
        np.testing.assert_array_equal(acting.mean(seen), row)


@every_space
def test_samples_have_the_probabilities_of_the_softmax(space: str) -> None:
    acting, policy = make_categorical(space, reach=1.0)
    count, x = 20_000, observations(1).reshape(1, S)
    noise = acting.noise(np.random.default_rng(2), count)
    drawn = acting.sample(np.repeat(x, count, axis=0), noise)
    offset = 0
    for d, k in enumerate(policy.counts):
        wanted = jax.nn.softmax(policy.output(jnp.asarray(x))[0, offset : offset + k])
        found = np.bincount(drawn[:, d].astype(int), minlength=k) / count
        np.testing.assert_allclose(found, wanted, atol=4.0 * 0.5 / math.sqrt(count))
        offset += k


@every_space
def test_actor_returns_the_sampled_index_and_the_logits(space: str) -> None:
    acting, _ = make_categorical(space)
    x = observations().reshape(-1, S)
    noise = acting.noise(np.random.default_rng(3), len(x))
    together = acting.sample(x, noise)
    for row, seen in enumerate(x):
        index, logits = acting(seen, noise[row])
        np.testing.assert_array_equal(index, together[row])
        np.testing.assert_array_equal(logits, acting.logits(seen))
    assert np.all(np.isnan(acting.log_std))


@every_space
@pytest.mark.parametrize("deterministic", [True, False])
def test_predicted_actions_are_in_the_space(space: str, deterministic: bool) -> None:
    acting, _ = make_categorical(space)
    acting.seed(0)
    together, _ = acting.predict(observations(50), deterministic)
    assert together.dtype == SPACES[space].dtype
    assert len({str(action) for action in together}) > 1
    for action in together:
        assert SPACES[space].contains(action)
    single, _ = acting.predict(observations()[0], deterministic)
    assert SPACES[space].contains(single)
    assert type(single) is (int if space == "discrete" else np.ndarray)


def test_offsets_and_order_of_dimensions_are_those_of_the_space() -> None:
    acting, _ = make_categorical("multi")
    action = acting.bound(np.float32([2, 1, 3, 0]))
    np.testing.assert_array_equal(action, [[1, 1], [13, 5]])
    assert make_categorical("discrete")[0].bound(np.float32([2])) == 1
    binary = make_categorical("binary")[0].bound(np.float32([0, 1, 1, 0]))
    np.testing.assert_array_equal(binary, [[0, 1], [1, 0]])
    assert binary.dtype == np.int8


def test_clipping_changes_nothing() -> None:
    acting, _ = make_categorical("multi")
    for clip in (True, False):
        np.testing.assert_array_equal(
            acting.predict(observations(), clip=clip)[0], acting.predict(observations())[0]
        )


def test_non_finite_observation_raises_instead_of_choosing() -> None:
    acting, _ = make_categorical("multi")
    assert np.isnan(acting.mean(np.full(S, np.nan, np.float32))).all()
    with pytest.raises(DiscError, match="the action is not finite"):
        acting.predict(np.full((2, 3), np.nan))


# Files


def contents(acting: Categorical) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays: dict[str, Any] = {**acting.tensors()}
    for name, group in {"weight": acting.weights, "bias": acting.biases}.items():
        arrays |= {f"policy/{name}_{i}": array for i, array in enumerate(group)}
    return arrays, acting.header()


@every_space
def test_policy_survives_saving_and_loading(space: str, tmp_path: Path) -> None:
    acting, _ = make_categorical(space)
    file.write(tmp_path / "p.disc", *contents(acting))
    found = file.read(tmp_path / "p.disc").policy
    for field in dataclasses.fields(acting):
        if field.name != "rng":
            assert_equal_trees(getattr(found, field.name), getattr(acting, field.name))
    np.testing.assert_array_equal(
        found.predict(observations())[0], acting.predict(observations())[0]
    )


def refuse(path: Path, tensors: dict[str, Any], header: dict[str, Any]) -> None:
    file.write(path, tensors, header)
    with pytest.raises(DiscError, match="invalid policy file"):
        file.read(path)


def test_missing_or_misshapen_arrays_raise(tmp_path: Path) -> None:
    tensors, header = contents(make_categorical("multi")[0])
    assert len(tensors) == 6
    for name, array in tensors.items():
        rest = {other: x for other, x in tensors.items() if other != name}
        refuse(tmp_path / "p.disc", rest, header)
        for wrong in (array[:-1], array[..., :-1], array[None], array.astype("f8"), array * np.nan):
            refuse(tmp_path / "p.disc", {**tensors, name: np.array(wrong)}, header)


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": []},
        {"choices": 11},
        {"choices": [3, 2, 4]},
        {"choices": [3, 2, 4, 3]},
        {"choices": [3, 2, 4, 2, 0]},
        {"choices": [3, 2, 4, 2.0]},
        {"choices": [3, 2, 4, True]},
        {"choices": [10**12, 2, 4, 2]},
        {"choices": [10**30, 2, 4, 2]},
        {"starts": None},
        {"starts": [0, 0, 0]},
        {"starts": [0, 0, 0, 0.5]},
        {"starts": [0, 0, 0, 2**63]},
        {"starts": [0, 0, 0, 2**63 - 1]},
        {"action_type": None},
        {"action_type": "float32"},
        {"action_type": "object"},
        {"action_type": ["int64"]},
        {"action_type": "uint8"},
        {"action_shape": [2, 3]},
        {"action_shape": []},
    ],
    ids=str,
)
def test_invalid_headers_raise(odd: dict[str, Any], tmp_path: Path) -> None:
    tensors, header = contents(make_categorical("multi")[0])
    refuse(tmp_path / "p.disc", tensors, {**header, **odd})


def test_missing_header_fields_raise(tmp_path: Path) -> None:
    tensors, header = contents(make_categorical("multi")[0])
    for name in set(header) - {"observation_clip"}:
        rest = {other: fact for other, fact in header.items() if other != name}
        refuse(tmp_path / "p.disc", tensors, rest)


def test_policy_cannot_be_read_as_another_kind(tmp_path: Path) -> None:
    tensors, header = contents(make_categorical("multi")[0])
    for kind in ("gaussian", "squashed", "deterministic", "sampler"):
        refuse(tmp_path / "p.disc", tensors, {**header, "kind": kind, "exploration": 0.1})


# Other environments


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ("even", r"has actions of shape|has observations .* actions of shape"),
        ("binary", "but the policy gives discrete"),
    ],
)
def test_policy_is_not_evaluated_in_an_environment_with_other_choices(
    other: str, says: str, tmp_path: Path
) -> None:
    file.write(tmp_path / "p.disc", *contents(make_categorical("multi")[0]))
    with pytest.raises(DiscError, match=says):
        _check_fit(file.read(tmp_path / "p.disc"), probes.Choosing(other), Maker(probes.choosing))


def test_continuous_policy_does_not_fit_discrete_actions(tmp_path: Path) -> None:
    small(env=probes.wide).save(tmp_path / "wide.disc")
    found = file.read(tmp_path / "wide.disc")
    with pytest.raises(
        DiscError, match=r"has discrete .* actions, but the policy gives continuous"
    ):
        _check_fit(found, probes.Choosing("binary"), Maker(probes.choosing))


def test_agent_does_not_load_networks_of_other_choices(tmp_path: Path) -> None:
    """The logits have the same shape, but belong to other choices."""

    class Other(probes.Wide):
        action_space = gym.spaces.MultiDiscrete([2, 4])

    class Few(probes.Wide):
        action_space = gym.spaces.MultiDiscrete([3, 3])

    agent = small(env=Other)
    agent.save(tmp_path / "p.disc")
    with pytest.raises(DiscError, match="do not fit this environment"):
        type(agent).load(tmp_path / "p.disc", env=Few)
