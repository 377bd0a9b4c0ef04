"""Disks: full, or read-only."""

from __future__ import annotations

import math
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from disc.run.agents import resume
from disc.types import DiscError
from faults import damage
from faults.outcome import Outcome, differences, litter
from faults.short import FAMILIES, STEPS, train


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """Both families, with failing disks and damaged files."""
    for family in FAMILIES:
        folder = scratch / family
        folder.mkdir()
        train(family, folder / "whole")
        yield full(family, folder, rng, math.ceil(12 * scale))
        yield read_only(family, folder)
        yield from damage.campaign(family, folder, rng, scale)
    yield damage.cache(scratch, rng)
    yield damage.two_processes(scratch)


def full(family: str, folder: Path, rng: np.random.Generator, tries: int) -> Outcome:
    """A disk with too little space, then with enough."""
    sizes = [file.stat().st_size for file in (folder / "whole").rglob("*") if file.is_file()]
    able, place, wrong = can_mount(folder), folder / "disk", list[str]()
    for i in range(tries):
        room = int(rng.uniform(0.05, 0.95) * (sum(sizes) if able else max(sizes)))
        with disk(place) if able else quota() as resize:
            out = place / f"full{i}"
            resize(room)
            problem = _complaint(family, out)
            resize(100 * sum(sizes))
            found = _recovers(family, folder, out, problem)
        wrong.append(f"{room:,} bytes: {', '.join(found)}" if found else "")
    what = f"{family}: a full disk ({'tmpfs' if able else 'RLIMIT_FSIZE'})"
    promise = "one-sentence error; resumes with more space, with the same result"
    return Outcome.of("disks", what, wrong, promise)


def _complaint(family: str, out: Path, **more: Any) -> str:
    """The error message of training, or nothing."""
    try:
        train(family, out, **more)
    except DiscError as error:
        return str(error)
    return ""


def _recovers(family: str, folder: Path, out: Path, problem: str) -> list[str]:
    """Problems of a run that failed and is resumed after the fault is fixed."""
    if "can't be written" not in problem:
        return [f"not reported: {problem!r}"]
    if (out / "config.json").exists():
        resume(out, threads=1, progress=False)
    else:
        out.rmdir()
        train(family, out)
    return [*differences(folder / "whole", out), *litter(out)]


def read_only(family: str, folder: Path) -> Outcome:
    """A folder that becomes unwritable in the middle of a run."""
    place = folder / "shared"
    place.mkdir()
    out, able = place / "run", can_mount(folder)

    def lock(agent: Any, row: Any) -> None:
        if agent.state.step == STEPS // 2:
            forbid(place, able)

    problem = _complaint(family, out, callbacks=[lock])
    refused = _complaint(family, place / "other")
    permit(place, able)
    wrong = _recovers(family, folder, out, problem)
    wrong += [] if refused and not (place / "other").exists() else [f"started: {refused!r}"]
    what = f"{family}: a folder that becomes unwritable"
    promise = "one-sentence error; resumes with the same result; no new run starts"
    return Outcome.of("disks", what, ["; ".join(wrong)], promise)


def forbid(place: Path, root: bool) -> None:
    """Make a folder read-only, by a mount for root, whom permissions do not stop."""
    if root:
        _mount("--bind", str(place), str(place))
        _mount("-o", "remount,ro,bind", str(place))
    else:
        for path in (place, *place.rglob("*/")):
            path.chmod(0o555)


def permit(place: Path, root: bool) -> None:
    """The opposite of `forbid`."""
    if root:
        subprocess.run(["umount", str(place)], check=False)
    else:
        for path in (place, *place.rglob("*/")):
            path.chmod(0o755)


def _mount(*args: str) -> bool:
    done = subprocess.run(["mount", *args], capture_output=True, check=False)
    return done.returncode == 0


def can_mount(folder: Path) -> bool:
    """Whether this process may mount a file system in memory."""
    place = folder / "try"
    place.mkdir(exist_ok=True)
    try:
        able = _mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place))
    except FileNotFoundError:
        return False
    if able:
        subprocess.run(["umount", str(place)], check=False)
    return able


@contextmanager
def disk(place: Path) -> Iterator[Callable[[int], None]]:
    """A file system in memory; the function sets its size in bytes."""
    place.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", "size=100m", "tmpfs", str(place))
    try:
        yield lambda size: _resize(place, size)
    finally:
        subprocess.run(["umount", str(place)], check=False)


def _resize(place: Path, size: int) -> None:
    if not _mount("-o", f"remount,size={max(size, 4096)}", str(place)):
        raise RuntimeError(f"{place}: can't be resized to {size} bytes")


@contextmanager
def quota() -> Iterator[Callable[[int], None]]:
    """The largest file that this process may write; the function sets it in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
