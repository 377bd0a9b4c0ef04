"""`python -m disc.paper results`: the table and the figures of all runs in a directory."""

from __future__ import annotations

import sys
from pathlib import Path

from disc import files
from disc.paper import figures
from disc.types import DiscError


def main() -> None:
    """Draw into the directory that holds the runs."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m disc.paper DIRECTORY-OF-RUNS")
    directory = Path(sys.argv[1])
    try:
        runs = figures.load(directory)
    except DiscError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    for env, algorithms in runs.items():
        if len(algorithms) > 1:
            figures.learning_curves(runs, env, directory / f"{env}.png")
    figures.vanishing(runs, directory / "vanishing.png")
    files.write_text(directory / "table.md", figures.table(runs))


main()
