"""Reading `progress.csv`, also if it was cut off in the middle of a row."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from disc import DiscError
from disc.run import log, terminal

ROWS = [
    {"step": 1, "a": 0.5, "b": -12.25},
    {"step": 2, "b": 3.0},
    {"step": 30, "a": 1e-9, "b": 4.0},
]
TEXT = "step,a,b\n1,0.5,-12.25\n2,,3.0\n30,1e-09,4.0\n"


def test_progress_file_cut_at_any_byte_keeps_its_complete_rows(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    for end in range(len(TEXT) + 1):
        path.write_text(TEXT[:end])
        whole = max(0, TEXT[:end].count("\n") - 1)
        assert log.read_progress(path) == ROWS[:whole]
        assert log.tail(path) == ROWS[:whole]


@pytest.mark.parametrize("count", [1, 7, 500, 2_000])
def test_tail_returns_the_last_rows(tmp_path: Path, count: int) -> None:
    path = tmp_path / "progress.csv"
    lines = [f"{step},{step / 7:.9g},{'' if step % 2 else step}" for step in range(1, count + 1)]
    path.write_text("\n".join(["step,a,b", *lines]) + "\n")
    rows = log.read_progress(path)
    last = log.tail(path)
    assert len(rows) == count
    assert 1 <= len(last) <= count
    assert last == rows[-len(last) :]


def test_tail_of_a_missing_progress_file_is_empty(tmp_path: Path) -> None:
    assert log.tail(tmp_path / "progress.csv") == []
    with pytest.raises(OSError, match=r"progress\.csv"):
        log.read_progress(tmp_path / "progress.csv")


@pytest.mark.parametrize(
    "text",
    [
        f"{','.join(['step'] * 8000)}\n" + "1\n" * 8000,
        "step,a\n" + "1\n" * 10**6,
        "step,a\n1,2,3\n",
        "step\n-1\n",
        "a\n1\n",
    ],
    ids=["wide", "long", "more cells", "negative step", "no step column"],
)
def test_invalid_progress_files_raise_quickly(text: str, tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text(text)
    before, clock = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ValueError, match=r"row|columns"):
        log.read_progress(tmp_path / "progress.csv")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert time.process_time() - clock < 5.0


def test_too_large_progress_file_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "progress.csv").write_text(TEXT)
    monkeypatch.setattr(log, "MOST_VALUES", 7)
    with pytest.raises(ValueError, match="too many rows"):
        log.read_progress(tmp_path / "progress.csv")


def test_blank_lines_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text(TEXT.replace("\n2,", "\n\n2,") + "\n")
    assert log.read_progress(tmp_path / "progress.csv") == ROWS


def test_damaged_progress_file_stays_until_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text(TEXT.replace("\n2,", "\nx,"))
    rows = log.salvage(path)
    assert rows == [ROWS[0], ROWS[2]]
    assert log.salvage(path) == rows  # a kill in between costs nothing
    log.ProgressFile(path).replace(rows)
    assert log.read_progress(path) == rows
    assert "\nx," in (tmp_path / "progress.damaged.csv").read_text()


def test_damaged_header_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_bytes(TEXT.encode().replace(b"step,a", b"step,\xff"))
    file = log.ProgressFile(path)
    file.replace(ROWS)
    file.append({"step": 31, "a": 1.0, "b": 2.0})
    assert log.read_progress(path) == [*ROWS, {"step": 31, "a": 1.0, "b": 2.0}]


def test_restarted_progress_file_gets_new_columns(tmp_path: Path) -> None:
    file = log.ProgressFile(tmp_path / "progress.csv")
    for rows in (ROWS[:1], []):
        file.append(ROWS[0])
        file.replace(rows)
    file.append({"step": 1, "c": 2.0})
    assert (tmp_path / "progress.csv").read_text() == "step,c\n1,2.0\n"


def test_directory_in_place_of_a_progress_file_raises(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").mkdir()
    with pytest.raises(DiscError, match="can't be read"):
        log.salvage(tmp_path / "progress.csv")


@pytest.mark.parametrize("shown", [False, True])
def test_reporting_to_a_closed_pipe_does_not_raise(shown: bool) -> None:
    """Other writes to the same file do not raise either."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1) as file:
        console = terminal.Speaker(soft_wrap=True, force_terminal=shown)
        console.file = file
        reporter = terminal.Reporter("a run", 1000, console=console)
        for step in range(100, 1001, 300):
            reporter.update(step, {"train/return": 1.0})
            reporter.say("something")
        reporter.close()
        assert console.quiet
        print("something else", file=file)
