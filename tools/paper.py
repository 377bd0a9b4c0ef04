"""`python -m tools.paper results`: the table and the figures of all runs in a directory."""

from __future__ import annotations

import sys
from pathlib import Path

from disc import storage
from disc.types import DiscError
from tools import figures


def main() -> None:
    """Write to the directory of the runs."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m tools.paper DIRECTORY-OF-RUNS")
    directory = Path(sys.argv[1])
    try:
        runs = figures.load(directory)
    except DiscError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    peers = figures.load_peers(directory / "checks")
    for env, algorithms in runs.items():
        apart = {name: some for name, some in algorithms.items() if name in figures.OFF_POLICY}
        others = {name: some for name, some in algorithms.items() if name not in apart}
        if len(others) > 1:
            figures.learning_curves(others, env, directory / f"{env}.png")
        if len(apart) > 1:
            out = directory / f"{env}-off-policy.png"
            figures.learning_curves(apart, env, out, peers.get(env))
    figures.vanishing(runs, directory / "vanishing.png")
    storage.write_text(directory / "table.md", figures.table(runs))
    storage.write_text(directory / "reached.md", figures.reached(runs))


if __name__ == "__main__":
    main()
