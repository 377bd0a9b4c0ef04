"""Outcomes of the campaign: the number of trials, and how many went as promised."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from safetensors.numpy import load_file

from disc.run import log

ROOT = Path(__file__).parents[1]
PATIENCE = 600.0  # seconds after which a process counts as hanging

Trial = tuple[str, Callable[[], Any]]  # a description, for debugging, and the function


class Outcome(NamedTuple):
    """One line of the table."""

    part: str  # kills, disks, …
    what: str  # the fault
    tried: int
    held: int  # times that it went as promised
    remark: str = ""  # the promise, or what went wrong instead

    @classmethod
    def of(cls, part: str, what: str, complaints: Sequence[str], promise: str) -> Self:
        """Count trials by what went wrong in each; empty if it went as promised."""
        lost = [complaint for complaint in complaints if complaint]
        held = len(complaints) - len(lost)
        return cls(part, what, len(complaints), held, "; ".join(lost) or promise)

    @property
    def good(self) -> bool:
        """Whether nothing was lost."""
        return self.held == self.tried


def run(
    cli_args: Sequence[str | Path], folder: Path, module: str = "disc", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE ARGS…` in a folder to its end, with XLA on one core."""
    command = [sys.executable, "-m", module, *map(str, cli_args)]
    settings = {"cwd": folder, "env": environment(), "timeout": PATIENCE, **options}
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


def start(cli_args: Sequence[str | Path], folder: Path) -> subprocess.Popen[bytes]:
    """Start `python -m disc ARGS…` in a folder, without output."""
    command = [sys.executable, "-m", "disc", *map(str, cli_args)]
    null = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, env=environment(), stdout=null, stderr=null)


def environment() -> dict[str, str]:
    """Environment variables with which a process in another folder finds this checkout."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def reported_cleanly(result: subprocess.CompletedProcess[str]) -> bool:
    """Whether a command ended with status 2 and a sentence instead of a stack trace."""
    return result.returncode == 2 and "disc: " in result.stderr and "Traceback" not in result.stderr


def copied(source: Path, name: str) -> Path:
    """A new copy of a directory, next to it."""
    copy = source.with_name(name)
    shutil.rmtree(copy, ignore_errors=True)
    return shutil.copytree(source, copy)


def differences(first: Path, second: Path) -> list[str]:
    """Names of all differences between two run directories, except times.

    Compares the newest checkpoint (networks, optimisers, statistics, replay, current episodes),
    the policy file and the record, bit for bit, and the bytes of the best policy's file.
    """
    found = []
    newest = [max((run / "checkpoints").glob("step_*")) for run in (first, second)]
    for pair in (newest, [run / "policy.disc" for run in (first, second)]):
        a, b = (load_file(file) for file in pair)
        names = sorted({*a, *b})
        found += [n for n in names if n not in a or n not in b or not _same(a[n], b[n])]
    rows = [
        [
            {name: value for name, value in row.items() if not name.startswith("time/")}
            for row in log.read_progress(run / "progress.csv")
        ]
        for run in (first, second)
    ]
    best = [run / "best.disc" for run in (first, second)]
    kept = [file.read_bytes() if file.exists() else b"" for file in best]
    found += ["best.disc"] if kept[0] != kept[1] else []
    return found + (["progress.csv"] if rows[0] != rows[1] else [])


def _same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def litter(run: Path) -> list[str]:
    """Files that do not belong in a run directory, or a partly written row of its record."""
    expected = {"config.json", "progress.csv", "policy.disc", "best.disc"}
    expected |= {"curve.png", "weights.png"}
    found = [
        str(path.relative_to(run))
        for path in run.rglob("*")
        if path.is_file()
        and path.parent.name not in ("events", "checkpoints")
        and path.name not in expected
    ]
    checkpoints = [path.name for path in (run / "checkpoints").iterdir()]
    found += [name for name in checkpoints if not name.startswith("step_")]
    if len(checkpoints) > 2:
        found.append(f"{len(checkpoints)} checkpoints")
    record = (run / "progress.csv").read_text()
    if not record.endswith("\n") or len({row.count(",") for row in record.splitlines()}) > 1:
        found.append("a half row")
    return found
