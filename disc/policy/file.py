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

ZOO = Path(__file__).parent / "zoo"
"""Trained policies that come with the package; `zoo:hopper` is its file `hopper.disc`."""

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
    """Write a policy file: `tensors` with the names that `read` expects, `info` as JSON.

    Raises:
        DiscError: the name would be read as that of a policy of the zoo.
    """
    if zoo_name(path) is not None:
        raise DiscError(f"{path}: choose a name that does not begin with zoo:.")
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
        path: a policy file, a run directory, or `zoo:NAME`.
        best: load the policy of the run's best evaluation instead of its last policy.
    """
    return read(locate(path, best)).policy


def locate(path: str | Path, best: bool = False) -> Path:
    """The path of a policy file, given it, its run directory, or `zoo:NAME`.

    Raises:
        DiscError: the best policy is requested from a file, or from a run that has none; or the zoo
            has no such policy.
    """
    name = zoo_name(path)
    if name is not None and best:
        raise DiscError(f"{path}: the zoo has no best policies; leave out --best.")
    path = Path(path) if name is None else _in_zoo(name)
    if not best:
        return path / "policy.disc" if path.is_dir() else path
    if not path.is_dir():
        raise DiscError(f"{path}: is not a run directory, so it has no best policy to choose.")
    if not (path / BEST).is_file():
        raise DiscError(f"{path}: has no {BEST} yet; a run writes it at its first evaluation.")
    return path / BEST


def zoo_name(path: str | Path) -> str | None:
    """The NAME in `zoo:NAME`, or None for the path of a file."""
    text = str(path)
    return text.removeprefix("zoo:") if text.startswith("zoo:") else None


def zoo() -> dict[str, Path]:
    """The files of the zoo by name; none in an installation of disc-policy."""
    found = {path.stem: path for path in ZOO.glob("*.disc")}
    return {name: found[name] for name in sorted(found)}


def _in_zoo(name: str) -> Path:
    known = zoo()
    if not known:
        raise DiscError(f"zoo:{name}: this installation has no zoo; disc-rl comes with one.")
    if name not in known:
        raise DiscError(f"zoo:{name}: not in the zoo (disc list --zoo): {', '.join(known)}.")
    return known[name]
