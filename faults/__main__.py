"""`python -m faults`: inject faults into runs and files, and count losses.

Kills at random moments, full disks and damaged files, broken environments, non-finite values,
untrusted files, and load. Prints a table of trials and losses, writes it as JSON and Markdown, and
exits with status 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from disc import host
from faults import disks, environments, kills, load, numbers, untrusted
from faults.outcome import Outcome

Part = Callable[[Path, np.random.Generator, float], Iterator[Outcome]]

PARTS: dict[str, Part] = {
    "kills": kills.campaign,
    "disks": disks.campaign,
    "environments": environments.campaign,
    "numbers": numbers.campaign,
    "untrusted": untrusted.campaign,
    "load": load.campaign,
}

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Run the parts, print each outcome, and the table at the end."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m faults")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the trials to run")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the faults")
    out = "JSON file; the Markdown is written next to it"
    parser.add_argument("--out", type=Path, default=Path("faults.json"), help=out)
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    commit = host.commit()  # before the output can make the checkout dirty
    for part in options.parts:
        rng = np.random.default_rng([options.seed, *part.encode()])
        with tempfile.TemporaryDirectory() as scratch:
            for found in PARTS[part](Path(scratch), rng, options.scale):
                outcome = found._replace(remark=found.remark.replace(scratch, "…"))
                outcomes.append(outcome)
                console.print(f"{outcome.part}: {outcome.what}: {outcome.held}/{outcome.tried}")
                _write(options, commit, outcomes)
    console.print(_table(outcomes))
    if not all(outcome.good for outcome in outcomes):
        sys.exit(1)


def _table(outcomes: list[Outcome]) -> Table:
    table = Table("part", "what was done", title="Faults", title_justify="left", box=None)
    for column in ("tried", "held", "lost"):
        table.add_column(column, justify="right")
    table.add_column("result")
    for x in outcomes:
        lost = x.tried - x.held
        counts = (f"{x.tried:,}", f"{x.held:,}", f"{lost:,}")
        table.add_row(x.part, x.what, *counts, x.remark, style="" if x.good else "red")
    return table


def markdown(outcomes: list[Outcome]) -> str:
    """The table as Markdown, without the results column, which is in the JSON."""
    lines = ["| part | what was done | tried | lost |", "|---|---|---:|---:|"]
    for x in outcomes:
        lines.append(f"| {x.part} | {x.what} | {x.tried:,} | {x.tried - x.held:,} |")
    return "\n".join(lines) + "\n"


def _write(options: argparse.Namespace, commit: str | None, outcomes: list[Outcome]) -> None:
    about = {
        "command": ["python", "-m", "faults", *sys.argv[1:]],
        "seed": options.seed,
        "scale": options.scale,
        "versions": host.versions(),
        "commit": commit,
        "machine": host.facts(),
        "outcomes": [x._asdict() for x in outcomes],
    }
    options.out.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    options.out.with_suffix(".md").write_text(markdown(outcomes))


if __name__ == "__main__":
    main()
