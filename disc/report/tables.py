"""The table of an experiment: our results next to the paper's, with a verdict."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from disc.report.figures import captioned
from disc.report.load import Group, Study
from disc.report.markup import (
    NOTHING,
    Column,
    Html,
    TableCell,
    between,
    join,
    measured,
    note,
    numeric,
    several,
    table,
    tag,
)
from disc.report.svg import short
from disc.study import statistics
from disc.study.statistics import MaxAverage
from disc.types import DiscError

PAPER_TASKS = (
    "The paper's tasks are Gym -v1 on MuJoCo 1.3, today's are Gymnasium -v5 (Humanoid has 348 "
    "observations instead of 376, Ant 105 instead of 111), so our numbers and the paper's are not "
    "directly comparable."
)
MARKS = {
    "above": "▲",
    "within": "●",
    "below": "▼",
    "apart": "◇",
    "missing": "○",
    "none": "✓",
}  # so that verdicts do not rely on colour alone
REUSED_NOTHING = "reused no batch"
TEXTS = {"above": "at or above", "within": "within the spread", "below": "below"}


class Verdict(NamedTuple):
    """The comparison of a result with the paper's."""

    kind: str  # one of MARKS
    text: str
    more: str = ""


class Row(NamedTuple):
    """The results of an arm on a task."""

    group: Group
    ours: MaxAverage | None
    interval: tuple[float, float] | None  # of the mean over seeds
    seeds: int  # used
    final: float  # mean of the last ten evaluations, over seeds
    area: float  # mean height of the curve, over seeds
    paper: list[float]  # the value and, if given, its ±


def compare(value: float, spread: float, paper: list[float]) -> str:
    """above, within or below the paper's number: [value] or [value, ±]."""
    if value >= paper[0]:
        return "above"
    reach = value + spread >= paper[0] - (paper[1] if len(paper) > 1 else 0.0)
    return "within" if reach else "below"


def verdict(row: Row) -> Verdict:
    """The verdict, or the reason why a result is not comparable."""
    group = row.group
    if row.ours is None:
        begun = bool(group.everything)
        return Verdict("missing", "no evaluation yet" if begun else "not run yet")
    reasons = ["shortened"] if group.shortened else []
    reasons += ["unfinished"] if not group.finished else []
    early = sum(run.stopped_early for run in group.runs)
    reasons += ["stopped early"] if early and row.paper else []
    left = f"{several(len(group.unfinished), 'unfinished run')} left out"
    notes = [left] if group.finished and group.unfinished else []
    more = "; ".join([*notes, *([f"{several(early, 'run')} stopped early"] if early else [])])
    if reasons:
        against = "not comparable: " if row.paper else ""
        return Verdict("apart", against + " and ".join(reasons), more)
    if not row.paper:
        return Verdict("none", "finished", more)
    kind = compare(row.ours.value, row.ours.spread, row.paper)
    return Verdict(kind, TEXTS[kind], more)


def rows(study: Study) -> list[Row]:
    """One row per task and arm, in the experiment's order."""
    paper = study.experiment.paper
    return [
        _row(group, [float(x) for x in paper.get(label, {}).get(task, [])])
        for (task, label), group in study.groups.items()
    ]


def _row(group: Group, paper: list[float]) -> Row:
    curves = group.curves()
    try:
        ours = statistics.max_average_return(curves)
    except DiscError:  # no evaluated run
        return Row(group, None, None, 0, math.nan, math.nan, paper)
    there = [statistics.resample(*curve, np.array([ours.step])) for curve in curves]
    scores = [np.concatenate(there)]
    interval = statistics.interval(scores, statistics.mean) if len(curves) > 1 else None
    final, area = (float(f(curves).mean()) for f in (statistics.final, statistics.areas))
    return Row(group, ours, interval, len(curves), final, area, paper)


def main_table(study: Study) -> Html:
    """Max average return of every arm on every task, and the number that reach the paper's."""
    found, paper = rows(study), bool(study.experiment.paper)
    columns = [Column("task"), Column("arm"), Column("verdict" if paper else "state", "verdict")]
    columns += numeric("ours", *(["paper"] if paper else []), "95 % interval", "last ten", "area")
    columns += numeric("seeds", "steps", "evaluated every", "best at")
    caption = captioned(study, "Max average return, ± standard deviation over seeds")
    shown = table(caption, columns, [_cells(row, paper) for row in found])
    return join([tag("p", tally(found)) if paper else "", shown, note(_explained(paper))])


def _cells(row: Row, paper: bool) -> list[object]:
    group, judged = row.group, verdict(row)
    arm = TableCell(tag("span", group.arm, tag("small", REUSED_NOTHING)), group.arm)
    mark = tag("span", MARKS[judged.kind], class_="symbol", aria_hidden="true")
    shown = [mark, f" {judged.text}", tag("small", judged.more) if judged.more else ""]
    ours = [NOTHING] * 4
    if row.ours:
        best = measured(row.ours.value, row.ours.spread if row.seeds > 1 else None)
        at = TableCell(short(row.ours.step), row.ours.step)
        ours = [best, measured(row.final), measured(row.area), at]
    theirs = measured(row.paper[0], *row.paper[1:2]) if row.paper else NOTHING
    planned = f" of {group.seeds}" if row.seeds < group.seeds else ""
    steps = TableCell(short(group.steps), group.steps)
    if group.unfinished and not group.finished:
        done = min(run.steps for run in group.runs)
        steps = TableCell(f"{short(done)} of {short(group.steps)}", done)
    return [
        group.task,
        arm if group.reused_nothing else group.arm,
        TableCell(tag("span", *shown, class_=f"is-{judged.kind}"), list(MARKS).index(judged.kind)),
        ours[0],
        *([theirs] if paper else []),
        between(row.interval),
        *ours[1:3],
        TableCell(f"{row.seeds}{planned}", row.seeds),
        steps,
        TableCell(grids(group), group.eval_every[0]) if row.ours else NOTHING,
        ours[3],
    ]


def grids(group: Group) -> str:
    """Steps between evaluations of a group's runs, as text."""
    return ", ".join(f"{steps:,}" for steps in group.eval_every)


def tally(found: list[Row]) -> str:
    """A sentence with the number of results per verdict."""
    counted = Counter(verdict(row).kind for row in found if row.paper)
    names = {**TEXTS, "apart": "not comparable yet", "missing": "not run yet"}
    parts = [f"{counted[kind]} {name}" for kind, name in names.items() if counted[kind]]
    return f"Of the paper's {several(sum(counted.values()), 'number')}: {', '.join(parts)}."


def _explained(paper: bool) -> str:
    how = (
        "Max average return: the mean over seeds of each run's last evaluation at or before a "
        "point of a grid of 4,000 steps, without smoothing and without the first 20 points (a "
        "fifth of a short run); then the maximum over time, which is at the step in the last "
        "column. ± is the standard deviation over seeds at that step, and the interval is a "
        "bootstrap of the mean over seeds. A maximum over time favours arms with few seeds, and "
        "rarer evaluations tend to lower it; the mean of the last ten evaluations, which span more "
        "steps where evaluations are rarer, and the area under the curve (as a mean height) do not "
        "depend on the number of seeds. An arm that reused no batch is in effect the same "
        "algorithm without a replay."
    )
    if not paper:
        return how
    return (
        f"{how} At or above: ours is at least the paper's mean. Within the spread: ours plus its "
        "deviation is at least the paper's mean minus the paper's deviation, if given. "
        f"{PAPER_TASKS}"
    )
