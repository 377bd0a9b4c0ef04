"""The figures of a report: panels, a legend, and the values as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from disc.report import svg
from disc.report.load import Group, Study
from disc.report.markup import (
    NOTHING,
    Column,
    Html,
    TableCell,
    join,
    measured,
    numeric,
    several,
    some,
    table,
    tag,
)
from disc.report.svg import Axes, Line, Style
from disc.study import statistics
from disc.study.spec import Arm, Figure
from disc.types import DiscError

SHARES = (0.25, 0.5, 0.75, 1.0)  # of the longest curve: the columns of the table

ALL = "all tasks"  # a single panel, which needs no title

Panels = dict[str, list[Line]]


def figures(study: Study) -> Html:
    """All figures of an experiment."""
    return join(_figure(study, figure) for figure in study.experiment.figures)


def captioned(study: Study, text: str) -> str:
    """A caption, which mentions if runs are shortened."""
    short = study.experiment.shortened
    return f"{text} ({short})" if short else text


def drawing(title: str, how: str, panels: Panels, axes: Axes) -> Html:
    """A figure: its caption, a legend, its panels."""
    drawn = [
        tag(
            "div",
            tag("p", name, class_="panel-title") if name != ALL else "",
            tag(
                "div",
                svg.panel(lines, axes, f"{title}, {name}"),
                tag("div", class_="readout", hidden=True, aria_hidden="true"),
                class_="plot",
            ),
            class_="panel",
        )
        for name, lines in panels.items()
    ]
    return tag(
        "figure",
        tag("figcaption", tag("strong", title), " ", tag("span", how, class_="how")),
        legend(panels),
        tag("div", *drawn, class_="panels"),
    )


def legend(panels: Panels) -> Html:
    """The labels of the curves, with the number of seeds."""
    seeds: dict[tuple[str, Style], list[int]] = {}
    for lines in panels.values():
        for line in lines:
            seeds.setdefault((line.label, line.style), []).append(line.seeds)
    entries = [
        tag("li", svg.swatch(style), " ", label, tag("small", f" {_seeds(counts)}"))
        for (label, style), counts in seeds.items()
    ]
    return tag("ul", *entries, class_="legend")


def _seeds(counts: Sequence[int]) -> str:
    few, many = min(counts), max(counts)
    return several(many, "seed") if few == many else f"{few} to {many} seeds"


def _figure(study: Study, figure: Figure) -> Html:
    experiment = study.experiment
    arms = [arm for arm in experiment.arms if not figure.arms or arm.label in figure.arms]
    panels = _panels(study, figure, arms)
    title = captioned(study, figure.title)
    if not panels:
        none = tag("p", "No data yet.")
        return tag("figure", tag("figcaption", tag("strong", title)), none)
    window = f", trailing mean of {figure.window} points" if figure.window > 1 else ""
    how = f"Mean over seeds, band: ± one standard deviation{window}."
    groups = [x for x in study.groups.values() if x.arm in {arm.label for arm in arms}]
    missing = [
        task for task in experiment.tasks if not any(x.runs for x in groups if x.task == task)
    ]
    how += f" Not run yet: {', '.join(missing)}." if missing else ""
    half = [f"{x.arm} on {x.task}" for x in groups if x.runs and not x.finished]
    how += f" Unfinished: {some(half)}." if half else ""
    axes = Axes(figure.label, line=figure.line)
    numbers = tag("details", tag("summary", "The curves as numbers"), _numbers(title, panels))
    return join([drawing(title, how, panels, axes), numbers])


def _panels(study: Study, figure: Figure, arms: Sequence[Arm]) -> Panels:
    """Curves by panel."""
    panels: Panels = {}
    for task in study.experiment.tasks:
        found = [
            _line(study, figure, task, arm, metric, arms)
            for arm in arms
            if (task, arm.label) in study.groups
            for metric in figure.metric
        ]
        lines = [line for line in found if line is not None]
        if lines:
            panels.setdefault(ALL if figure.together else task, []).extend(lines)
    return panels


def _line(
    study: Study, figure: Figure, task: str, arm: Arm, metric: str, arms: Sequence[Arm]
) -> Line | None:
    """One curve, with a label that distinguishes it from the others in its panel.

    An arm has the same style in all figures, unless there are more arms than colours.
    """
    every = study.experiment.arms
    order = every if len(every) <= svg.COLORS else arms
    parts = [(task, study.experiment.tasks.index(task))] if figure.together else []
    if len(arms) > 1 or not (parts or len(figure.metric) > 1):
        parts.append((arm.label, order.index(arm)))
    if len(figure.metric) > 1:
        parts.append((metric, figure.metric.index(metric)))
    style = Style(parts[0][1], parts[-1][1])
    label = ", ".join(name for name, _ in parts)
    return curve(study.groups[task, arm.label], metric, figure.window, label, style)


def curve(group: Group, metric: str, window: int, label: str, style: Style) -> Line | None:
    """The mean over seeds and its deviation, thinned; None if there is no data."""
    found = group.curves(metric)
    try:
        steps, mean, spread = statistics.across(found, window)
    except DiscError:  # no runs, or no steps in common
        return None
    kept = svg.thin(len(steps))
    steps, mean, spread = steps[kept], mean[kept], spread[kept]
    return Line(label, style, steps, mean, mean - spread, mean + spread, len(found))


def _numbers(title: str, panels: Panels) -> Html:
    """A table of all curves at some steps."""
    columns = [Column("panel"), Column("curve"), *numeric("seeds")]
    columns += numeric(*(f"at {100 * share:.0f} %" for share in SHARES), "of steps")
    rows: list[list[object]] = []
    for name, lines in panels.items():
        longest = max(float(line.steps[-1]) for line in lines)
        for line in lines:
            values = [_value(line, share * longest) for share in SHARES]
            last = TableCell(f"{longest:,.0f}", longest)
            rows.append([name, line.label, line.seeds, *values, last])
    return table(f"{title}: mean ± standard deviation", columns, rows)


def _value(line: Line, step: float) -> TableCell:
    """The last value at or before a step, unless the curve ended well before it."""
    index = int(np.searchsorted(line.steps, step, side="right")) - 1
    if index < 0 or line.steps[-1] < 0.98 * step:
        return NOTHING
    return measured(float(line.mean[index]), float(line.high[index] - line.mean[index]))
