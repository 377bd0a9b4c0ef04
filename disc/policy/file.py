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

BEST = "best.disc"
"""In a run directory: the policy of the best evaluation."""

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
    storage.write_tensors(Path(path), tensors, header(info))


def header(info: dict[str, Any]) -> dict[str, Any]:
    """The header of a policy file: what it is, and `info`."""
    return {"format": FORMAT, "format_version": FORMAT_VERSION, **info}


def read(path: str | Path) -> PolicyFile:
    """Read a policy file.

    Raises:
        DiscError: it is missing, damaged, or of another kind or version.
    """
    tensors, header = storage.read_tensors(Path(path), FORMAT, FORMAT_VERSION)
    return PolicyFile(build(path, tensors, header), tensors, header)


def build(path: str | Path, tensors: dict[str, Floats], header: dict[str, Any]) -> Policy:
    """The policy in the contents of a file; `path` is for messages.

    Raises:
        DiscError: they are invalid, or of an unknown kind.
    """
    try:
        kind = KINDS.get(name := str(header.get("kind", "gaussian")))
        if kind is None:
            raise DiscError(
                f"{path}: unknown policy kind {name!r}; upgrade disc-rl or disc-policy."
            )
        policy = kind(**kind.fields(tensors, header))
        policy.check()
    except storage.MALFORMED as error:
        raise DiscError(f"{path}: invalid policy file ({error}).") from None
    return policy


def load(path: str | Path, best: bool = False) -> Policy:
    """Load a policy for inference; needs no JAX.

    Args:
        path: a policy file, or a run directory.
        best: load the policy of the run's best evaluation instead of its last policy.
    """
    return read(locate(path, best)).policy


def locate(path: str | Path, best: bool = False) -> Path:
    """The path of a policy file, given it or its run directory.

    Raises:
        DiscError: the best policy is requested from a file, or from a run that has none.
    """
    path = Path(path)
    if not best:
        return path / "policy.disc" if path.is_dir() else path
    if not path.is_dir():
        raise DiscError(f"{path}: is not a run directory, so it has no best policy to choose.")
    if not (path / BEST).is_file():
        raise DiscError(f"{path}: has no {BEST} yet; a run writes it at its first evaluation.")
    return path / BEST
