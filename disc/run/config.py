"""`config.json` of a run directory, which may be untrusted, and what it may not choose."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from disc import storage
from disc.envs.factory import Maker
from disc.envs.pool import check_workers
from disc.options import count
from disc.run.training import Plan, check_evaluation
from disc.types import DiscError


def read_config(path: Path) -> dict[str, Any]:
    """The `config.json` of a run directory.

    Raises:
        DiscError: there is none, or it is damaged.
    """
    try:
        config = storage.parse(storage.read_text(path / "config.json"))
        _check_config(config)
    except OSError as error:
        raise DiscError(f"{path}: not a run directory ({error.strerror}: config.json).") from error
    except (DiscError, *storage.MALFORMED) as error:
        why = str(error).removesuffix(".")
        raise DiscError(f"{path}: its config.json is damaged ({why}).") from error
    return config


def _check_config(config: Any) -> None:
    """Raise if an entry is missing or of the wrong type."""
    if not isinstance(config["algorithm"], str) or not isinstance(config["env"], str | None):
        raise TypeError("algorithm and env must be names")
    if not all(isinstance(config[name], dict) for name in ("env_kwargs", "plan", "config")):
        raise TypeError("env_kwargs, plan and config must be tables")
    for name in ("seed", "num_envs", "threads"):
        count(name, config[name])
    Plan(**config["plan"])
    check_workers(config.get("workers"))
    names, known = config.get("track", []), config.get("tracked_as", {})
    if not all(isinstance(x, str) for x in (*names, *known, *known.values())):
        raise TypeError(f"track is {names!r} and tracked_as {known!r}")
    for name in ("resumed", "rollbacks"):
        entries = config.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(x, dict) for x in entries):
            raise TypeError(f"{name} is {entries!r}")
    if "ended" in config:
        _check_ended(config["ended"])


def _check_ended(ended: dict[str, Any]) -> None:
    """Raise if the record of a run's end is invalid."""
    count("steps", ended["step"])
    if type(ended["early"]) is not bool or not isinstance(ended["reason"], str):
        raise TypeError(f"ended is {ended!r}")
    if "best" in ended:
        check_evaluation(ended["best"])


def keeps_best(config: dict[str, Any]) -> bool:
    """Whether the version that began or resumed the run keeps its best policy and notes its end."""
    return "best" in config["plan"]


def stopped_early(config: dict[str, Any]) -> bool:
    """Whether a limit on its evaluations ended the run."""
    return bool(config.get("ended", {}).get("early"))


def awaits_end(config: dict[str, Any], step: int) -> bool:
    """Whether a run, saved at this step, did all its steps but was killed before it ended."""
    return keeps_best(config) and "ended" not in config and step >= config["plan"]["steps"]


def resume_args(config: dict[str, Any]) -> list[str]:
    """The arguments of `disc resume` for what the file may not choose."""
    maker = Maker(config["env"], config["env_kwargs"])
    return [*maker.cli_args, *worker_args(config.get("workers"))]


def worker_args(workers: str | None) -> list[str]:
    """The arguments that name workers to `disc resume`, if a file may not choose them."""
    return ["--workers", workers] if workers is not None and ":" in workers else []


def resume_command(path: Path, cli_args: Iterable[str]) -> str:
    """The command that resumes a run, with the arguments that name its environment."""
    return shlex.join(["disc", "resume", str(path), *cli_args])
