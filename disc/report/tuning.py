"""The report of `disc tune`: the results on fresh seeds, then what the search did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from disc import storage
from disc.report import load
from disc.report.figures import figures
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
from disc.report.page import document
from disc.report.svg import Style, short, swatch, ticks
from disc.study import confirm
from disc.study.confirm import Result, TuningOutcome
from disc.study.space import Choices, Range, label
from disc.study.trials import Trial
from disc.study.tune import FRESH, Tuning, name
from disc.types import DiscError

PAGE = "tuning.html"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 900, 60, 40, 30, 40
TALL = 300  # height of a drawing
MARK = 4.0  # radius
RESULTS = (
    "A score is the mean of the last evaluations of a run; ± is the standard deviation over seeds. "
    "The difference is from the defaults, with Welch's t interval: 95 % for all rows together, to "
    "correct for choosing the best of several."
)
BIASED = (
    "Scores below are those of the search, on its own seeds. The best of many trials was partly "
    "lucky there, so they say which trials to test, not how good they are."
)
HISTORY = (
    "A filled circle is a trial that ran to the end, a hollow one a trial that was paused, with "
    "its score at that step, a cross a failed trial. The line is the best so far, the dashed line "
    "the defaults."
)
STRANDS = (
    "One line per trial: coloured lines ran on fresh seeds, the thick dashed line has the "
    "defaults, thin dashed lines were paused and have no score."
)
IMPORTANCES = (
    "How far the values of the best 30 % of trials differ from those of all trials, by PED-ANOVA; "
    "the sum is 1. From a few dozen trials this is a rough hint."
)


def write(root: Path, outcome: TuningOutcome) -> Path:
    """Write the page of a study that has ended, and return its path."""
    storage.write_text(root / PAGE, page(root, outcome))
    return root / PAGE


def page(root: Path, outcome: TuningOutcome) -> str:
    """The whole file."""
    title = f"Tuning: {outcome.tuning.experiment.title}"
    parts = [
        tag("p", tag("strong", outcome.sentence), class_="summary"),
        tag("p", summary(outcome)),
        tag("section", tag("h2", "Results on fresh seeds"), _results(outcome), _curves(root)),
        tag("section", tag("h2", "The search"), note(BIASED), *_search(root, outcome)),
    ]
    return document(title, parts, "disc tune")


def summary(outcome: TuningOutcome) -> str:
    """A summary of the study."""
    tuning, plan = outcome.tuning, outcome.tuning.experiment
    ended = [trial.outcome for trial in outcome.trials]
    arm = plan.arms[0]
    counts = ", ".join(f"{ended.count(x)} {x}" for x in ("complete", "paused", "failed"))
    seeds, again = (", ".join(map(str, x)) for x in (plan.seeds, tuning.fresh))
    return (
        f"{arm.algorithm} (preset {arm.preset}) on {tuning.task}, {tuning.steps:,} steps per run. "
        f"{several(len(ended), 'trial')} on the seeds {seeds}: {counts}. Fresh seeds: {again}. "
        f"A score is the mean of the last {several(tuning.last, 'evaluation')} of "
        f"{several(plan.eval_episodes, 'episode')}, one every "
        f"{plan.eval_every[tuning.task]:,} steps."
    )


def _results(outcome: TuningOutcome) -> Html:
    names = list(outcome.tuning.space)
    columns = [
        Column("arm"),
        *numeric("seeds", "score", "difference", "interval"),
        *map(Column, names),
    ]
    rows = [
        [*_result(result), *_values(outcome.tuning, result.trial)] for result in outcome.results
    ]
    failed = [f"{x.arm.label} failed: {x.reason}" for x in outcome.results if x.reason]
    return join([table("Fresh seeds", columns, rows, 1), *map(note, failed), note(RESULTS)])


def _result(result: Result) -> list[object]:
    if not result.returns:
        return [result.arm.label, 0, "failed", NOTHING, NOTHING]
    known = not math.isnan(result.difference)
    return [
        result.arm.label,
        len(result.returns),
        measured(result.mean, result.spread),
        measured(result.difference) if known else NOTHING,
        between(result.interval),
    ]


def _values(tuning: Tuning, trial: Trial) -> list[TableCell]:
    values = {**tuning.defaults, **trial.values}
    return [TableCell(label(values[x]), _key(values[x])) for x in tuning.space]


def _key(value: Any) -> float | str:
    """The sort key of a column."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number else label(value)


def _curves(root: Path) -> Html:
    try:
        return join(figures(study) for study in load.load(root / FRESH).studies)
    except DiscError:  # no run got as far as a row
        return note("No curves, because no run has a record.")


def _search(root: Path, outcome: TuningOutcome) -> list[Html]:
    best = [result.trial.number for result in outcome.results[1:]]
    entries = [
        tag("li", swatch(Style(i, i)), f" {result.arm.label}")
        for i, result in enumerate(outcome.results)
        if i
    ]
    legend = tag("ul", *entries, class_="legend")
    parts = [
        _figure("History", HISTORY, history(outcome.tuning, outcome.trials)),
        _figure(
            "Options and scores",
            STRANDS,
            join([legend, strands(outcome.tuning, outcome.trials, best)]),
        ),
    ]
    if outcome.importances:
        parts.append(_figure("Importance of the options", IMPORTANCES, bars(outcome.importances)))
    return [*parts, _trials(root, outcome)]


def _figure(title: str, how: str, drawing: Html) -> Html:
    caption = tag("figcaption", tag("strong", title), " ", tag("span", how, class_="how"))
    return tag("figure", caption, tag("div", drawing, class_="chart"))


def _svg(height: float, described: str, parts: Sequence[Html]) -> Html:
    box = f"0 0 {WIDTH} {height:.0f}"
    return tag("svg", join(parts, "\n"), viewBox=box, role="img", aria_label=described)


def _text(text: str, x: float, y: float, kind: str = "tick") -> Html:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", class_=kind)


def history(tuning: Tuning, trials: Sequence[Trial]) -> Html:
    """The score of each trial, the best so far, and the defaults."""
    scored = [trial.scores[-1] for trial in trials if trial.scores]
    low, high = min(scored, default=0.0), max(scored, default=1.0)
    margin = 0.05 * (high - low) or 1.0
    low, high, base, end = low - margin, high + margin, TALL - BOTTOM, WIDTH - RIGHT

    def x(number: float) -> float:
        return LEFT + (number + 0.5) / len(trials) * (end - LEFT)

    def y(score: float) -> float:
        return base - (score - low) / (high - low) * (base - TOP)

    parts = [
        _text("score", 0, 14, "name"),
        _text("trial", (LEFT + end) / 2, TALL - 4, "name middle"),
    ]
    for tick in ticks(low, high):
        parts.append(tag("path", d=f"M{LEFT},{y(tick):.1f}H{end}", class_="grid"))
        parts.append(_text(short(tick), LEFT - 6, y(tick) + 4, "tick end"))
    for tick in ticks(0, len(trials) - 1, 12):
        if tick.is_integer():
            parts.append(_text(f"{tick:.0f}", x(tick), base + 17, "tick middle"))
    parts.append(tag("path", d=f"M{LEFT},{base}H{end}", class_="axis"))
    if trials[0].outcome == "complete":
        parts.append(tag("path", d=f"M{LEFT},{y(trials[0].scores[-1]):.1f}H{end}", class_="line"))
    best, path = -math.inf, ""
    for trial in trials:
        if trial.outcome == "complete" and trial.scores[-1] > best:
            start = f"M{x(trial.number):.1f}," if not path else f"H{x(trial.number):.1f}V"
            best = trial.scores[-1]
            path += f"{start}{y(best):.1f}"
    if path:
        parts.append(tag("path", d=f"{path}H{end}", class_="curve c0"))
    parts += [_point(tuning, trial, x(trial.number), y, base) for trial in trials]
    return _svg(TALL, "Scores of the trials in their order", parts)


def _point(tuning: Tuning, trial: Trial, x: float, y: Any, base: float) -> Html:
    """A trial's mark, which names the trial under the pointer."""
    if trial.outcome == "failed" or not trial.scores:
        cross = f"M{x - 4:.1f},{base - 8}l8,8m0,-8l-8,8"
        described = tag("title", f"{name(trial)} failed: {trial.reason}")
        return tag("path", described, d=cross, class_="cross")
    steps = tuning.rungs[len(trial.scores) - 1]
    described = tag("title", f"{name(trial)}: {trial.scores[-1]:,.4g} at {steps:,} steps")
    kind = "dot c1" if trial.outcome == "complete" else "hollow"
    at = {"cx": f"{x:.1f}", "cy": f"{y(trial.scores[-1]):.1f}", "r": MARK}
    return tag("circle", described, class_=kind, **at)


def strands(tuning: Tuning, trials: Sequence[Trial], best: Sequence[int]) -> Html:
    """Parallel coordinates: an axis for each option, and one for the score."""
    shown = [trial for trial in trials if trial.outcome in ("complete", "paused")]
    done = [trial.scores[-1] for trial in shown if trial.outcome == "complete"]
    low, high = min(done, default=0.0), max(done, default=1.0)
    high = high if high > low else low + 1.0
    names = list(tuning.space)
    top, base = TOP + 30, TALL - 12
    gap = (WIDTH - LEFT - RIGHT - 20) / len(names)

    def y(share: float) -> float:
        return base - share * (base - top)

    parts = []
    for i, trial in enumerate(sorted(shown, key=lambda x: (x.number in best, not x.number))):
        values = {**tuning.defaults, **trial.values}
        inside = [(k, x) for k, x in enumerate(names) if tuning.space[x].holds(values[x])]
        points = [(LEFT + k * gap, y(_share(tuning.space[x], values[x]))) for k, x in inside]
        if trial.outcome == "complete":
            points.append((LEFT + len(names) * gap, y((trial.scores[-1] - low) / (high - low))))
        kind = _strand(trial, best)
        line = f"M{'L'.join(f'{a:.1f},{b:.1f}' for a, b in points)}"
        options = ", ".join(f"{x} = {label(values[x])}" for x in names)
        score = f"{trial.scores[-1]:,.4g}" if trial.outcome == "complete" else "paused"
        described = tag("title", f"{name(trial)}: {score}; {options}")
        parts.append((i, tag("path", described, d=line, class_=kind)))
    drawn = [part for _, part in parts]
    for k, option in enumerate([*names, "score"]):
        x, above = LEFT + k * gap, 12 + 16 * (k % 2)
        drawn.append(tag("path", d=f"M{x:.1f},{top}V{base}", class_="axis"))
        drawn.append(_text(option, x, above, "name middle"))
        if option == "score":
            marks = [((tick - low) / (high - low), short(tick)) for tick in ticks(low, high)]
        else:
            marks = _marks(tuning.space[option])
        drawn += [_text(text, x + 5, y(share) + 4) for share, text in marks]
    return _svg(TALL, "Options and scores of the trials", drawn)


def _strand(trial: Trial, best: Sequence[int]) -> str:
    if trial.number in best:
        return f"strand best c{1 + best.index(trial.number)}"  # as in the curves
    if not trial.number:
        return "strand defaults"
    return "strand paused" if trial.outcome == "paused" else "strand"


def _share(entry: Range | Choices, value: Any) -> float:
    """Where a value lies on its axis, from 0 to 1."""
    if isinstance(entry, Choices):
        return entry.values.index(value) / (len(entry.values) - 1)
    if entry.log:
        return math.log(value / entry.low) / math.log(entry.high / entry.low)
    return (value - entry.low) / (entry.high - entry.low)


def _marks(entry: Range | Choices) -> list[tuple[float, str]]:
    """The labels of an axis, and where they are."""
    if isinstance(entry, Choices):
        return [(_share(entry, x), label(x)) for x in entry.values]
    return [(0.0, f"{entry.low:g}"), (1.0, f"{entry.high:g}")]


def bars(importances: dict[str, float]) -> Html:
    """A bar for each option."""
    parts, row, start = [], 24, 190
    most = max(importances.values()) or 1.0
    for i, (option, value) in enumerate(importances.items()):
        y, width = 4 + i * row, value / most * (WIDTH - start - 80)
        parts.append(_text(option, start - 8, y + 14, "name end"))
        at = {"x": start, "y": y, "width": f"{max(width, 1):.1f}", "height": row - 6}
        parts.append(tag("rect", class_="bar", **at))
        parts.append(_text(f"{value:.2f}", start + width + 6, y + 14))
    return _svg(8 + row * len(importances), "Importance of the options", parts)


def _trials(root: Path, outcome: TuningOutcome) -> Html:
    """All trials."""
    tuning = outcome.tuning
    rungs = numeric(*(f"at {steps:,}" for steps in tuning.rungs))
    options = [Column(x) for x in tuning.space]
    last = Column("reason, or how to continue", "long command")
    columns = [Column("trial"), Column("outcome"), *rungs, *options, last]
    rows = []
    for trial in outcome.trials:
        missing = len(tuning.rungs) - len(trial.scores)
        scores = [*map(measured, trial.scores), *[NOTHING] * missing]
        own = TableCell(name(trial), trial.number)
        more: object = trial.reason or NOTHING
        if trial.outcome == "paused":
            commands = confirm.continue_commands(tuning, root, trial)
            more = TableCell(join((tag("code", x) for x in commands), "; "), "paused")
        rows.append([own, trial.outcome, *scores, *_values(tuning, trial), more])
    text = "A paused trial continues bit for bit as if it had not been paused."
    return join([table("All trials", columns, rows), note(text)])
