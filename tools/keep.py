"""`python -m tools.keep FROM TO`: copy the essential files of a sweep's finished runs.

Copies the experiments and, for each run, `config.json` and the columns of its record that tables
and figures need. This is a few tens of kilobytes per million steps, small enough for a repository.
With `--unfinished`, also runs that have not done all their steps, as far as they got.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from disc import storage
from disc.run import log
from disc.run.config import read_config
from disc.types import DiscError

COLUMNS = (
    "step",
    "time/elapsed",
    "eval/return",
    "eval/return_std",
    "train/return",
    "is/rho_last",
    "is/rho_d_last",
    "is/vanished",
    "is/batches",
    "is/j_is",
    "is/rho_d_age_0",
    "is/rho_d_age_1",
    "is/rho_d_age_2",
    "is/rho_d_age_3",
)


def finished(config: dict[str, Any], rows: list[dict[str, float]]) -> bool:
    """Whether a run has done all its steps."""
    return bool(rows) and rows[-1]["step"] >= config["plan"]["steps"]


def keep(source: Path, destination: Path, unfinished: bool = False) -> list[Path]:
    """Copy the files that tables and figures need.

    Args:
        source: the directory of a sweep.
        destination: another directory, created if needed.
        unfinished: copy runs that have not done all their steps too.

    Returns:
        The copied runs.
    """
    kept = []
    for path in sorted(source.glob("*/*/progress.csv")):
        run = path.parent
        config, rows = read_config(run), log.read_progress(path)
        if not rows or not (unfinished or finished(config, rows)):
            continue
        there = destination / run.relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        columns = [name for name in COLUMNS if any(name in row for row in rows)]
        lines = [",".join(columns), *(_line(row, columns) for row in rows)]
        storage.write_text(there / "progress.csv", "\n".join(lines) + "\n")
        text = (run / "config.json").read_text(encoding="utf-8")
        text = text.replace(f"{source.resolve()}/", "")  # a folder of this machine only
        storage.write_text(there / "config.json", text)
        kept.append(there)
    for path in source.glob("*.json"):
        storage.write_text(destination / path.name, path.read_text(encoding="utf-8"))
    return kept


def _line(row: log.Row, columns: list[str]) -> str:
    cells = [str(int(row["step"]))]
    cells += [f"{row[name]:.6g}" if name in row else "" for name in columns[1:]]
    return ",".join(cells)


def main() -> None:
    """Copy the runs of one directory to another."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tools.keep")
    parser.add_argument("source", type=Path, metavar="FROM", help="the directory of a sweep")
    parser.add_argument("destination", type=Path, metavar="TO", help="created if needed")
    parser.add_argument("--unfinished", action="store_true", help="keep unfinished runs too")
    options = parser.parse_args()
    try:
        for path in keep(options.source, options.destination, options.unfinished):
            sys.stdout.write(f"{path}\n")
    except (DiscError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
