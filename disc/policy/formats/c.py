"""A policy as one C99 header: constants and `disc_act`, with math.h only and without malloc."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
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

DENSE = """\
static inline void disc_dense(int inputs, int outputs, const float *weight, const float *bias,
                              const float *x, float *y)
{
    int i, j;
    for (j = 0; j < outputs; ++j) y[j] = bias[j];
    for (i = 0; i < inputs; ++i, weight += outputs)
        for (j = 0; j < outputs; ++j) y[j] += x[i] * weight[j];
}
"""
CLIP = """\
/* NaN stays NaN. */
static inline float disc_clip(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}
"""
TANH = """\
static inline void disc_tanh(int size, float *x)
{
    int i;
    for (i = 0; i < size; ++i) x[i] = tanhf(x[i]);
}
"""
RELU = """\
/* NaN stays NaN. */
static inline void disc_relu(int size, float *x)
{
    int i;
    for (i = 0; i < size; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
}
"""
LAYER_NORM = """\
static inline void disc_layer_norm(int size, const float *scale, const float *shift, float *x)
{
    float mean = 0.0f, variance = 0.0f, factor;
    int i;
    for (i = 0; i < size; ++i) mean += x[i];
    mean /= (float)size;
    for (i = 0; i < size; ++i) x[i] -= mean;
    for (i = 0; i < size; ++i) variance += x[i] * x[i];
    factor = 1.0f / sqrtf(variance / (float)size + EPSILON);
    for (i = 0; i < size; ++i) x[i] = x[i] * factor * scale[i] + shift[i];
}
"""
CONTINUOUS = """\
    for (i = 0; i < DISC_ACTION_SIZE; ++i) {
        STEPS
        finite += action[i] - action[i];
    }
    return !(finite == 0.0f);
}
"""
CHOOSE = """\
    for (i = 0; i < OUTPUTS; ++i) finite += HEAD[i] - HEAD[i];
    {
        const float *x = HEAD;
        for (i = 0; i < DISC_ACTION_SIZE; x += disc_choices[i], ++i) {
            int k, best = 0;
            for (k = 1; k < disc_choices[i]; ++k) best = x[k] > x[best] ? k : best;
            action[i] = disc_starts[i] + best;
        }
    }
    return !(finite == 0.0f);
}
"""
SELF_TEST = """\
/* The number of wrong actions among the stored examples: 0. */
static inline int disc_self_test(void)
{
    TYPE action[DISC_ACTION_SIZE];
    int row, d, wrong = 0;
    for (row = 0; row < DISC_EXAMPLES; ++row) {
        wrong += disc_act(ARGUMENTS, action) != 0;
        for (d = 0; d < DISC_ACTION_SIZE; ++d) {
            TYPE wanted = disc_example_action[row * DISC_ACTION_SIZE + d];
            wrong += CONDITION;
        }
    }
    return wrong;
}

#ifndef DISC_NO_MAIN
#include <stdio.h>

int main(void)
{
    int wrong = disc_self_test();
    printf("%d examples, %d wrong actions\\n", DISC_EXAMPLES, wrong);
    return wrong != 0;
}
#endif
"""


def render(policy: Policy, sampled: bool, facts: dict[str, Any]) -> bytes:
    """The file's content; see `disc.policy.formats.export.export`."""
    parts = [_comment(policy, sampled, facts), _sizes(policy, sampled), *_arrays(policy, sampled)]
    parts += [*_helpers(policy), _act(policy, sampled), *_self_test(policy, sampled), "#endif\n"]
    return "\n".join(parts).encode("ascii")


def _comment(policy: Policy, sampled: bool, facts: dict[str, Any]) -> str:
    """What the file is and how to use it. Text from the policy file can't end the comment."""
    training = ", ".join(f"{k} {v}" for k, v in facts["versions"]["training"].items())
    rows = {
        "task": facts["task"],
        "algorithm": f"{facts['algorithm']}, {facts['step']} steps, seed {facts['seed']}",
        "trained with": training,
        "exported by": f"disc-rl {__version__}",
        "policy file": facts["checksum"],
        "observation": f"shape {policy.observation_shape}, raw: the normaliser is inside",
        "action": f"shape {policy.action_shape}, in C order",
    }
    lines = [f"{name}: {_plain(value)}" for name, value in rows.items()]
    if policy.layout is not None:
        names = enumerate(policy.layout.names())
        lines += ["order of the observation:", *(f"  {i}: {_plain(x)}" for i, x in names)]
    kind = "Gumbel" if isinstance(policy, Categorical) else "standard normal"
    lines += [
        "",
        "disc_act returns 0, or 1 if the action is not finite, as for a non-finite observation.",
    ]
    if sampled:
        lines += [f"The noise is DISC_NOISE_SIZE independent {kind} numbers, new in every call."]
    lines += ["Self-test: cc -std=c99 -DDISC_SELF_TEST -x c FILE -lm && ./a.out"]
    head = "/* A policy, exported by disc-rl.\n *\n"
    return head + "".join(f" * {x}".rstrip() + "\n" for x in lines) + " */"


def _plain(value: Any) -> str:
    """Text for a comment, without characters that C interprets there."""
    return re.sub(r"[^\w .,:;+=()\[\]'/-]", "_", printable(str(value)), flags=re.ASCII)


def _sizes(policy: Policy, sampled: bool) -> str:
    sizes = {"OBSERVATION": len(policy.observation_mean), "ACTION": len(policy.action_low)}
    if sampled:
        categorical = isinstance(policy, Categorical)
        sizes["NOISE"] = policy.outputs() if categorical else sizes["ACTION"]
    lines = [f"#define DISC_{name}_SIZE {size}" for name, size in sizes.items()]
    return "\n".join(
        ["#ifndef DISC_POLICY_H", "#define DISC_POLICY_H", "", "#include <math.h>", "", *lines, ""]
    )


def _array(name: str, values: Any, kind: str = "float") -> str:
    """A constant array."""
    flat = np.asarray(values).reshape(-1)
    texts = [_float(x) for x in flat] if kind == "float" else [str(int(x)) for x in flat]
    rows = (", ".join(texts[i : i + 6]) for i in range(0, len(texts), 6))
    body = ",\n".join(f"    {row}" for row in rows)
    return f"static const {kind} disc_{name}[{len(flat)}] = {{\n{body}\n}};\n"


def _float(value: Any) -> str:
    """A literal that gives exactly this number, except that tiny (subnormal) ones become 0."""
    x = float(np.float32(value))
    if np.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    if abs(x) < float(np.finfo(np.float32).tiny):
        x = 0.0
    text = f"{x:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _bounded(policy: Policy) -> bool:
    """Whether an action has a bound."""
    return bool(np.isfinite([policy.action_low, policy.action_high]).any())


def _arrays(policy: Policy, sampled: bool) -> Iterable[str]:
    yield _array("observation_mean", policy.observation_mean)
    yield _array("observation_inverse_std", policy.observation_inverse_std)
    size, last = len(policy.action_low), len(policy.weights) - 1
    for i, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        only_mean = i == last and isinstance(policy, Squashed) and not sampled
        width = size if only_mean else len(bias)
        yield _array(f"weight_{i}", weight[:, :width])
        yield _array(f"bias_{i}", bias[:width])
    if isinstance(policy, Deterministic):
        for i, (factor, shift) in enumerate(zip(policy.scales, policy.shifts, strict=True)):
            yield _array(f"scale_{i}", factor)
            yield _array(f"shift_{i}", shift)
    if isinstance(policy, Categorical):
        counts, starts, _ = policy.choices
        if np.abs(np.float64(starts)).max() + max(counts) >= 2**31:
            raise DiscError("the actions of this policy are too large for an int in C.")
        yield _array("choices", counts, "int")
        yield _array("starts", starts, "int")
        return
    if isinstance(policy, Gaussian) and sampled:
        yield _array("std", policy.std)
    if isinstance(policy, Bounded):
        yield _array("center", 0.5 * (policy.action_low + policy.action_high))
        yield _array("reach", 0.5 * (policy.action_high - policy.action_low))
    if _bounded(policy):
        yield _array("low", policy.action_low)
        yield _array("high", policy.action_high)


def _helpers(policy: Policy) -> Iterable[str]:
    yield DENSE
    if policy.observation_clip is not None or (_bounded(policy) and _type(policy) == "float"):
        yield CLIP
    if len(policy.weights) > 1:
        yield RELU if isinstance(policy, Bounded) else TANH
    if isinstance(policy, Deterministic) and policy.scales:
        yield LAYER_NORM.replace("EPSILON", _float(LAYER_NORM_EPSILON))


def _act(policy: Policy, sampled: bool) -> str:
    """The function `disc_act`: the observation in `a`, then the layers in `b` and `a` in turn."""
    sizes = [policy.weights[0].shape[0], *(len(bias) for bias in policy.biases)]
    if isinstance(policy, Squashed) and not sampled:
        sizes[-1] = len(policy.action_low)
    x = "(observation[i] - disc_observation_mean[i]) * disc_observation_inverse_std[i]"
    if (clip := policy.observation_clip) is not None:
        x = f"disc_clip({x},\n                         {_float(-clip)}, {_float(clip)})"
    noise = "const float *noise, " if sampled else ""
    lines = [
        f"static inline int disc_act(const float *observation, {noise}{_type(policy)} *action)",
        "{",
        f"    float a[{max(sizes[::2])}], b[{max(sizes[1::2])}], finite = 0.0f;",
        "    int i;",
        f"    for (i = 0; i < DISC_OBSERVATION_SIZE; ++i)\n        a[i] = {x};",
    ]
    if isinstance(policy, Sampler):
        lines += [
            "    for (i = 0; i < DISC_NOISE_SIZE; ++i) a[DISC_OBSERVATION_SIZE + i] = noise[i];"
        ]
    for i, (inputs, width) in enumerate(pairwise(sizes)):
        before, after = ("a", "b") if i % 2 == 0 else ("b", "a")
        arrays = f"disc_weight_{i}, disc_bias_{i}, {before}, {after}"
        lines += [f"    disc_dense({inputs}, {width}, {arrays});"]
        if i == len(sizes) - 2:
            break
        if isinstance(policy, Deterministic) and policy.scales:
            lines += [f"    disc_layer_norm({width}, disc_scale_{i}, disc_shift_{i}, {after});"]
        lines += [
            f"    disc_{'relu' if isinstance(policy, Bounded) else 'tanh'}({width}, {after});"
        ]
    if isinstance(policy, Categorical):
        add = f"    for (i = 0; i < {sizes[-1]}; ++i) {after}[i] += noise[i];\n" if sampled else ""
        last = add + CHOOSE.replace("HEAD", after).replace("OUTPUTS", str(sizes[-1]))
    else:
        last = CONTINUOUS.replace("STEPS", "\n        ".join(_steps(policy, sampled, after)))
    return "\n".join([*lines, last])


def _type(policy: Policy) -> str:
    return "int" if isinstance(policy, Categorical) else "float"


def _steps(policy: Policy, sampled: bool, head: str) -> Iterable[str]:
    """From the network's outputs to a continuous action, statement by statement."""
    yield f"float x = {head}[i];"
    if isinstance(policy, Gaussian) and sampled:
        yield "x += disc_std[i] * noise[i];"
    if isinstance(policy, Squashed) and sampled:
        low, high = (_float(limit) for limit in LOG_STD_RANGE)
        yield f"x += expf(disc_clip({head}[DISC_ACTION_SIZE + i], {low}, {high})) * noise[i];"
    if isinstance(policy, Bounded):
        yield "x = tanhf(x);"
        if isinstance(policy, Deterministic) and sampled:
            yield f"x += {_float(policy.exploration)} * noise[i];"
        yield "x = disc_center[i] + disc_reach[i] * x;"
    yield f"action[i] = {'disc_clip(x, disc_low[i], disc_high[i])' if _bounded(policy) else 'x'};"


def _self_test(policy: Policy, sampled: bool) -> Iterable[str]:
    """Examples, and code that compares them."""
    x, draws, action = check.examples(policy, sampled)
    yield "#ifdef DISC_SELF_TEST"
    yield f"#define DISC_EXAMPLES {len(x)}\n"
    yield _array("example_observation", x)
    arguments = "disc_example_observation + row * DISC_OBSERVATION_SIZE"
    if draws is not None:
        yield _array("example_noise", draws)
        arguments += ",\n                          disc_example_noise + row * DISC_NOISE_SIZE"
    if isinstance(policy, Categorical):
        yield _array("example_action", action, "int")
        condition = "action[d] != wanted"
    else:
        yield _array("example_action", action)
        yield _array("tolerance", check.TOLERANCE * check.scale(action))
        condition = "!(fabsf(action[d] - wanted) <= disc_tolerance[d])"
    text = SELF_TEST.replace("ARGUMENTS", arguments)
    yield text.replace("CONDITION", condition).replace("TYPE", _type(policy))
    yield "#endif\n"
