"""`python -m tools.headline DIR`: a sweep's table as Markdown, and its learning curves.

For each experiment with a table in the directory, writes NAME.md and NAME.png next to its
NAME.json; missing runs are left out. With `--pages`, the table of Table 1 also replaces the
one in Markdown pages, between `<!-- table1 -->` and `<!-- /table1 -->`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from disc import storage
from disc.envs.tasks import TASKS
from disc.report import load, tables
from disc.report.load import Study
from disc.report.plots import COLORS, dress, panels, save
from disc.types import DiscError
from tools import figures, pages

WINDOW = 10  # evaluations averaged for each point of a curve
TABLE = "table1"  # the one in pages


def markdown(study: Study) -> str:
    """One line per task and arm with finished runs."""
    lines = [
        "| task | algorithm | seeds | every | paper | ours | 95 % interval | last ten | area | |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in tables.rows(study):
        if row.ours is None or not row.group.finished:
            continue
        paper = " ± ".join(f"{x:,.0f}" for x in row.paper) or "–"
        spread = f" ± {row.ours.spread:,.0f}" if row.seeds > 1 else ""
        interval = " to ".join(f"{x:,.0f}" for x in row.interval) if row.interval else "–"
        ours = f"{row.ours.value:,.0f}{spread}"
        numbers = (f"{row.final:,.0f}", f"{row.area:,.0f}")
        cells = (f"{row.seeds}", tables.grids(row.group), paper, ours, interval, *numbers)
        judged = tables.verdict(row).text
        if row.group.reused_nothing:
            judged += f"; {tables.REUSED_NOTHING}"
        task, arm = _name(row.group.task), row.group.arm
        lines.append(f"| {task} | {arm} | {' | '.join(cells)} | {judged} |")
    return "\n".join(lines) + "\n"


def draw(study: Study, out: Path) -> None:
    """One panel per task: mean and standard deviation over seeds, the paper's value dashed."""
    groups = [group for group in study.groups.values() if group.finished]
    tasks = list(dict.fromkeys(group.task for group in groups))
    figure, grid = panels(len(tasks), 4.3 * len(tasks))
    for axes, task in zip(grid, tasks, strict=True):
        for arm, color in zip(study.experiment.arms, COLORS, strict=False):
            curves = study.groups[task, arm.label].curves()
            if not curves or not study.groups[task, arm.label].finished:
                continue
            figures.draw_mean(axes, curves, WINDOW, color=color, label=arm.label)
            paper = study.experiment.paper.get(arm.label, {}).get(task)
            if paper:
                axes.axhline(paper[0], color=color, linestyle="--", linewidth=0.9, alpha=0.8)
        seeds = {len(group.finished) for group in groups if group.task == task}
        count = "–".join(str(x) for x in sorted({min(seeds), max(seeds)}))
        dress(axes, f"{_name(task)}, {count} seed{'s' if max(seeds) > 1 else ''}", "")
    dashed = " (dashed: the paper's)" if study.experiment.paper else ""
    grid[0].set_ylabel(f"evaluated return{dashed}")
    save(figure, out)


def _name(task: str) -> str:
    return TASKS[task].id if task in TASKS else task


def write(directory: Path) -> list[Path]:
    """Write both for every experiment with a table.

    Raises:
        DiscError: the directory contains no finished run of one.
    """
    written = []
    for study in load.load(directory).studies:
        if study.experiment.table and any(group.finished for group in study.groups.values()):
            path = directory / f"{study.experiment.name}.md"
            storage.write_text(path, markdown(study))
            draw(study, path.with_suffix(".png"))
            written += [path, path.with_suffix(".png")]
    if not written:
        raise DiscError(f"{directory}: contains no finished run of an experiment with a table.")
    return written


def main() -> None:
    """Write the files and print their names."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tools.headline",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", type=Path, help="the directory of a sweep")
    parser.add_argument("--pages", type=Path, nargs="+", default=[], help="Markdown pages")
    options = parser.parse_args()
    try:
        written = write(options.sweep)
        for path in written:
            sys.stdout.write(f"{path}\n")
        table = options.sweep / f"{TABLE}.md"
        if options.pages and table not in written:
            raise DiscError(f"{options.sweep}: contains no finished run of {TABLE}.")
        for page in options.pages:
            pages.replace(page, TABLE, storage.read_text(table))
    except (DiscError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
