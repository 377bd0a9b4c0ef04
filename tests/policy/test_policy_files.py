"""Policies survive saving and loading; invalid files raise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disc import DiscError
from disc.policy import file
from disc.policy.policies import Gaussian
from tests.support.compare import assert_equal_trees
from tests.support.policies import D, S, contents, every_kind, make, noise_of, observations


@pytest.mark.parametrize("clip", [None, 5.0])
@every_kind
def test_policy_survives_saving_and_loading(kind: str, clip: float | None, tmp_path: Path) -> None:
    acting, _ = make(kind, observation_clip=clip)
    file.write(tmp_path / "p.disc", *contents(acting))
    found = file.read(tmp_path / "p.disc").policy
    assert type(found) is type(acting)
    x, noise = observations().reshape(-1, S), noise_of()
    np.testing.assert_array_equal(found.mean(x), acting.mean(x))
    np.testing.assert_array_equal(found.sample(x, noise), acting.sample(x, noise))
    for field in dataclasses.fields(acting):
        if field.name != "rng":
            assert_equal_trees(getattr(found, field.name), getattr(acting, field.name))


def assert_refused(
    path: Path, tensors: dict[str, Any], header: dict[str, Any], says: str = "invalid policy file"
) -> None:
    file.write(path, tensors, header)
    with pytest.raises(DiscError, match=says) as refused:
        file.read(path)
    assert str(refused.value).startswith(f"{path}: ")


@every_kind
def test_missing_array_raises(kind: str, tmp_path: Path) -> None:
    tensors, header = contents(make(kind)[0])
    assert len(tensors) == (14 if kind == "normalized" else 10)
    for name in tensors:
        rest = {other: array for other, array in tensors.items() if other != name}
        assert_refused(tmp_path / "p.disc", rest, header)


@every_kind
def test_missing_header_field_raises(kind: str, tmp_path: Path) -> None:
    """Except the clip, which older files lack. Without a kind, the file is read as Gaussian."""
    tensors, header = contents(make(kind)[0])
    own = {"exploration"} if kind in ("deterministic", "normalized") else set()
    shared = {"kind", "observation_shape", "action_shape", "observation_clip", "clip_actions"}
    assert set(header) == shared | own | {"observation_layout"}
    for name in set(header) - {"observation_clip"}:
        rest = {other: fact for other, fact in header.items() if other != name}
        assert_refused(tmp_path / "p.disc", tensors, rest)


@every_kind
def test_arrays_of_wrong_shape_raise(kind: str, tmp_path: Path) -> None:
    """Any array with one row or column too few, or another number of dimensions."""
    tensors, header = contents(make(kind)[0])
    for name, array in tensors.items():
        for wrong in (array[:-1], array[..., :-1], array[None], array[..., None]):
            assert_refused(tmp_path / "p.disc", {**tensors, name: np.array(wrong)}, header)


@pytest.mark.parametrize("kind", ["", "Squashed", "uniform", 3, ["squashed"], {"a": 1}])
def test_unknown_policy_kind_raises(kind: Any, tmp_path: Path) -> None:
    tensors, header = contents(make("squashed")[0])
    says = "unknown policy kind .*; upgrade disc-rl"
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
def test_policy_cannot_be_read_as_another_kind(written: str, read: str, tmp_path: Path) -> None:
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
def test_invalid_header_fields_raise(wrong: dict[str, Any], tmp_path: Path) -> None:
    tensors, header = contents(make("normalized")[0])
    assert_refused(tmp_path / "p.disc", tensors, {**header, **wrong})


def test_file_without_a_kind_is_read_as_gaussian(tmp_path: Path) -> None:
    tensors, header = contents(make("deterministic")[0])
    tensors["policy/log_std"] = np.zeros(D, np.float32)
    facts = {name: fact for name, fact in header.items() if name not in ("kind", "exploration")}
    file.write(tmp_path / "p.disc", tensors, {**facts, "clip_actions": True})
    found = file.read(tmp_path / "p.disc").policy
    assert isinstance(found, Gaussian)
    assert found.clip_actions
