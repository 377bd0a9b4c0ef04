"""Non-finite values: detected in the iteration in which they arise, and written to a file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from disc import storage
from disc.run.checkpoint import without_replay
from disc.types import DiscError, Measured, Rollout

NAMED = 4  # arrays that the message names; the file names all
MEASURED = ("train/objective", "train/value_loss", "train/entropy")
"""Metrics that are finite as long as the parameters are."""
DUMP = "nonfinite.json"


class NonFinite(DiscError):
    """An update gave a NaN or an infinity; `found` lists where, and the batch."""

    def __init__(self, step: int, found: dict[str, Any]) -> None:
        names = [*found["metrics"], *found["arrays"]]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        self.step, self.found = step, found
        self.what = (
            f"the update at step {step:,} gave a non-finite value "
            f"({', '.join(names[:NAMED])}{more})"
        )
        super().__init__(
            f"{self.what}; lower the learning rate or step size, use --on-nan rollback, or check "
            "the rewards and observations."
        )

    def after(self, rollbacks: int) -> None:
        """Add to the message that rollbacks did not help."""
        how = f"{rollbacks} rollbacks, each halving the step size, did not help"
        self.args = (f"{self.what}, and {how}; check the rewards and observations.",)

    def write(self, directory: Path) -> None:
        """Write what was found to a run directory."""
        text = json.dumps({"step": self.step, **self.found}, indent=2) + "\n"
        storage.write_text(directory / DUMP, text)


def check_measured(measured: Measured, state: Any, rollout: Rollout) -> None:
    """Check the metrics of an update, but not those that are still being computed.

    Raises:
        NonFinite: an objective, a loss or an entropy is NaN or infinite.
    """
    known = {name: measured[name] for name in MEASURED if name in measured}
    if not all(math.isfinite(x) for x in known.values() if isinstance(x, float)):
        raise NonFinite(state.step, locate_nonfinite(measured, state, rollout))


def check_state(measured: Measured, state: Any, rollout: Rollout) -> None:
    """Check everything that an update changes.

    These are networks, target networks and the moments of optimisers: Adam stops moving if they
    are infinite, and nothing else shows it.

    Raises:
        NonFinite: a value is NaN or infinite.
    """
    if not all(np.isfinite(np.asarray(x)).all() for _, x in _floats(without_replay(state))):
        raise NonFinite(state.step, locate_nonfinite(measured, state, rollout))


def _floats(tree: Any) -> list[tuple[Any, Any]]:
    """Paths and values of floats and of JAX's floating-point arrays."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [
        (path, x)
        for path, x in leaves
        if isinstance(x, float) or (isinstance(x, jax.Array) and x.dtype.kind == "f")
    ]


def locate_nonfinite(measured: Measured, state: Any, rollout: Rollout) -> dict[str, Any]:
    """Which metrics and arrays are not finite, and the range of the newest batch.

    Networks have the names that they have in a policy file; other arrays follow.
    """
    values = {name: float(measured[name]) for name in MEASURED if name in measured}
    networks = _floats(state.parameters())
    known = {id(x) for _, x in networks}
    rest = [(path, x) for path, x in _floats(without_replay(state)) if id(x) not in known]
    arrays = {}
    for path, leaf in [*networks, *rest]:
        wrong = ~np.isfinite(np.asarray(leaf))
        if wrong.any():
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            first = [int(i) for i in np.argwhere(wrong)[0]]
            arrays[name] = {"entries": int(wrong.sum()), "of": int(wrong.size), "first": first}
    steps = len(rollout.reward)
    return {
        "metrics": {n: repr(x) for n, x in values.items() if not math.isfinite(x)},
        "arrays": arrays,
        "batch": {
            "steps": steps,
            "first_step": state.step - steps + 1,
            "iteration": state.iteration,
            **_ranges(rollout),
        },
        "replay": _ranges(state.replay),
    }


def _ranges(steps: Any) -> dict[str, dict[str, float | str]]:
    """The range of each column of some steps."""
    ranges = {}
    for name in ("observation", "action", "reward", "next_observation"):
        ends = {"min": getattr(steps, name).min(), "max": getattr(steps, name).max()}
        ranges[name] = {end: _number(float(x)) for end, x in ends.items()}
    return ranges


def _number(x: float) -> float | str:
    return x if math.isfinite(x) else repr(x)  # JSON has no NaN


def last_good(before: Any, now: Any) -> Any:
    """The state before an iteration, with the current replay: the old one was overwritten."""
    return replace(before, replay=now.replay)
