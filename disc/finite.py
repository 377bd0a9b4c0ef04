"""Numbers that are none: seen in the iteration in which they arise, and written down."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disc import files
from disc.types import DiscError, Measured, Rollout

MEASURED = ("train/objective", "train/value_loss", "train/entropy")
"""Metrics that, where they are measured, are numbers as long as the parameters are."""
DUMP = "nonfinite.json"


class NonFinite(DiscError):
    """An update gave a NaN or an infinity; `found` says which and from which batch."""

    def __init__(self, step: int, found: dict[str, Any]) -> None:
        names = ", ".join([*found["metrics"], *found["arrays"]])
        super().__init__(
            f"the update at step {step:,} gave a number that is not finite ({names}); lower the "
            "learning rate or step size, or look at the rewards and observations."
        )
        self.step, self.found = step, found

    def write(self, directory: Path) -> None:
        """Leave what was found in a run directory."""
        text = json.dumps({"step": self.step, **self.found}, indent=2) + "\n"
        files.write_text(directory / DUMP, text)


def check_measured(measured: Measured, state: Any, rollout: Rollout) -> None:
    """Look at what an update measured; what is still on its way is not waited for.

    Raises:
        NonFinite: an objective, a loss or an entropy is NaN or infinite.
    """
    known = {name: measured[name] for name in MEASURED if name in measured}
    if not all(math.isfinite(x) for x in known.values() if isinstance(x, float)):
        raise NonFinite(state.step, describe(measured, state, rollout))


def check_parameters(measured: Measured, state: Any, rollout: Rollout) -> None:
    """Look at all networks, which an update may have spoiled after it measured.

    Raises:
        NonFinite: a parameter is NaN or infinite.
    """
    if not bool(_all_finite(state.parameters())):
        raise NonFinite(state.step, describe(measured, state, rollout))


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def describe(measured: Measured, state: Any, rollout: Rollout) -> dict[str, Any]:
    """Which metrics and arrays are not finite, and between which values the newest batch lies."""
    values = {name: float(measured[name]) for name in MEASURED if name in measured}
    arrays = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(state.parameters())[0]:
        wrong = ~np.isfinite(np.asarray(leaf))
        if wrong.any():
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            first = [int(i) for i in np.argwhere(wrong)[0]]
            arrays[name] = {"entries": int(wrong.sum()), "of": int(wrong.size), "first": first}
    columns = ("observation", "action", "reward", "next_observation")
    batch = {name: _range(getattr(rollout, name)) for name in columns}
    return {
        "metrics": {n: repr(x) for n, x in values.items() if not math.isfinite(x)},
        "arrays": arrays,
        "batch": {"steps": len(rollout.reward), "iteration": state.iteration, **batch},
    }


def _range(values: np.ndarray[Any, Any]) -> dict[str, float]:
    return {"min": float(values.min()), "max": float(values.max())}


def last_good(before: Any, now: Any) -> Any:
    """The state that an iteration began with, but with today's replay: the old one is gone."""
    return replace(before, replay=now.replay)
