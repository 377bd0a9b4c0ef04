"""Checks of an exported file: test observations, numpy's actions, and how they are compared.

An exported file takes flat observations (B, S) and gives flat actions (B, D) within their bounds:
`predict(observation, clip=True)` before the action gets its shape.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from disc.policy.policies import Categorical, Policy
from disc.types import DiscError, Floats

COUNT = 1_000
"""Observations that an export is compared on."""
TOLERANCE = 1e-5
"""The largest difference from numpy: absolute, or relative to the largest action if above 1."""


def observations(policy: Policy, count: int = COUNT) -> Floats:
    """Raw observations (count, S), scaled by the normaliser's mean and standard deviation.

    Half are typical, a quarter are up to ten times as far from the mean, and a quarter are
    extreme: all zero, or up to a million standard deviations away.
    """
    rng = np.random.default_rng(0)
    with np.errstate(divide="ignore"):
        std = np.minimum(1.0 / np.abs(policy.observation_inverse_std), np.float32(1e6))
    x = rng.standard_normal((count, len(std)))
    x[1::4] *= 10.0 * rng.uniform(size=(len(x[1::4]), 1))
    x[3::4] *= 10.0 ** rng.uniform(1.0, 6.0, (len(x[3::4]), 1))
    x = policy.observation_mean + std * x
    x[3] = 0.0
    return x.astype(np.float32)


def noise(policy: Policy, sampled: bool, count: int = COUNT) -> Floats | None:
    """The noise of `count` samples; None for deterministic actions."""
    return policy.noise(np.random.default_rng(1), count) if sampled else None


def outputs(policy: Policy, x: Any, draws: Floats | None) -> Floats:
    """What is compared: continuous actions (B, D) within their bounds, or logits (B, P)."""
    if isinstance(policy, Categorical):
        return policy.logits(x) if draws is None else policy.logits(x) + draws
    return policy.clip(policy.mean(x) if draws is None else policy.sample(x, draws))


def actions(policy: Policy, x: Floats, draws: Floats | None) -> Any:
    """Numpy's actions, (B, D): within their bounds, or whole numbers if discrete."""
    if isinstance(policy, Categorical):
        index = policy.mean(x) if draws is None else policy.sample(x, draws)
        return policy.choices.actions(index, index.shape[1:])
    return outputs(policy, x, draws)


def scale(wanted: Floats) -> Floats:
    """(D,): what a difference from `wanted`, (B, D), is relative to."""
    return np.maximum(np.abs(wanted).max(axis=0), np.float32(1.0))


def sensitivity(policy: Policy, x: Floats, draws: Floats | None) -> Any:
    """(B, 1): how much outputs change, in float64, if weights change by one part in a million.

    Another order of summation in float32 may change them as much, so no port can be closer.
    """
    rng, exact, seen = np.random.default_rng(2), _double(policy), np.asarray(x, np.float64)
    wanted = outputs(exact, seen, draws)
    worst = np.zeros((len(wanted), 1))
    for _ in range(3):
        weights = tuple(w * (1.0 + rng.choice([-1e-6, 1e-6], w.shape)) for w in exact.weights)
        moved = outputs(dataclasses.replace(exact, weights=weights), seen, draws)
        worst = np.maximum(worst, np.abs(moved - wanted).max(axis=1, keepdims=True))
    return worst


def difference(
    policy: Policy, x: Floats, draws: Floats | None, action: Any, logits: Any = None
) -> float:
    """The largest difference of an exported file's outputs from numpy; NaN if one is not finite.

    It is relative to the largest output if that is above 1. Where outputs are so sensitive that
    float32 does not determine them to five digits, it is relative to that. A choice may
    differ from numpy's if it is as good: its difference is that of its logit, with noise if
    sampled, from the largest one.

    Args:
        policy: the one that was exported.
        x: observations, (B, S).
        draws: noise; None for deterministic actions.
        action: (B, D) of the file.
        logits: (B, P) of the file, of a policy for discrete actions, if it gives them.
    """
    wanted = outputs(policy, x, draws)
    unit = np.maximum(scale(wanted), sensitivity(policy, x, draws) / TOLERANCE)  # (B, D or P)
    if not isinstance(policy, Categorical):
        return float(np.max(np.abs(action - wanted) / unit))
    index, worst = action - policy.choices.starts, 0.0
    if not policy.choices.contain(index):
        return float("nan")
    for d, values in enumerate(_dimensions(policy, wanted)):
        loss = values.max(axis=1) - np.take_along_axis(values, index[:, d : d + 1], 1)[:, 0]
        worst = max(worst, float(np.max(loss / unit.max(axis=1))))
    if logits is not None:
        worst = float(np.maximum(worst, np.max(np.abs(logits - policy.logits(x)) / unit)))
    return worst


def examples(policy: Policy, sampled: bool, count: int = 20) -> tuple[Floats, Floats | None, Any]:
    """Observations (count, S), noise and actions (count, D), to test a port with.

    For some inputs, machines disagree on the action: rounding errors grow in the network, or two
    choices are nearly equal. So the less sensitive half of the observations is used.
    """
    x, draws = observations(policy), noise(policy, sampled)
    error = sensitivity(policy, x, draws)[:, 0]
    if isinstance(policy, Categorical):
        error = error - _margin(policy, outputs(policy, x, draws))
    calm = np.sort(np.argsort(error, kind="stable")[: len(x) // 2])
    chosen = calm[np.linspace(0, len(calm) - 1, count).astype(int)]
    x, draws = x[chosen], None if draws is None else draws[chosen]
    action = actions(policy, x, draws)
    if not np.isfinite(action).all():
        raise DiscError("the actions of this policy are not finite.")
    return x, draws, action


def _double(policy: Policy) -> Any:
    """The policy in float64."""
    names = {field.name for field in dataclasses.fields(policy) if field.init}
    changed: dict[str, Any] = {}
    for name in names:
        value = getattr(policy, name)
        if isinstance(value, np.ndarray):
            changed[name] = value.astype(np.float64)
        elif isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            changed[name] = tuple(array.astype(np.float64) for array in value)
    return dataclasses.replace(policy, **changed)


def _dimensions(policy: Categorical, values: Floats) -> list[Floats]:
    """Values of all choices, (B, P), as one array (B, K_d) for each dimension."""
    return np.split(values, np.cumsum(policy.choices.counts)[:-1], axis=1)


def _margin(policy: Categorical, values: Floats) -> Floats:
    """(B,): by how much the largest of `values`, (B, P), leads; the least of all dimensions."""
    margin = np.full(len(values), np.inf, np.float32)
    for columns in _dimensions(policy, values):
        if columns.shape[1] > 1:
            ordered = np.sort(columns, axis=1)
            margin = np.minimum(margin, ordered[:, -1] - ordered[:, -2])
    return margin
