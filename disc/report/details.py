"""Detailed statistics: intervals, other scores, probability of improvement, profiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from disc import storage
from disc.report.figures import ALL, captioned, drawing
from disc.report.load import Study
from disc.report.markup import (
    NOTHING,
    Column,
    Html,
    between,
    join,
    measured,
    note,
    numeric,
    several,
    some,
    table,
    tag,
)
from disc.report.svg import Axes, Line, Style, short
from disc.study import statistics
from disc.study.statistics import Values
from disc.types import DiscError

DISC = "DISC"  # the arm whose value in the paper normalises scores
LOWEST, HIGHEST = -1.0, 3.0  # range of normalised scores in a profile
PAIRED = 20  # maximum number of arms for pairwise comparison


class Scores(NamedTuple):
    """An arm's runs on one task."""

    final: Values  # (runs,) mean of the last ten evaluations
    area: Values  # (runs,) mean height of the curve


Found = dict[tuple[str, str], Scores]  # by task and label
Arms = dict[str, dict[str, Scores]]  # normalised, by label and task


class References(NamedTuple):
    """The divisors of scores, and their description."""

    values: dict[str, float]  # by task
    summary: str


def careful(study: Study) -> Html:
    """The collapsed section with detailed statistics."""
    found = scores(study)
    if not found:
        return Html("")
    by = references(study, found)
    parts = [tag("summary", "Detailed statistics"), _each(study, found)]
    if by.values:
        arms = _normalised(study, found, by)
        parts += [note(by.summary), _together(study, arms), _pairs(study, arms)]
        parts.append(_profile(study, arms))
    return tag("details", *parts, class_="careful")


def scores(study: Study) -> Found:
    """Scores of all groups with finished runs."""
    found: Found = {}
    for key, group in study.groups.items():
        if group.finished:
            curves = group.curves()
            with suppress(DiscError):  # a run without evaluations
                found[key] = Scores(statistics.final(curves), statistics.areas(curves))
    return found


def references(study: Study, found: Found) -> References:
    """For every task, the paper's value of DISC, or else the best arm's mean, if above 0."""
    values, ours, none = {}, [], []
    for task in study.experiment.tasks:
        means = [float(x.final.mean()) for (of_task, _), x in found.items() if of_task == task]
        paper = study.experiment.paper.get(DISC, {}).get(task)
        if not means:
            continue
        value = float(paper[0]) if paper else max(means)
        if value < 1 / storage.DRAWN:
            none.append(task)
            continue
        values[task] = value
        if not paper:
            ours.append(task)
    summary = "Scores below are final returns, normalised per task: divided by "
    if len(ours) < len(values):
        summary += "the paper's value of DISC"
        summary += f", on {some(ours, 9)} by the best arm's mean" if ours else ""
    else:
        summary += "the best arm's mean"
    summary += f". Left out, because this is not above 0: {', '.join(none)}." if none else "."
    summary += " Tasks with a small divisor dominate the mean, but not the interquartile mean."
    return References(values, summary)


def _with_interval(runs: Sequence[Values], statistic: Callable[[Any], float]) -> list[Any]:
    """A statistic and its 95 % interval, if a task has at least two runs."""
    ends = statistics.interval(runs, statistic) if max(map(len, runs)) > 1 else None
    return [measured(statistic(runs)), between(ends)]


def _summarised(tasks: Collection[Scores]) -> list[Any]:
    """The cells of the columns in `SUMMARISED`."""
    finals, areas = [x.final for x in tasks], [x.area for x in tasks]
    middle = _with_interval(finals, statistics.interquartile_mean)
    first, last = (_with_interval(x, statistics.mean) for x in (finals, areas))
    return [*first, *middle, *last]


SUMMARISED = ("95 %", "interquartile mean", "95 %", "area under the curve", "95 %")


def _each(study: Study, found: Found) -> Html:
    columns = [Column("task"), Column("arm"), *numeric("seeds", "final return", *SUMMARISED)]
    rows = [[*key, len(score.final), *_summarised([score])] for key, score in found.items()]
    caption = "Other scores: mean of the last ten evaluations, and mean height of the curve"
    text = (
        "Intervals are 95 % stratified-bootstrap intervals over runs; – if there is one seed. "
        "Only finished runs are counted here."
    )
    return join([table(captioned(study, caption), columns, rows), note(text)])


def _normalised(study: Study, found: Found, by: References) -> Arms:
    """The scores of each arm divided by the references, without tasks that have none."""
    arms: Arms = {arm.label: {} for arm in study.experiment.arms}
    for (task, label), score in found.items():
        if task in by.values:
            arms[label][task] = Scores(*(x / by.values[task] for x in score))
    return {label: tasks for label, tasks in arms.items() if tasks}


def _together(study: Study, arms: Arms) -> Html:
    columns = [Column("arm"), *numeric("tasks", "runs", "mean", *SUMMARISED)]
    rows = [
        [arm, len(tasks), sum(len(x.final) for x in tasks.values()), *_summarised(tasks.values())]
        for arm, tasks in arms.items()
    ]
    shown = table(captioned(study, "Normalised scores over all tasks"), columns, rows, 1)
    if len({frozenset(tasks) for tasks in arms.values()}) == 1:
        return shown
    text = "The arms have runs on different tasks, so compare pairs instead of these rows."
    return join([shown, note(text)])


def _pairs(study: Study, arms: Arms) -> Html:
    if len(arms) > PAIRED:
        return note(f"Pairs are omitted for more than {PAIRED} arms.")
    rows = []
    for (one, its), (other, others) in itertools.combinations(arms.items(), 2):
        both = [task for task in its if task in others]
        if both:
            x, y = ([tasks[task].final for task in both] for tasks in (its, others))
            chance = measured(statistics.probability_of_improvement(x, y))
            alone = all(len(task) < 2 for task in (*x, *y))
            ends = NOTHING if alone else between(statistics.improvement_interval(x, y))
            rows.append([one, other, chance, ends, len(both)])
    if not rows:
        return Html("")
    caption = "Probability that a run of one arm ends higher than a run of the other"
    columns = numeric("probability of improvement", "95 %", "common tasks")
    return table(captioned(study, caption), [Column("arm"), Column("against"), *columns], rows)


def _profile(study: Study, arms: Arms) -> Html:
    everything = np.concatenate([x.final for tasks in arms.values() for x in tasks.values()])
    low, high = min(0.0, float(everything.min())), 1.05 * max(1.0, float(everything.max()))
    thresholds = np.linspace(max(low, LOWEST), min(high, HIGHEST), 121)
    order = [arm.label for arm in study.experiment.arms]
    lines = []
    for label, tasks in arms.items():
        finals = [score.final for score in tasks.values()]
        style = Style(order.index(label), order.index(label))
        share = statistics.performance_profile(finals, thresholds)
        band = statistics.profile_band(finals, thresholds)
        lines.append(Line(label, style, thresholds, share, *band, max(map(len, finals))))
    axes = Axes("share of runs above", "normalised score", interval=True, zero=False)
    title = captioned(study, "Performance profiles")
    how = "Share of runs with a higher score, tasks weighted equally; band: 95 % interval."
    outside = int(((everything < LOWEST) | (everything > HIGHEST)).sum())
    if outside:
        how += f" {several(outside, 'run')} outside {short(LOWEST)} to {short(HIGHEST)}, not drawn."
    return drawing(title, how, {ALL: lines}, axes)
