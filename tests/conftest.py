"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.version import Version

# Several processes need the same programs; before JAX is imported, and for child processes too.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "disc-rl-tests").expanduser()),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Most of the time goes into compiling programs that run once, so XLA should not optimise them.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if Version(version("jax")) < Version("0.11"):  # later ones exit at a flag that they do not know
    flags = (
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
        "--xla_backend_optimization_level=1",  # for tests that ask for optimised programs
        "--xla_llvm_disable_expensive_passes=true",
    )
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))

import jax
import numpy as np
import pytest
from hypothesis import settings

# The collector would look at a large heap again and again.
gc.freeze()
gc.set_threshold(100_000, 20, 20)
# A background process may ignore Ctrl-C, and its children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# (B,) − (B, 1) must raise instead of broadcasting to (B, B).
jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile("disc", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("disc")


WAITING = ("test_ray.py", "test_sweep_faults.py", "test_style.py", "test_campaign.py")
"""Tests that mostly wait for other processes: they come first, so that none is left at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in WAITING)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def _optimised() -> Iterator[None]:
    """For tests that train for long: programs run faster, but take longer to compile."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def _few_programs() -> Iterator[None]:
    """Clear compiled programs before the process runs out of memory maps (65,530 on Linux)."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
        gc.collect()


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET_BROWSER = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; tests that need one are skipped where there is none."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"there is no browser here ({', '.join(BROWSERS)})")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=QUIET_BROWSER)
        yield running
        running.close()
