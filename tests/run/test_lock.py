"""A run directory is locked by one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import disc
from disc import DiscError
from disc.run import directory, lock
from disc.run.directory import RunDirectory
from tests.support.small import QUIET, small

WIDE = "tests.support.environments:wide"

OTHER = """
import sys, time
from pathlib import Path
from disc.run import lock
from disc.run.directory import RunDirectory
lock.BY_FILE = sys.argv[2] == "file"
held = RunDirectory.open(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with small(env=WIDE) as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    return tmp_path / "run"


@pytest.fixture(params=["directory", "file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Locks are on the directory, or as on Windows on a file in it."""
    monkeypatch.setattr(lock, "BY_FILE", request.param == "file")
    return str(request.param)


def files(run: Path) -> dict[Path, bytes]:
    return {x: x.read_bytes() for x in run.rglob("*") if x.is_file() and x.name != lock.FILE}


def test_second_process_raises_and_changes_nothing(run: Path, way: str) -> None:
    part = run / ".progress.csv.1.part"
    part.write_text("what the first is writing")
    before = files(run)
    command = [sys.executable, "-c", OTHER, str(run), way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        part.write_text("what the first is writing")
        with pytest.raises(DiscError, match="is locked by another process"):
            disc.resume(run, 512, env=WIDE, progress=False)
        assert files(run) == before
        other.communicate()
    disc.resume(run, 512, env=WIDE, progress=False).close()
    assert not part.exists()
    assert not (run / lock.FILE).exists()


def test_killed_process_releases_the_lock(run: Path, way: str) -> None:
    command = [sys.executable, "-c", OTHER, str(run), way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        other.kill()
    assert (run / lock.FILE).exists() == (way == "file")
    RunDirectory.open(run).close()
    assert not (run / lock.FILE).exists()


def test_lock_file_of_a_killed_process_does_not_fill_a_directory(tmp_path: Path, way: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / lock.FILE).touch()
    (tmp_path / "run" / ".config.json.1.part").touch()
    directory.check_free(tmp_path / "run")
    with small(env=WIDE) as agent:
        agent.learn(256, out=tmp_path / "run", **QUIET)
    assert not (tmp_path / "run" / ".config.json.1.part").exists()
    with pytest.raises(DiscError, match="already exists"):
        directory.check_free(tmp_path / "run")


def test_failed_resume_releases_the_lock(run: Path, way: str) -> None:
    for _ in range(2):
        with pytest.raises(DiscError, match="is already at step"):
            disc.resume(run, 256, env=WIDE, progress=False)
    handles = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with pytest.raises(DiscError, match="is already at step"):
        disc.resume(run, 256, env=WIDE, progress=False)
    if handles:
        assert len(os.listdir("/proc/self/fd")) == handles
