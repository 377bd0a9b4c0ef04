"""The policy file, for deployment: reading it needs only numpy and safetensors.

Importing this module does not import JAX, so a program that only runs a policy starts in a
fraction of a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disc import storage
from disc.policy.policies import Categorical, Deterministic, Gaussian, Policy, Sampler, Squashed
from disc.types import DiscError, Floats

FORMAT = "disc-policy"
FORMAT_VERSION = 2
"""2 added `observation_layout`."""

KINDS: dict[str, type[Policy]] = {
    kind.kind: kind for kind in (Gaussian, Categorical, Squashed, Deterministic, Sampler)
}


@dataclass(frozen=True)
class PolicyFile:
    """A policy, all weights in its file, and the file's metadata."""

    policy: Policy
    tensors: dict[str, Floats]
    info: dict[str, Any]


def write(path: str | Path, tensors: dict[str, Any], info: dict[str, Any]) -> None:
    """Write a policy file: `tensors` with the names that `read` expects, `info` as JSON."""
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, **info}
    storage.write_tensors(Path(path), tensors, header)


def read(path: str | Path) -> PolicyFile:
    """Read a policy file.

    Raises:
        DiscError: it is missing, damaged, or of another kind or version.
    """
    path = Path(path)
    tensors, header = storage.read_tensors(path, FORMAT, FORMAT_VERSION)
    try:
        kind = KINDS.get(name := str(header.get("kind", "gaussian")))
        if kind is None:
            raise DiscError(f"{path}: unknown policy kind {name!r}; upgrade disc-rl.")
        policy = kind(**kind.fields(tensors, header))
        policy.check()
    except storage.MALFORMED as error:
        raise DiscError(f"{path}: invalid policy file ({error}).") from None
    return PolicyFile(policy, tensors, header)


def load(path: str | Path) -> Policy:
    """Load a policy for inference; needs no JAX.

    Args:
        path: a policy file, or a run directory.
    """
    return read(locate(path)).policy


def locate(path: str | Path) -> Path:
    """The path of a policy file, given it or its run directory."""
    path = Path(path)
    return path / "policy.disc" if path.is_dir() else path
