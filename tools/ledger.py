"""`python -m tools.ledger DIR`: what has been run of a sweep, what is missing, and what it costs.

For each experiment with a table in the directory: one row per task and arm with the finished
seeds, their commits, the missing runs and the core-hours these would take. The time of a step is
that of the arm's finished runs on the task, evaluations included. Where there are none, the time is
marked ~ and is that of unfinished runs, or of another arm on the task. Times are of the machines
that made the runs. With `--page`, the table
replaces the lines between `<!-- ledger -->` and `<!-- /ledger -->` of a Markdown page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from disc.report import load
from disc.report.load import Run, Study
from disc.types import DiscError
from tools import pages

HOUR = 3600.0


def pace(runs: list[Run]) -> float | None:
    """Seconds per step of some runs, or None without any."""
    runs = [run for run in runs if run.steps and run.seconds]
    return sum(run.seconds for run in runs) / sum(run.steps for run in runs) if runs else None


def ledger(study: Study) -> str:
    """Markdown: one line per task and arm, and the sum of the missing core-hours."""
    lines = [
        "| task | algorithm | finished seeds | commits | missing runs | core-hours |",
        "|---|---|---|---|---:|---:|",
    ]
    total, unknown = 0.0, 0
    for (task, arm), group in study.groups.items():
        same = [other for (t, _), other in study.groups.items() if t == task]
        own = pace(group.finished)
        known = (own, pace(group.everything), *(pace(x.everything) for x in same))
        seconds = next((x for x in known if x is not None), None)
        seeds = sorted(run.config["seed"] for run in group.finished)
        missing = len(set(study.experiment.seeds) - set(seeds))
        cost = "0"
        if missing and seconds is None:
            cost, unknown = "?", unknown + missing
        elif missing and seconds is not None:
            hours = missing * group.steps * seconds / HOUR
            total += hours
            cost = f"{'' if own is not None else '~'}{hours:.1f}"
        commits = sorted({text for run in group.finished for text in _commits(run)})
        cells = (task, arm, _listed(seeds), _listed(commits), f"{missing}", cost)
        lines.append(f"| {' | '.join(cells)} |")
    done = sum(bool(group.finished) for group in study.groups.values())
    several = sum(len(group.finished) > 1 for group in study.groups.values())
    lines += [
        "",
        f"{done} of {len(study.groups)} pairs of task and algorithm have a finished run, {several} "
        f"two or more. The missing runs would take {total:,.0f} core-hours."
        + (f" {unknown} further runs are on tasks without any run." if unknown else ""),
    ]
    return "\n".join(lines) + "\n"


def _commits(run: Run) -> list[str]:
    """The short commits that a run was begun and resumed at; `-dirty` marks local changes."""
    parts = [run.config, *run.resumed]
    found = [str(part.get("commit") or "?").partition("-") for part in parts]
    return [short[:7] + dash + dirty for short, dash, dirty in found]


def _listed(entries: list[int] | list[str]) -> str:
    return ", ".join(map(str, entries)) or "–"


def main() -> None:
    """Print the table, or write it to a page."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tools.ledger",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", type=Path, help="the directory of a sweep")
    parser.add_argument("--page", type=Path, help="a Markdown page to update")
    options = parser.parse_args()
    try:
        studies = [study for study in load.load(options.sweep).studies if study.experiment.table]
        if not studies:
            raise DiscError(f"{options.sweep}: contains no experiment with a table.")
        text = "\n".join(map(ledger, studies))
        if options.page:
            pages.replace(options.page, "ledger", text)
        else:
            sys.stdout.write(text)
    except (DiscError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
