"""`python -m tools.keep FROM TO`: what is worth keeping of a sweep's finished runs.

Of each its `config.json` and, of its record, the columns that tables and figures are made of; and
the experiments. A few tens of kilobytes for a million steps, which fit into a repository.
"""

from __future__ import annotations

import sys
from pathlib import Path

from disc import storage
from disc.run import directory, log
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
    "is/rho_d_age_0",
    "is/rho_d_age_1",
    "is/rho_d_age_2",
    "is/rho_d_age_3",
)


def keep(source: Path, destination: Path) -> list[Path]:
    """Copy what tables and figures need.

    Args:
        source: the directory of a sweep.
        destination: another, made if need be.

    Returns:
        The runs that were copied: those that have taken all their steps.
    """
    kept = []
    for path in sorted(source.glob("*/*/progress.csv")):
        run = path.parent
        config, rows = directory.read_config(run), log.read_progress(path)
        if not rows or rows[-1]["step"] < config["plan"]["steps"]:
            continue
        there = destination / run.relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        columns = [name for name in COLUMNS if any(name in row for row in rows)]
        lines = [",".join(columns), *(_line(row, columns) for row in rows)]
        storage.write_text(there / "progress.csv", "\n".join(lines) + "\n")
        storage.write_text(there / "config.json", (run / "config.json").read_text(encoding="utf-8"))
        kept.append(there)
    for path in source.glob("*.json"):
        storage.write_text(destination / path.name, path.read_text(encoding="utf-8"))
    return kept


def _line(row: log.Row, columns: list[str]) -> str:
    cells = [str(int(row["step"]))]
    cells += [f"{row[name]:.6g}" if name in row else "" for name in columns[1:]]
    return ",".join(cells)


def main() -> None:
    """Keep one directory's runs in another."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tools.keep FROM TO")
    try:
        for path in keep(Path(sys.argv[1]), Path(sys.argv[2])):
            sys.stdout.write(f"{path}\n")
    except (DiscError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
