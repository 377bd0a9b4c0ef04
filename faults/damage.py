"""Damaged files: checkpoints, records, compiled programs."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from disc import storage
from disc.run import checkpoint, log
from disc.run.agents import resume
from faults.outcome import (
    Outcome,
    differences,
    environment,
    litter,
    reported_cleanly,
    run,
    start,
)
from faults.short import smallest, stopped


def campaign(
    family: str, folder: Path, rng: np.random.Generator, scale: float
) -> Iterator[Outcome]:
    """All kinds of damage to a family's files; `folder / "whole"` is an undamaged run."""
    yield from any_byte(family, folder, rng, scale)
    yield newest(family, folder, rng, math.ceil(10 * scale))
    yield every(family, folder)
    yield record(family, folder, rng, math.ceil(200 * scale))


def any_byte(
    family: str, folder: Path, rng: np.random.Generator, scale: float
) -> Iterator[Outcome]:
    """A checkpoint truncated at any byte, and with any byte changed."""
    path = smallest(family, folder / "smallest")
    good, victim = path.read_bytes(), folder / "damaged.safetensors"
    arrays, _ = storage.read_tensors(path, checkpoint.FORMAT, checkpoint.FORMAT_VERSION)
    places = np.arange(len(good))
    if (count := math.ceil(scale * len(good))) < len(good):
        places = np.sort(rng.choice(places, count, replace=False))

    def noticed(content: bytes) -> bool:
        victim.write_bytes(content)
        try:
            found, _ = storage.read_tensors(victim, checkpoint.FORMAT, checkpoint.FORMAT_VERSION)
        except storage.DamagedError:
            return True
        return found.keys() == arrays.keys() and all(
            found[name].tobytes() == arrays[name].tobytes() for name in arrays
        )

    held = sum(noticed(good[:place]) for place in places)
    what = f"{family}: a checkpoint of {len(good):,} bytes, truncated at each byte"
    yield Outcome("disks", what, len(places), held, "all detected")
    held = 0
    for place in places:
        changed = bytes([good[place] ^ int(rng.integers(1, 256))])
        held += noticed(good[:place] + changed + good[place + 1 :])
    what = f"{family}: a checkpoint of {len(good):,} bytes, each byte changed"
    yield Outcome("disks", what, len(places), held, "all detected, or the same contents")


def damage(path: Path, rng: np.random.Generator) -> None:
    """Truncate a file or change a byte, at a random position."""
    content = bytearray(path.read_bytes())
    place = int(rng.integers(len(content)))
    if rng.random() < 0.5:
        del content[place:]
    else:
        content[place] ^= int(rng.integers(1, 256))
    path.write_bytes(content)


def newest(family: str, folder: Path, rng: np.random.Generator, tries: int) -> Outcome:
    """The newest checkpoint damaged: the run resumes from the one before it."""
    wrong = []
    for i in range(tries):
        out = stopped(family, folder / f"newest{i}")
        damage(max((out / "checkpoints").iterdir()), rng)
        resume(out, threads=1, progress=False)
        wrong.append("; ".join([*differences(folder / "whole", out), *litter(out)]))
    what = f"{family}: the newest checkpoint is damaged"
    promise = "resumes from the one before, with the same result"
    return Outcome.of("disks", what, wrong, promise)


def every(family: str, folder: Path) -> Outcome:
    """All checkpoints damaged: resuming fails, and the run is unchanged."""
    out = stopped(family, folder / "all")
    for path in (out / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    found = run(["resume", out], folder)
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    held = reported_cleanly(found) and before == after
    what = f"{family}: all checkpoints are damaged"
    return Outcome("disks", what, 1, int(held), found.stderr.strip()[-300:])


def record(family: str, folder: Path, rng: np.random.Generator, tries: int) -> Outcome:
    """`progress.csv` damaged: all readable rows are kept."""
    path = folder / "record" / "progress.csv"
    path.parent.mkdir()
    good = (folder / "whole" / "progress.csv").read_bytes()
    rows, held = log.read_progress(folder / "whole" / "progress.csv"), 0
    for _ in range(tries):
        path.write_bytes(good)
        place = int(rng.integers(good.index(b"\n") + 1, len(good)))
        path.write_bytes(good[:place] + bytes([rng.integers(256)]) + good[place + 1 :])
        kept = log.salvage(path)
        held += sum(row in kept for row in rows) >= len(rows) - 2  # a lost newline costs two
    what = f"{family}: a byte of progress.csv is changed"
    return Outcome("disks", what, tries, held, "only the damaged rows are lost")


def cache(scratch: Path, rng: np.random.Generator) -> Outcome:
    """Compiled programs in the cache, damaged."""
    line = "train Hopper-v5 --steps 256 --horizon 128 --gradient-steps 4 --threads 1 --out"
    cli_args = line.split()
    settings = {**environment(), "XDG_CACHE_HOME": str(scratch / "cache")}
    first = run([*cli_args, "first"], scratch, env=settings)
    kept = [path for path in (scratch / "cache").rglob("*") if path.is_file()]
    for path in kept:
        damage(path, rng)
    second = run([*cli_args, "second"], scratch, env=settings)
    ended = first.returncode == second.returncode == 0
    wrong = differences(scratch / "first", scratch / "second") if ended else [second.stderr[-300:]]
    what = f"{len(kept)} compiled programs in the cache are damaged"
    return Outcome.of("disks", what, ["; ".join(wrong)], "recompiled; the same results")


def two_processes(scratch: Path) -> Outcome:
    """A second process on a run directory in use."""
    line = "train Hopper-v5 --steps 100000000 --threads 1 --out taken"
    with start(line.split(), scratch) as a:
        while not (scratch / "taken" / "progress.csv").exists() and a.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                a.wait(0.2)
        found = run(["resume", "taken"], scratch)
        held = reported_cleanly(found) and a.poll() is None
        a.kill()
    what = "a second process on the same run directory"
    return Outcome("disks", what, 1, int(held), found.stderr.strip()[-200:])
