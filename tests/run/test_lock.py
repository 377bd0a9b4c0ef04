"""A run directory is locked by one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import disc
from disc import DiscError
from disc.run.directory import RunDirectory
from tests.support.small import QUIET, small

WIDE = "tests.support.environments:wide"

OTHER = """
import sys, time
from pathlib import Path
from disc.run.directory import RunDirectory
held = RunDirectory.open(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with small(env=WIDE) as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    return tmp_path / "run"


def test_second_process_raises_and_changes_nothing(run: Path) -> None:
    part = run / ".progress.csv.1.part"
    part.write_text("what the first is writing")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    command = [sys.executable, "-c", OTHER, str(run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        part.write_text("what the first is writing")
        with pytest.raises(DiscError, match="is locked by another process"):
            disc.resume(run, 512, env=WIDE, progress=False)
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        other.communicate()
    disc.resume(run, 512, env=WIDE, progress=False).close()
    assert not part.exists()


def test_killed_process_releases_the_lock(run: Path) -> None:
    command = [sys.executable, "-c", OTHER, str(run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        other.kill()
    RunDirectory.open(run).close()


def test_failed_resume_releases_the_lock(run: Path) -> None:
    for _ in range(2):
        with pytest.raises(DiscError, match="is already at step"):
            disc.resume(run, 256, env=WIDE, progress=False)
    handles = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with pytest.raises(DiscError, match="is already at step"):
        disc.resume(run, 256, env=WIDE, progress=False)
    if handles:
        assert len(os.listdir("/proc/self/fd")) == handles
