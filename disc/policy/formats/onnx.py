"""A policy as an ONNX model, made with the helpers of the `onnx` package.

Inputs: `observation` (B, S) and, if actions are sampled, `noise` (B, D), or (B, P) if they are
discrete. Outputs: `action` (B, D), and `logits` (B, P) if they are discrete. Opset 17 and IR
version 8 of 2022, which older runtimes read too.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from disc._version import __version__
from disc.policy.formats import check
from disc.policy.policies import (
    LAYER_NORM_EPSILON,
    LOG_STD_RANGE,
    Bounded,
    Categorical,
    Deterministic,
    Gaussian,
    Policy,
    Sampler,
    Squashed,
)
from disc.types import DiscError, printable

OPSET, IR_VERSION = 17, 8


def render(policy: Policy, sampled: bool, facts: dict[str, Any]) -> bytes:
    """The file's content, after a comparison with numpy; see `disc.policy.formats.export.export`.

    Raises:
        DiscError: the package is missing, or the model's actions differ from numpy's.
    """
    try:
        from onnx.reference import ReferenceEvaluator
    except ImportError as error:
        raise DiscError("an .onnx file needs onnx: pip install 'disc-rl[onnx]'.") from error
    model = build(policy, sampled, facts)
    x, draws = check.observations(policy), check.noise(policy, sampled)
    feeds = {"observation": x} if draws is None else {"observation": x, "noise": draws}
    worst = check.difference(policy, x, draws, *ReferenceEvaluator(model).run(None, feeds))
    if not worst <= check.TOLERANCE:
        raise DiscError(
            f"the ONNX model differs from numpy by {worst:.1e}, more than {check.TOLERANCE:.0e}, "
            "so it was not written."
        )
    return bytes(model.SerializeToString())


class Graph:
    """Nodes and constants of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """The name of a new constant."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def add(self, operator: str, *inputs: Any, name: str = "", **attributes: Any) -> str:
        """The name of the output of a new node; inputs are names or arrays."""
        from onnx import helper

        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        name = name or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name


def build(policy: Policy, sampled: bool, facts: dict[str, Any]) -> Any:
    """The model, an `onnx.ModelProto`."""
    from onnx import TensorProto, checker, helper

    graph, size = Graph(), len(policy.action_low)
    hidden = _hidden(graph, policy)
    values = helper.make_tensor_value_info
    inputs = [values("observation", TensorProto.FLOAT, ["batch", len(policy.observation_mean)])]
    if isinstance(policy, Categorical):
        _choose(graph, policy, sampled, hidden)
        outputs = [
            values("action", TensorProto.INT64, ["batch", size]),
            values("logits", TensorProto.FLOAT, ["batch", policy.outputs()]),
        ]
    else:
        _act(graph, policy, sampled, hidden)
        outputs = [values("action", TensorProto.FLOAT, ["batch", size])]
    if sampled:
        width = policy.outputs() if isinstance(policy, Categorical) else size
        inputs.append(values("noise", TensorProto.FLOAT, ["batch", width]))
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants),
        producer_name="disc-rl",
        producer_version=__version__,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    texts = {k: printable(v) if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}
    helper.set_model_props(model, texts)
    checker.check_model(model, full_check=True)
    return model


def _hidden(graph: Graph, policy: Policy) -> str:
    """The normaliser and all layers but the last."""
    x = graph.add("Sub", "observation", policy.observation_mean)
    x = graph.add("Mul", x, policy.observation_inverse_std)
    if (clip := policy.observation_clip) is not None:
        x = graph.add("Min", graph.add("Max", x, np.float32(-clip)), np.float32(clip))
    if isinstance(policy, Sampler):
        x = graph.add("Concat", x, "noise", axis=1)
    scales = policy.scales if isinstance(policy, Deterministic) else ()
    for i, (weight, bias) in enumerate(zip(policy.weights[:-1], policy.biases[:-1], strict=True)):
        x = graph.add("Gemm", x, weight, bias)
        if isinstance(policy, Deterministic) and scales:
            arrays = (scales[i], policy.shifts[i])
            x = graph.add("LayerNormalization", x, *arrays, epsilon=LAYER_NORM_EPSILON)
        x = graph.add("Relu" if isinstance(policy, Bounded) else "Tanh", x)
    return x


def _act(graph: Graph, policy: Policy, sampled: bool, hidden: str) -> None:
    """The last layer and the continuous action."""
    weight, bias, size = policy.weights[-1], policy.biases[-1], len(policy.action_low)
    low, high = policy.action_low, policy.action_high
    x = graph.add("Gemm", hidden, weight[:, :size], bias[:size])
    if isinstance(policy, Gaussian) and sampled:
        x = graph.add("Add", x, graph.add("Mul", policy.std, "noise"))
    if isinstance(policy, Squashed) and sampled:
        log_std = graph.add("Gemm", hidden, weight[:, size:], bias[size:])
        least, most = map(np.float32, LOG_STD_RANGE)
        std = graph.add("Exp", graph.add("Min", graph.add("Max", log_std, least), most))
        x = graph.add("Add", x, graph.add("Mul", std, "noise"))
    if isinstance(policy, Bounded):
        x = graph.add("Tanh", x)
        if isinstance(policy, Deterministic) and sampled:
            exploration = np.float32(policy.exploration)
            x = graph.add("Add", x, graph.add("Mul", exploration, "noise"))
        x = graph.add("Add", graph.add("Mul", 0.5 * (high - low), x), 0.5 * (low + high))
    graph.add("Min", graph.add("Max", x, low), high, name="action")


def _choose(graph: Graph, policy: Categorical, sampled: bool, hidden: str) -> None:
    """The last layer and the choices."""
    values = graph.add("Gemm", hidden, policy.weights[-1], policy.biases[-1], name="logits")
    if sampled:
        values = graph.add("Add", values, "noise")
    ends = np.cumsum(policy.choices.counts)
    first = ends - policy.choices.counts
    # (D, max K_d): the columns of each dimension. Short rows repeat their first column, which
    # ArgMax finds in its own place.
    width = policy.valid.shape[1]
    columns = np.where(policy.valid, first[:, None] + np.arange(width), first[:, None])
    table = graph.add("Gather", values, columns, axis=1)
    index = graph.add("ArgMax", table, axis=2, keepdims=0)
    graph.add("Add", index, policy.choices.starts, name="action")
