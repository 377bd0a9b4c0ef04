"""The machine and software of a run: cores, memory, versions, commit, command."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

from disc._version import __version__
from disc.types import DiscError

MOST_MAPS = 16_000
"""With more memory maps than this, a process discards compiled programs. It is enough for about 25
different agents, in about 1 GB. Linux allows 65,530 maps, beyond which XLA aborts."""


def configure_jax(threads: int) -> None:
    """Limit XLA to `threads` cores, and cache compiled programs on disk.

    XLA reads the number of cores once, at its first computation in the process.
    """
    import jax

    os.environ["NPROC"] = str(threads)
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined, unused-ignore]
        cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
        jax.config.update("jax_compilation_cache_dir", str(Path(cache, "disc-rl").expanduser()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def forget_programs() -> None:
    """Free memory if many different agents were trained in this process.

    XLA keeps the programs of every combination of options and shapes. If needed again, they are
    recompiled or read from the disk, with the same results.
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


def total_memory() -> int | None:
    """Bytes of memory of this machine, or None if unknown."""
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> int | None:
    """Bytes of free memory for this process, or None if unknown."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024 * int(line.split()[1]))
    except (OSError, ValueError):
        return None
    group = Path("/sys/fs/cgroup")
    try:  # a container's limit, if any
        limit, used = (int((group / f"memory.{x}").read_text()) for x in ("max", "current"))
        facts = dict(x.split() for x in (group / "memory.stat").read_text().splitlines())
        found.append(limit - used + int(facts.get("inactive_file", 0)))  # can be freed
    except (OSError, ValueError):
        pass
    return max(0, min(found)) if found else None


def check_memory(needed: int, what: str, option: str) -> None:
    """Check that there is enough free memory.

    Raises:
        DiscError: `needed` is more than nine tenths of the free memory.
    """
    free = available_memory()
    if free is not None and needed > 0.9 * free:
        raise DiscError(
            f"{what} takes {size(needed)}, and this machine has {size(free)} free; lower {option}."
        )


def size(number: int) -> str:
    """Format a number of bytes."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"


def versions() -> dict[str, str]:
    """Versions of all packages that can affect results."""
    found = {"disc-rl": __version__, "python": platform.python_version()}
    for name in ("jax", "jaxlib", "numpy", "gymnasium", "mujoco", "box2d"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def software() -> set[str]:
    """Everything that affects results: a checksum of the source, and versions of dependencies."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    sources = b"".join(path.read_bytes() for path in files)
    found = {**versions(), "disc with the checksum": f"{zlib.crc32(sources):08x}"}
    return {f"{name} {version}" for name, version in found.items()}


def commit() -> str | None:
    """The commit of the source, if run from a checkout."""
    here = Path(__file__).parent.parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        if not (here / ".git").exists():
            return None
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def command() -> list[str]:
    """The command line of this process."""
    entry = Path(sys.argv[0]).name
    return ["disc" if entry in ("disc", "__main__.py") else entry, *sys.argv[1:]]


def facts() -> dict[str, Any]:
    """Facts about the machine."""
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
