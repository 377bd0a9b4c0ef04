"""`export`: a policy file as an ONNX model, a C header or numpy arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from disc import storage
from disc._version import __version__
from disc.policy import file
from disc.policy.formats import c, npz, onnx
from disc.policy.policies import Categorical, Policy
from disc.types import DiscError, Floats

FORMATS: dict[str, Callable[[Policy, bool, dict[str, Any]], bytes]] = {
    ".onnx": onnx.render,
    ".h": c.render,
    ".npz": npz.render,
}
FORMAT, FORMAT_VERSION = "disc-export", 1


def export(
    source: str | Path, path: str | Path, *, stochastic: bool = False, overwrite: bool = False
) -> None:
    """Write a policy in a format that needs neither this package nor Python.

    The exported policy takes flat observations, (S,) or (B, S), and gives flat actions, (D,) or
    (B, D). The normaliser is inside, and actions are clipped to their bounds: it computes
    `predict(observation, clip=True)`.

    Args:
        source: a policy file, a run directory, or `zoo:NAME`.
        path: the new file. Its suffix is the format: .onnx, .h (C99) or .npz.
        stochastic: sample the action with noise that the caller supplies. SQL's policy always does.
        overwrite: replace an existing file.

    Raises:
        DiscError: the policy can't be read or exported, or the file already exists.
    """
    path = Path(path)
    render = FORMATS.get(path.suffix)
    if render is None:
        raise DiscError(f"{path}: unknown format; the name must end in {', '.join(FORMATS)}.")
    if path.is_dir():
        raise DiscError(f"{path}: is a directory.")
    if path.exists() and not overwrite:
        raise DiscError(
            f"{path}: already exists; choose another file, or overwrite it (--overwrite)."
        )
    if not path.parent.is_dir():
        raise DiscError(f"{path.parent}: no such directory.")
    source = file.locate(source)
    found = file.read(source)
    sampled = stochastic or found.policy.sampled_only
    with np.errstate(all="ignore"):  # extreme observations may overflow; actions are checked
        content = render(found.policy, sampled, _facts(found, sampled, source))
    with storage.replace(path) as beside:
        beside.write_bytes(content)


def _facts(found: file.PolicyFile, sampled: bool, source: Path) -> dict[str, Any]:
    """What a user should know about the policy, for JSON."""
    policy, info = found.policy, found.info
    versions = info.get("versions")
    facts = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": info.get("env_name"),
        "algorithm": info.get("algorithm"),
        "step": info.get("step"),
        "seed": info.get("seed"),
        **policy.header(),
        "observation_size": len(policy.observation_mean),
        "action_size": len(policy.action_low),
        "action_low": _finite(policy.action_low),
        "action_high": _finite(policy.action_high),
        "clip_actions": True,
        "sampled": sampled,
        "noise": ("gumbel" if isinstance(policy, Categorical) else "normal") if sampled else None,
        "versions": {
            "training": versions if isinstance(versions, dict) else {},
            "export": {"disc-rl": __version__, "numpy": np.__version__},
        },
        "checksum": f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}",
    }
    if isinstance(policy, Categorical):
        low = policy.choices.starts
        facts["action_low"] = low.tolist()
        facts["action_high"] = [
            start + count - 1
            for start, count in zip(low.tolist(), policy.choices.counts, strict=True)
        ]
    return facts


def _finite(bounds: Floats) -> list[float | None]:
    """Bounds for JSON, which has no infinity: None."""
    return [float(x) if np.isfinite(x) else None for x in bounds]
