"""A policy as a .npz file: its arrays under the names of the policy file, and a JSON header.

numpy alone reads it, without pickle. `example/…` are observations and actions to test a port with.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from disc.policy.formats import check
from disc.policy.policies import Deterministic, Policy


def render(policy: Policy, sampled: bool, facts: dict[str, Any]) -> bytes:
    """The file's content; see `disc.policy.formats.export.export`."""
    groups = {"weight": policy.weights, "bias": policy.biases}
    if isinstance(policy, Deterministic):
        groups |= {"scale": policy.scales, "shift": policy.shifts}
    arrays: dict[str, Any] = dict(policy.tensors())
    for name, group in groups.items():
        arrays |= {f"policy/{name}_{i}": array for i, array in enumerate(group)}
    examples = zip(("observation", "noise", "action"), check.examples(policy, sampled), strict=True)
    arrays |= {f"example/{name}": array for name, array in examples if array is not None}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, header=np.array(json.dumps(facts)), **arrays)
    return file.getvalue()
