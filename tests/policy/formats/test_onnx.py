"""ONNX models compute the actions of numpy, in onnxruntime and in the reference evaluator."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from disc import DiscError
from disc.policy import file
from disc.policy.formats import check
from disc.policy.formats import onnx as model
from disc.policy.formats.export import export
from disc.policy.policies import Categorical
from tests.support.exports import SAMPLES, every_policy, policy_file


def runner(path: Path, engine: str) -> Any:
    if engine == "reference":
        return ReferenceEvaluator(str(path))
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
@every_policy
def test_model_computes_the_actions_of_numpy(name: str, engine: str, tmp_path: Path) -> None:
    source, path = policy_file(name, tmp_path), tmp_path / "policy.onnx"
    policy = file.load(source)
    for sampled in {policy.sampled_only, True}:
        export(source, path, stochastic=sampled, overwrite=True)
        x, noise = check.observations(policy), check.noise(policy, sampled)
        feeds = {"observation": x} if noise is None else {"observation": x, "noise": noise}
        found = runner(path, engine).run(None, feeds)
        assert check.difference(policy, x, noise, *found) < 1e-5
        if isinstance(policy, Categorical):
            np.testing.assert_allclose(found[1], policy.logits(x), atol=1e-5, rtol=1e-5)
            assert np.mean(found[0] != check.actions(policy, x, noise)) < 0.01  # ties
        else:
            assert np.all(found[0] >= policy.action_low)
            assert np.all(found[0] <= policy.action_high)


@every_policy
def test_model_takes_batches_of_any_size(name: str, tmp_path: Path) -> None:
    source, path = policy_file(name, tmp_path), tmp_path / "policy.onnx"
    policy = file.load(source)
    export(source, path)
    session = runner(path, "onnxruntime")
    x, noise = check.observations(policy), check.noise(policy, policy.sampled_only)
    for rows in (slice(0, 1), slice(5, 12)):
        feeds = {"observation": x[rows]}
        if noise is not None:
            feeds["noise"] = noise[rows]
        action = session.run(["action"], feeds)[0]
        wanted = check.actions(policy, x[rows], noise if noise is None else noise[rows])
        np.testing.assert_allclose(action, wanted, atol=1e-5, rtol=1e-5)


def test_model_equals_predict_with_clipping(tmp_path: Path) -> None:
    source = policy_file("clipped", tmp_path)
    export(source, tmp_path / "policy.onnx")
    policy = file.load(source)
    x = 5.0 * np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32)
    wanted, _ = policy.predict(x, clip=True)
    assert {*policy.action_low, *policy.action_high} <= set(wanted.ravel())
    found = runner(tmp_path / "policy.onnx", "onnxruntime").run(None, {"observation": x})[0]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_model_is_readable_by_older_runtimes(tmp_path: Path) -> None:
    export(SAMPLES / "ddpg", tmp_path / "policy.onnx")
    found = onnx.load(tmp_path / "policy.onnx")
    onnx.checker.check_model(found, full_check=True)
    assert (found.ir_version, [(x.domain, x.version) for x in found.opset_import]) == (
        8,
        [("", 17)],
    )
    assert [x.name for x in found.graph.input] == ["observation"]
    assert [x.name for x in found.graph.output] == ["action"]
    assert found.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_noise_is_an_input_only_if_actions_are_sampled(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    for source, sampled, names in (
        ("version-2/sac", False, ["observation"]),
        ("version-2/sac", True, ["observation", "noise"]),
        ("version-2/sql", False, ["observation", "noise"]),
    ):
        export(SAMPLES / source, path, stochastic=sampled, overwrite=True)
        assert [x.name for x in onnx.load(path).graph.input] == names


def test_metadata_describe_the_policy(tmp_path: Path) -> None:
    export(SAMPLES / "inverted-pendulum", tmp_path / "policy.onnx")
    facts = runner(tmp_path / "policy.onnx", "onnxruntime").get_modelmeta().custom_metadata_map
    assert (facts["task"], facts["algorithm"]) == ("InvertedPendulum-v5", "ppo")
    wanted = {"step": 60416, "observation_shape": [4], "action_shape": [1], "action_low": [-3.0]}
    wanted |= {"action_high": [3.0], "sampled": False, "observation_layout": None}
    for name, value in wanted.items():
        assert json.loads(facts[name]) == value
    versions = json.loads(facts["versions"])
    assert {"jax", "mujoco"} <= set(versions["training"])
    assert "disc-rl" in versions["export"]
    content = (SAMPLES / "inverted-pendulum" / "policy.disc").read_bytes()
    assert facts["checksum"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_metadata_of_discrete_and_unbounded_actions_are_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    export(policy_file("multi", tmp_path), path)
    facts = {x.key: x.value for x in onnx.load(path).metadata_props}
    choices, low, high = (json.loads(facts[x]) for x in ("choices", "action_low", "action_high"))
    assert low == json.loads(facts["starts"])
    assert high == [start + count - 1 for start, count in zip(low, choices, strict=True)]
    export(policy_file("unbounded", tmp_path), path, overwrite=True)
    facts = {x.key: x.value for x in onnx.load(path).metadata_props}
    assert json.loads(facts["action_low"]) == json.loads(facts["action_high"]) == [None]


@pytest.mark.parametrize("name", ["version-2/disc", "categorical/ppo"])
def test_wrong_model_is_not_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, path = model.build, tmp_path / "policy.onnx"

    def wrong(*arguments: Any) -> Any:
        found = build(*arguments)
        for tensor in found.graph.initializer:
            if tensor.dims == [1] or (name.startswith("cat") and len(tensor.dims) == 1):
                array = onnx.numpy_helper.to_array(tensor)
                if array.dtype == np.float32:
                    tensor.CopyFrom(onnx.numpy_helper.from_array(array + 1e-4, tensor.name))
        return found

    monkeypatch.setattr(model, "build", wrong)
    with pytest.raises(DiscError, match="differs from numpy by"):
        export(SAMPLES / name, path)
    assert list(tmp_path.iterdir()) == []
