"""What a run runs on: cores, versions, commit, command."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from disc._version import __version__
from disc.types import DiscError

MOST_MAPS = 16_000
"""Memory maps of a process from which on compiled programs are forgotten: those of some 25
different agents, in about 0.7 GB. Linux allows 65,530, and XLA aborts where there are no more."""


def configure_jax(threads: int) -> None:
    """Hold XLA to so many cores, and let it keep compiled programs between processes.

    XLA reads the number of cores once, at its first computation in the process.
    """
    import jax

    os.environ["NPROC"] = str(threads)
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
        jax.config.update("jax_compilation_cache_dir", str(Path(cache, "disc-rl").expanduser()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def forget_programs() -> None:
    """Make room where many different agents were trained in this process.

    XLA keeps the programs of every combination of options and shapes. One that is needed again is
    compiled again, or read from the disk, and computes the same.
    """
    import jax

    try:
        maps = Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return
    if maps > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int | None:
    """Bytes that are free for this process, or None where the system does not say."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024 * int(line.split()[1]))
    except (OSError, ValueError):
        return None
    group = Path("/sys/fs/cgroup")
    try:  # a container's limit, if it has one
        limit, used = (int((group / f"memory.{x}").read_text()) for x in ("max", "current"))
        facts = dict(x.split() for x in (group / "memory.stat").read_text().splitlines())
        found.append(limit - used + int(facts.get("inactive_file", 0)))  # a cache gives way
    except (OSError, ValueError):
        pass
    return max(0, min(found)) if found else None


def check_memory(needed: int, what: str, option: str) -> None:
    """Refuse what the machine can't hold, with the arithmetic.

    Raises:
        DiscError: it needs more than nine tenths of what is free.
    """
    free = available_memory()
    if free is not None and needed > 0.9 * free:
        raise DiscError(
            f"{what} takes {size(needed)}, and this machine has {size(free)} free; lower {option}."
        )


def size(number: int) -> str:
    """A number of bytes for people."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"


def versions() -> dict[str, str]:
    """Versions of all that can change a result."""
    found = {"disc-rl": __version__, "python": platform.python_version()}
    for name in ("jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco", "box2d"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the source, if it is run from a checkout."""
    here = Path(__file__).parent.parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        if not (here / ".git").exists():
            return None
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def command() -> list[str]:
    """The command line that this process was started with."""
    entry = Path(sys.argv[0]).name
    return ["disc" if entry in ("disc", "__main__.py") else entry, *sys.argv[1:]]


def facts() -> dict[str, Any]:
    """What the run runs on."""
    import jax

    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].platform,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
