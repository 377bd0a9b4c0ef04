"""Detailed statistics: intervals, other scores, probability of improvement, profiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from disc import storage
from disc.report.figures import ALL, captioned, drawing
from disc.report.load import Group, Study
from disc.report.markup import (
    NOTHING,
    Cell,
    Column,
    Html,
    between,
    join,
    number,
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

Interval = tuple[float, float] | None


class Scores(NamedTuple):
    """An arm's runs on one task."""

    final: Values  # (runs,) mean of the last ten evaluations
    area: Values  # (runs,) mean height of the curve


Found = dict[tuple[str, str], Scores]  # by task and label


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
        parts.append(tag("p", by.summary, class_="note"))
        parts += [_together(study, found, by), _pairs(study, found, by), _profile(study, found, by)]
    return tag("details", *parts, class_="careful")


def scores(study: Study) -> Found:
    """Scores of all groups with finished runs."""
    finished = {key: group for key, group in study.groups.items() if group.finished}
    found = {key: _scores(group) for key, group in finished.items()}
    return {key: value for key, value in found.items() if value is not None}


def _scores(group: Group) -> Scores | None:
    curves = group.curves()
    try:
        return Scores(statistics.final(curves), statistics.areas(curves))
    except DiscError:
        return None


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
    summary += f". Left out, as this is not above 0: {', '.join(none)}." if none else "."
    summary += " Tasks with a small divisor dominate the mean, but not the interquartile mean."
    return References(values, summary)


def _interval(runs: Sequence[Values], statistic: Callable[[Any], float]) -> Interval:
    """The 95 % interval, if a task has at least two runs."""
    if max(len(task) for task in runs) < 2:
        return None
    return statistics.interval(runs, statistic)


def _with_interval(runs: Sequence[Values], statistic: Callable[[Any], float]) -> list[Cell]:
    value = statistic(runs)
    return [Cell(number(value), value), between(_interval(runs, statistic))]


def _headed(*names: str) -> list[Column]:
    """A column for each name and one for its interval."""
    pairs = ((Column(name, "number"), Column("95 %", "number")) for name in names)
    return list(itertools.chain.from_iterable(pairs))


def _each(study: Study, found: Found) -> Html:
    columns = [Column("task"), Column("arm"), Column("seeds", "number")]
    columns += _headed("final return", "interquartile mean", "area under the curve")
    rows = []
    for (task, arm), score in found.items():
        row = [Cell(task, task), Cell(arm, arm), Cell(len(score.final), len(score.final))]
        row += _with_interval([score.final], statistics.mean)
        row += _with_interval([score.final], statistics.interquartile_mean)
        rows.append(row + _with_interval([score.area], statistics.mean))
    caption = "Other scores: mean of the last ten evaluations, and mean height of the curve"
    note = (
        "Intervals are 95 % stratified-bootstrap intervals over runs; – if there is one seed. "
        "Only finished runs are counted here."
    )
    shown = table(captioned(study, caption), columns, rows)
    return join([shown, tag("p", note, class_="note")])


def _normalised(found: Found, by: References, arm: str) -> dict[str, Scores]:
    """An arm's scores by task, divided by the references."""
    return {
        task: Scores(score.final / by.values[task], score.area / by.values[task])
        for (task, label), score in found.items()
        if label == arm and task in by.values
    }


def _arms(study: Study, found: Found, by: References) -> dict[str, dict[str, Scores]]:
    every = {arm.label: _normalised(found, by, arm.label) for arm in study.experiment.arms}
    return {label: tasks for label, tasks in every.items() if tasks}


def _together(study: Study, found: Found, by: References) -> Html:
    columns = [Column("arm"), Column("tasks", "number"), Column("runs", "number")]
    columns += _headed("mean", "interquartile mean", "area under the curve")
    rows, arms = [], _arms(study, found, by)
    for arm, tasks in arms.items():
        finals = [score.final for score in tasks.values()]
        count = sum(map(len, finals))
        row = [Cell(arm, arm), Cell(len(tasks), len(tasks)), Cell(count, count)]
        row += _with_interval(finals, statistics.mean)
        row += _with_interval(finals, statistics.interquartile_mean)
        rows.append(row + _with_interval([x.area for x in tasks.values()], statistics.mean))
    parts = [table(captioned(study, "Normalised scores over all tasks"), columns, rows, 1)]
    if len({frozenset(tasks) for tasks in arms.values()}) > 1:
        text = "The arms have runs on different tasks, so compare pairs instead of these rows."
        parts.append(tag("p", text, class_="note"))
    return join(parts)


def _pairs(study: Study, found: Found, by: References) -> Html:
    columns = [Column("arm"), Column("against"), *_headed("probability of improvement")]
    columns += [Column("common tasks", "number")]
    rows, arms = [], _arms(study, found, by)
    if len(arms) > PAIRED:
        return tag("p", f"Pairs are omitted for more than {PAIRED} arms.", class_="note")
    for (one, its), (other, others) in itertools.combinations(arms.items(), 2):
        both = [task for task in its if task in others]
        if both:
            x, y = ([tasks[task].final for task in both] for tasks in (its, others))
            chance = statistics.probability_of_improvement(x, y)
            alone = all(len(task) < 2 for task in (*x, *y))
            ends = NOTHING if alone else between(statistics.improvement_interval(x, y))
            row = [Cell(one, one), Cell(other, other), Cell(number(chance), chance), ends]
            rows.append([*row, Cell(len(both), len(both))])
    if not rows:
        return Html("")
    caption = "Probability that a run of one arm ends higher than a run of the other"
    return table(captioned(study, caption), columns, rows)


def _profile(study: Study, found: Found, by: References) -> Html:
    arms = {
        label: [score.final for score in tasks.values()]
        for label, tasks in _arms(study, found, by).items()
    }
    everything = np.concatenate([task for tasks in arms.values() for task in tasks])
    low, high = min(0.0, float(everything.min())), 1.05 * max(1.0, float(everything.max()))
    thresholds = np.linspace(max(low, LOWEST), min(high, HIGHEST), 121)
    order = [arm.label for arm in study.experiment.arms]
    lines = []
    for label, tasks in arms.items():
        style = Style(order.index(label), order.index(label))
        share = statistics.performance_profile(tasks, thresholds)
        band = statistics.profile_band(tasks, thresholds)
        seeds = max(map(len, tasks))
        lines.append(Line(label, style, thresholds, share, *band, seeds))
    axes = Axes("share of runs above", "normalised score", interval=True, zero=False)
    title = captioned(study, "Performance profiles")
    how = "Share of runs with a higher score, tasks weighted equally; band: 95 % interval."
    outside = int(((everything < LOWEST) | (everything > HIGHEST)).sum())
    if outside:
        how += f" {several(outside, 'run')} outside {short(LOWEST)} to {short(HIGHEST)}, not drawn."
    return drawing(title, how, {ALL: lines}, axes)
