"""Disks: full, or read-only."""

from __future__ import annotations

import math
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults import damage
from benchmarks.faults.outcome import Outcome, differences, litter
from benchmarks.faults.short import FAMILIES, STEPS, train
from disc.resuming import resume
from disc.types import DiscError


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """Both families, on disks that fail and with files that are damaged."""
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
    """A disk with too little room, then with room."""
    sizes = [file.stat().st_size for file in (folder / "whole").rglob("*") if file.is_file()]
    able, place, wrong = can_mount(folder), folder / "disk", list[str]()
    for i in range(tries):
        room = int(rng.uniform(0.05, 0.95) * (sum(sizes) if able else max(sizes)))
        with disk(place) if able else quota() as resize:
            out = place / f"full{i}"
            resize(room)
            problem = _complaint(family, out)
            resize(100 * sum(sizes))
            found = _mended(family, folder, out, problem)
        wrong += [f"{room:,} bytes: {', '.join(found)}"] if found else []
    what = f"{family}: a full disk ({'tmpfs' if able else 'RLIMIT_FSIZE'})"
    remark = "; ".join(wrong) or "one sentence; resumed with more room it equals the whole run"
    return Outcome("disks", what, tries, tries - len(wrong), remark)


def _complaint(family: str, out: Path, **more: Any) -> str:
    """What training says when it fails, or nothing."""
    try:
        train(family, out, **more)
    except DiscError as error:
        return str(error)
    return ""


def _mended(family: str, folder: Path, out: Path, problem: str) -> list[str]:
    """What is wrong with a run that failed and, the fault mended, goes on to its end."""
    if "can't be written" not in problem:
        return [f"not told: {problem!r}"]
    if (out / "config.json").exists():
        resume(out, threads=1, progress=False)
    else:
        out.rmdir()
        train(family, out)
    return [*differences(folder / "whole", out), *litter(out)]


def read_only(family: str, folder: Path) -> Outcome:
    """A run directory that takes nothing any more, from the middle of a run on."""
    for path in (folder.parent, folder):
        path.chmod(0o777)
    place = folder / "shared"
    out = place / "run"
    held = (out, out / "checkpoints", place)

    def lock(agent: Any, row: Any) -> None:
        if agent.state.step == STEPS // 2:
            for path in held:
                path.chmod(0o555)

    with nobody():  # whom permissions hold back
        place.mkdir()
        problem = _complaint(family, out, callbacks=[lock])
        refused = _complaint(family, place / "other")
        for path in held:
            path.chmod(0o755)
        wrong = _mended(family, folder, out, problem)
    wrong += [] if refused and not (place / "other").exists() else [f"started: {refused!r}"]
    remark = "; ".join(wrong) or "one sentence; resumed it equals the whole run; no new run begins"
    what = f"{family}: a folder that becomes unwritable"
    return Outcome("disks", what, 1, int(not wrong), remark)


@contextmanager
def nobody() -> Iterator[None]:
    """Be a user without privileges, if root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def _mount(*words: str) -> bool:
    done = subprocess.run(["mount", *words], capture_output=True, check=False)
    return done.returncode == 0


def can_mount(folder: Path) -> bool:
    """Whether this process may make a file system in memory."""
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
        raise RuntimeError(f"{place}: can't be made {size} bytes large")


@contextmanager
def quota() -> Iterator[Callable[[int], None]]:
    """The largest file that this process may write; the function sets it in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
