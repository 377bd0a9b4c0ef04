"""Untrusted policy files load correctly or raise a one-line error."""

from __future__ import annotations

import io
import json
import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rich.console import Console

from disc import DISC, SAC, DiscError, host, storage
from disc.cli import policy as cli_policy
from disc.cli.options import Info
from disc.learning import networks
from disc.policy import file as policy_file
from faults import mutations, untrusted
from tests.support.small import small

DEEP = "[" * 100_000 + "]" * 100_000


def test_mutated_files_load_or_raise_one_line_errors(tmp_path: Path) -> None:
    """A small part of `python -m faults --parts untrusted`."""
    rng, tried = np.random.default_rng(1), 0
    for what, trials in untrusted.lines(tmp_path, rng, 0.04, ["disc"]):
        outcome = untrusted.tally(what, trials)
        assert outcome.good, outcome
        tried += outcome.tried
    assert tried > 1_000


@pytest.fixture
def file(tmp_path: Path) -> policy_file.PolicyFile:
    """A valid policy file's contents."""
    small(env="Pendulum-v1").save(tmp_path / "p.disc")
    return policy_file.read(tmp_path / "p.disc")


@pytest.fixture
def bounded(tmp_path: Path) -> policy_file.PolicyFile:
    small(SAC, "Pendulum-v1").save(tmp_path / "p.disc")
    return policy_file.read(tmp_path / "p.disc")


def refuse(path: Path, tensors: dict[str, Any], info: dict[str, Any], says: str = "disc") -> None:
    mutations.write(path, tensors, info)
    with pytest.raises(DiscError, match=says):
        policy_file.load(path)


@pytest.mark.parametrize(
    "odd",
    [
        {"more": mutations.DEEP},
        {"kind": mutations.DEEP},
        {"format_version": math.inf},
        {"format": ["disc-policy"]},
        {"observation_shape": [-1, -3]},
        {"observation_shape": "3"},
        {"observation_shape": [math.inf]},
        {"observation_shape": [2**64 + 3]},
        {"observation_shape": [3.0]},
        {"action_shape": [-1, -1]},
        {"observation_clip": 10**400},
        {"observation_clip": math.inf},
    ],
    ids=str,
)
def test_invalid_headers_raise(
    odd: dict[str, Any], file: policy_file.PolicyFile, tmp_path: Path
) -> None:
    refuse(tmp_path / "p.disc", file.tensors, {**file.info, **odd})


@pytest.mark.parametrize("exploration", [math.inf, 10**400, "nan"])
def test_invalid_exploration_raises(exploration: Any, file: Any, tmp_path: Path) -> None:
    info = {**file.info, "kind": "deterministic", "exploration": exploration}
    refuse(tmp_path / "p.disc", file.tensors, info)


@pytest.mark.parametrize(
    "kind",
    ["f8", "f2", "i1", "i8", "?", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn],
    ids=str,
)
@pytest.mark.parametrize("name", ["policy/weight_1", "policy/log_std", "action/low"])
def test_arrays_of_wrong_dtype_raise(
    name: str, kind: Any, file: policy_file.PolicyFile, tmp_path: Path
) -> None:
    tensors = {**file.tensors, name: file.tensors[name].astype(kind)}
    refuse(tmp_path / "p.disc", tensors, file.info)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy/weight_0", math.nan),
        ("policy/bias_2", math.inf),
        ("policy/log_std", 1000.0),
        ("policy/log_std", math.nan),
        ("normalizer/observation_mean", -math.inf),
        ("normalizer/observation_inverse_std", math.nan),
        ("action/low", math.nan),
        ("action/low", 3.0),
    ],
)
def test_non_finite_or_out_of_range_values_raise(
    name: str, value: float, file: policy_file.PolicyFile, tmp_path: Path
) -> None:
    tensors = {**file.tensors, name: np.full_like(file.tensors[name], value)}
    refuse(tmp_path / "p.disc", tensors, file.info, "invalid policy file")


def test_only_gaussian_policies_may_have_unbounded_actions(
    file: policy_file.PolicyFile, bounded: policy_file.PolicyFile, tmp_path: Path
) -> None:
    endless = {"action/high": np.float32([math.inf])}
    mutations.write(tmp_path / "p.disc", {**file.tensors, **endless}, file.info)
    untrusted.act(tmp_path / "p.disc")
    refuse(tmp_path / "p.disc", {**bounded.tensors, **endless}, bounded.info, "not finite")


def test_two_dimensional_normaliser_raises(file: policy_file.PolicyFile, tmp_path: Path) -> None:
    names = ("normalizer/observation_mean", "normalizer/observation_inverse_std")
    wide = {name: np.ones((3, 3), np.float32) for name in names}
    refuse(tmp_path / "p.disc", {**file.tensors, **wide}, file.info, "do not fit the shape")


def test_file_larger_than_memory_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file takes no space on the disk."""
    path = tmp_path / "p.disc"
    path.write_bytes(b"")
    os.truncate(path, 2 * storage.LARGE)
    monkeypatch.setattr(host, "available_memory", lambda: storage.LARGE)
    with pytest.raises(DiscError, match="needs 200 MB, but there is only 100 MB of memory"):
        policy_file.load(path)


# Agents


@pytest.mark.parametrize(
    "odd",
    [
        {"config": None},
        {"config": []},
        {"statistics": None},
        {"statistics": {}},
        {"statistics": {"observations": math.nan, "returns": 0, "return_mean": 0}},
        {"seed": None},
        {"seed": -1},
        {"env_kwargs": [1]},
        {"num_envs": "many"},
    ],
    ids=str,
)
def test_agent_with_invalid_header_raises(
    odd: dict[str, Any], file: policy_file.PolicyFile, tmp_path: Path
) -> None:
    mutations.write(tmp_path / "p.disc", file.tensors, {**file.info, **odd})
    with pytest.raises(DiscError):
        DISC.load(tmp_path / "p.disc")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("value/weight_0", np.ones((3, 16), np.int8)),
        ("value/weight_0", np.full((3, 16), math.nan, np.float32)),
        ("normalizer/moments_mean", np.ones((3, 1))),
        ("normalizer/moments_variance", -np.ones(3)),
        ("normalizer/moments_variance", np.ones(3, np.complex64)),
    ],
)
def test_agent_with_invalid_arrays_raises(
    name: str, array: Any, file: policy_file.PolicyFile, tmp_path: Path
) -> None:
    mutations.write(tmp_path / "p.disc", {**file.tensors, name: array}, file.info)
    untrusted.act(tmp_path / "p.disc")
    with pytest.raises(DiscError, match="the policy file's"):
        DISC.load(tmp_path / "p.disc")


def test_widths_are_checked_before_networks_are_created(
    file: policy_file.PolicyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(networks, "orthogonal", fail)
    info = {**file.info, "config": {**file.info["config"], "widths": [2000, 2000]}}
    mutations.write(tmp_path / "p.disc", file.tensors, info)
    with pytest.raises(DiscError, match=r"do not have the widths \(2000, 2000\)"):
        DISC.load(tmp_path / "p.disc")


# Output


@pytest.mark.parametrize("name", ["scores", "config", "versions", "step", "env_name", "seed"])
@pytest.mark.parametrize("odd", [3, "\ud800\x1b[2J", [1], {"last_evaluation": {"return": "x"}}])
def test_info_prints_any_header_without_escape_codes(
    name: str,
    odd: Any,
    file: policy_file.PolicyFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutations.write(tmp_path / "p.disc", file.tensors, {**file.info, name: odd})
    screen = io.TextIOWrapper(raw := io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(cli_policy, "out", Console(file=screen, width=200))
    cli_policy.info(Info(tmp_path / "p.disc"))
    screen.flush()
    assert b"\x1b" not in raw.getvalue()


def test_errors_are_one_short_printable_line() -> None:
    error = DiscError(f"a \x1b[2J, \ud800, \n, ρ² and {'x' * 10_000}.")
    message = str(error)
    assert message.isprintable()
    assert message.startswith("a \\x1b[2J, \\ud800, \\n, ρ² and xxx")
    assert message.endswith("xxx.")
    assert len(message) < 2_100


def test_deeply_nested_json_raises() -> None:
    assert storage.parse("[[[{}]]]") == [[[{}]]]
    nested = json.dumps({"a": [[[[[[]]]]]]})
    for text in (DEEP, nested.replace("[]", "[" * 60 + "]" * 60)):
        with pytest.raises(ValueError, match="too deeply"):
            storage.parse(text)


def test_only_regular_files_of_limited_size_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_text("12345")
    for name in ("pipe", "zero", "missing", "."):
        with pytest.raises(OSError, match=r"regular|No such"):
            storage.read_text(tmp_path / name)
    with pytest.raises(OSError, match="more than 4 bytes"):
        storage.read_text(tmp_path / "large", 4)
    assert storage.read_text(tmp_path / "large", 5) == "12345"
