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

LAST = 2**53  # of all steps: beyond, a float can't count them
HEAD = 100_000  # bytes of a record's first row at most
WIDEST = 1_000  # columns; a run has some 40
LARGEST = 10**7  # numbers: some 250,000 rows


def read_progress(path: Path) -> list[Row]:
    """The whole rows of a `progress.csv`; an empty cell is left out of its row.

    Raises:
        OSError: there is none.
        ValueError: it is damaged.
    """
    text = storage.read_text(path, storage.RECORD)
    whole = text.rpartition("\n")[0]  # a row without its newline was cut off
    return list(_rows(whole.splitlines()))


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    """The rows below a header.

    Raises:
        ValueError: they are none of it, or there is more than a run can have written.
    """
    try:
        cells = csv.reader(lines)
        columns, held = next(cells, []), 0
        if len(columns) > WIDEST:
            raise ValueError(f"more than {WIDEST:,} columns")
        for found in filter(None, cells):
            if len(found) != len(columns):
                raise ValueError(f"a row is damaged: it has {len(found)} cells")
            row = {n: float(x) for n, x in zip(columns, found, strict=True) if x}
            held += len(row)
            if not 0 <= row["step"] <= LAST or held > LARGEST:
                raise ValueError("a step is none, or there are too many rows")
            yield {**row, "step": int(row["step"])}
    except (csv.Error, KeyError) as error:
        raise ValueError(f"a row is damaged: {error}") from error


def salvage(path: Path) -> list[Row]:
    """The rows of a `progress.csv` that can be read; a damaged one is kept beside.

    Raises:
        DiscError: it is no file that can be read.
        OSError: it can't be kept.
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
    header, rows = lines[0][:HEAD] if lines else "", list[Row]()
    if header.count(",") < WIDEST:
        for line in lines[1:]:
            with suppress(ValueError):
                rows += _rows([header, line])
    return rows


def tail(path: Path) -> list[Row]:
    """The last few whole rows of a `progress.csv`, read from its end; none if it is damaged."""
    if not path.is_file():
        return []
    try:
        with open(path, "rb") as file:
            head = file.readline(HEAD)
            size = file.seek(0, 2)
            start = max(len(head), size - 8 * max(1024, len(head)))
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]  # what stands behind the last newline is no row
            lines = lines if start == len(head) else lines[1:]  # the first may lack its beginning
    except OSError:
        return []
    try:
        columns = head.decode().strip().split(",")
        cells = [line.decode().strip().split(",") for line in lines]
        whole = [row for row in cells if len(row) == len(columns)]
        rows = [{n: float(x) for n, x in zip(columns, row, strict=True) if x} for row in whole]
        return [row for row in rows if 0 <= row.get("step", -1.0) <= LAST]
    except ValueError:  # a run that goes on makes its record anew
        return []


class ProgressFile:
    """`progress.csv`: a row an iteration, appended whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.columns = path, list[str]()

    def append(self, row: Row) -> None:
        """Add a row; a column that is new comes last, and is empty in the rows before."""
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
        """Wait until all rows are on the disk."""
        if self.path.exists():
            storage.sync(self.path)

    def replace(self, rows: list[Row]) -> None:
        """Hold these rows instead, under the same columns."""
        self.columns = list(dict.fromkeys(name for row in rows for name in row))
        if not rows:  # the next row names the columns anew
            self.path.unlink(missing_ok=True)
            return
        if self.path.exists():
            with open(self.path, newline="", encoding="utf-8", errors="replace") as file:
                header = next(csv.reader([file.readline(HEAD)]), [])
            if {*self.columns} <= {*header}:  # a damaged one names others
                self.columns = header
        self._rewrite(rows)

    def _rewrite(self, rows: list[Row]) -> None:
        lines = [",".join(self.columns) + "\n", *map(self._line, rows)]
        storage.write_text(self.path, "".join(lines))

    def _line(self, row: Row) -> str:
        known = (row.get(name, math.nan) for name in self.columns)
        return ",".join("" if math.isnan(value) else repr(value) for value in known) + "\n"


class Events:
    """TensorBoard events beside the CSV, written at once and by this thread, so that a kill loses
    none and a full disk is told where it is met.

    Args:
        directory: a file for this process is made in it.
        purge_step: what other files hold from this step on is out of date.
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
    """How well a run did, from its rows: the last and the best evaluation, the last return."""
    known = {"eval/return", "eval/return_std"}
    evaluations = [_evaluation(row) for row in rows if known <= row.keys()]
    last = next((row for row in reversed(rows) if "train/return" in row), None)
    result: dict[str, Any] = {}
    if evaluations:
        result["last_evaluation"] = evaluations[-1]
        result["best_evaluation"] = max(evaluations, key=lambda found: found["return"])
    if last is not None:
        result["last_training_return"] = last["train/return"]
    return result


def _evaluation(row: Row) -> dict[str, float]:
    return {
        "step": row["step"],
        "return": row["eval/return"],
        "return_std": row["eval/return_std"],
    }
