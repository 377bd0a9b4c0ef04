"""Algorithms whose updates give non-finite values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from disc.run.agent import Agent

Spoil = Callable[[Any, Any, dict[str, Any]], tuple[Any, dict[str, Any]]]


def spoiled(kind: type[Agent], spoil: Spoil) -> type[Agent]:
    """An algorithm whose updates end in `spoil(config, state, metrics)`."""
    module: Any = kind.algorithm

    def update(config: Any, state: Any, threads: int) -> Any:
        return spoil(config, *module.update(config, state, threads))

    changed = SimpleNamespace(**{**vars(module), "update": update})
    return type(kind.__name__, (kind,), {"algorithm": changed})


def with_nan(state: Any) -> Any:
    """The state with one NaN in the policy's last bias."""
    learner = state.policy
    leaves, tree = jax.tree.flatten(learner.parameters)
    leaves[1] = leaves[1].at[2].set(np.nan)
    learner = learner._replace(parameters=jax.tree.unflatten(tree, leaves))
    if hasattr(state, "learned"):
        return replace(state, learned=state.learned._replace(policy=learner))
    return replace(state, policy=learner)


def parameters_at(step: int, above: float = 0.0) -> Spoil:
    def spoil(config: Any, state: Any, metrics: dict[str, Any]) -> Any:
        bad = state.step == step and config.learning_rate > above
        return (with_nan(state) if bad else state), metrics

    return spoil
