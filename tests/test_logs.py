"""Reading a record, also one that was cut off in the middle of a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from disc import logs

ROWS = [
    {"step": 1, "a": 0.5, "b": -12.25},
    {"step": 2, "b": 3.0},
    {"step": 30, "a": 1e-9, "b": 4.0},
]
TEXT = "step,a,b\n1,0.5,-12.25\n2,,3.0\n30,1e-09,4.0\n"


def test_a_record_that_ends_at_any_byte_has_its_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    for end in range(len(TEXT) + 1):
        path.write_text(TEXT[:end])
        whole = max(0, TEXT[:end].count("\n") - 1)
        assert logs.read_progress(path) == ROWS[:whole]
        assert logs.tail(path) == ROWS[:whole]


@pytest.mark.parametrize("count", [1, 7, 500, 2_000])
def test_the_tail_of_a_long_record(tmp_path: Path, count: int) -> None:
    path = tmp_path / "progress.csv"
    lines = [f"{step},{step / 7:.9g},{'' if step % 2 else step}" for step in range(1, count + 1)]
    path.write_text("\n".join(["step,a,b", *lines]) + "\n")
    rows = logs.read_progress(path)
    last = logs.tail(path)
    assert len(rows) == count
    assert 1 <= len(last) <= count
    assert last == rows[-len(last) :]


def test_there_may_be_no_record(tmp_path: Path) -> None:
    assert logs.tail(tmp_path / "progress.csv") == []
    with pytest.raises(OSError, match=r"progress\.csv"):
        logs.read_progress(tmp_path / "progress.csv")
