"""The record of a run: `progress.csv` and TensorBoard events."""

from __future__ import annotations

import csv
import errno
import math
import os
import shutil
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from disc import storage
from disc.types import DiscError

Row = dict[str, float]

LAST_STEP = 2**53  # a float can't count beyond
HEADER = 100_000  # maximum bytes of a record's first row
MOST_COLUMNS = 1_000  # a run has about 40
MOST_VALUES = 10**7  # about 250,000 rows


def read_progress(path: Path) -> list[Row]:
    """The complete rows of a `progress.csv`; empty cells are left out.

    Raises:
        OSError: it can't be read.
        ValueError: it is damaged.
    """
    text = storage.read_text(path, storage.RECORD)
    whole = text.rpartition("\n")[0]  # a row without its newline was cut off
    return list(_rows(whole.splitlines()))


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    """The rows below a header.

    Raises:
        ValueError: a row is damaged, or there are more than a run can have written.
    """
    try:
        cells = csv.reader(lines)
        columns, held = next(cells, []), 0
        if len(columns) > MOST_COLUMNS:
            raise ValueError(f"more than {MOST_COLUMNS:,} columns")
        for found in filter(None, cells):
            if len(found) != len(columns):
                raise ValueError(f"a row is damaged: it has {len(found)} cells")
            row = {n: float(x) for n, x in zip(columns, found, strict=True) if x}
            held += len(row)
            if not 0 <= row["step"] <= LAST_STEP or held > MOST_VALUES:
                raise ValueError("a step is invalid, or there are too many rows")
            yield {**row, "step": int(row["step"])}
    except (csv.Error, KeyError) as error:
        raise ValueError(f"a row is damaged: {error}") from error


def salvage(path: Path) -> list[Row]:
    """The rows of a `progress.csv` that can be read; a damaged file is copied first.

    Raises:
        DiscError: the file can't be read.
        OSError: the copy can't be written.
    """
    try:
        return read_progress(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DiscError(f"{path}: can't be read ({error.strerror}).") from error
    except ValueError:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    with storage.replace(path.with_name("progress.damaged.csv")) as beside:
        shutil.copyfile(path, beside)
    header, rows = lines[0][:HEADER] if lines else "", list[Row]()
    if header.count(",") < MOST_COLUMNS:
        for line in lines[1:]:
            with suppress(ValueError):
                rows += _rows([header, line])
    return rows


def tail(path: Path) -> list[Row]:
    """The last few complete rows of a `progress.csv`; none if it is damaged."""
    if not path.is_file():
        return []
    try:
        with open(path, "rb") as file:
            head = file.readline(HEADER)
            size = file.seek(0, 2)
            start = max(len(head), size - 8 * max(1024, len(head)))
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]  # without a newline a row is incomplete
            lines = lines if start == len(head) else lines[1:]  # the first may be cut off
        return list(_rows(line.decode() for line in (head, *lines)))
    except (OSError, ValueError):  # for example while a resumed run rewrites its record
        return []


class ProgressFile:
    """`progress.csv`: one row per iteration."""

    def __init__(self, path: Path) -> None:
        self.path, self.columns = path, list[str]()

    def append(self, row: Row) -> None:
        """Add a row; a new column comes last, and is empty in earlier rows."""
        new = [name for name in row if name not in self.columns]
        if new and self.columns:
            rows = read_progress(self.path)
            self.columns += new
            self._rewrite(rows)
        text = "" if self.columns else ",".join(row) + "\n"
        self.columns = self.columns or list(row)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(text + self._line(row))

    def flush(self) -> None:
        """Wait until all rows are on disk."""
        if self.path.exists():
            storage.sync(self.path)

    def replace(self, rows: list[Row]) -> None:
        """Replace all rows, keeping the columns."""
        self.columns = list(dict.fromkeys(name for row in rows for name in row))
        if not rows:  # the next row defines the columns
            self.path.unlink(missing_ok=True)
            return
        if self.path.exists():
            with open(self.path, newline="", encoding="utf-8", errors="replace") as file:
                header = next(csv.reader([file.readline(HEADER)]), [])
            if {*self.columns} <= {*header}:  # unless the header is damaged
                self.columns = header
        self._rewrite(rows)

    def _rewrite(self, rows: list[Row]) -> None:
        lines = [",".join(self.columns) + "\n", *map(self._line, rows)]
        storage.write_text(self.path, "".join(lines))

    def _line(self, row: Row) -> str:
        known = (row.get(name, math.nan) for name in self.columns)
        return ",".join("" if math.isnan(value) else repr(value) for value in known) + "\n"


class Events:
    """TensorBoard events, written immediately by this thread, so that a kill loses none and a full
    disk is reported where it occurs.

    Args:
        directory: gets a new file.
        purge_step: events of other files from this step on are out of date.
    """

    def __init__(self, directory: Path, purge_step: int | None) -> None:
        from tensorboardX.proto.event_pb2 import SessionLog

        directory.mkdir(exist_ok=True)
        moment = time.time_ns()
        name = f"events.out.tfevents.{moment // 10**9}.{socket.gethostname()}.{moment % 10**9:09d}"
        self.file = open(directory / name, "xb", buffering=0)  # noqa: SIM115
        self._write(0, file_version="brain.Event:2")
        if purge_step is not None:
            self._write(purge_step, session_log=SessionLog(status=SessionLog.START))

    def append(self, row: Row) -> None:
        """Write a row's values."""
        from tensorboardX.proto.summary_pb2 import Summary

        known = {name: x for name, x in row.items() if name != "step" and not math.isnan(x)}
        values = [Summary.Value(tag=name, simple_value=x) for name, x in known.items()]
        self._write(int(row["step"]), summary=Summary(value=values))

    def _write(self, step: int, **fields: Any) -> None:
        """Append an event in TensorFlow's record format: length, data, and a checksum of each."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c

        data = Event(wall_time=time.time(), step=step, **fields).SerializeToString()
        parts = (struct.pack("<Q", len(data)), data)
        whole = b"".join(part + struct.pack("<I", masked_crc32c(part)) for part in parts)
        if self.file.write(whole) != len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.file.name)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def scores(rows: Sequence[Row]) -> dict[str, Any]:
    """The last and the best evaluation of a run, and its last training return."""
    known = {"eval/return", "eval/return_std"}
    evaluations = [evaluation(row) for row in rows if known <= row.keys()]
    last = next((row for row in reversed(rows) if "train/return" in row), None)
    result: dict[str, Any] = {}
    if evaluations:
        result["last_evaluation"] = evaluations[-1]
        result["best_evaluation"] = max(evaluations, key=lambda found: found["return"])
    if last is not None:
        result["last_training_return"] = last["train/return"]
    return result


def evaluation(row: Row) -> dict[str, float]:
    """The evaluation in a row."""
    return {
        "step": row["step"],
        "return": row["eval/return"],
        "return_std": row["eval/return_std"],
    }
