"""The report page: results next to the paper's, curves, and a list of all runs."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections import Counter
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from disc import storage
from disc._version import __version__
from disc.report import load
from disc.report.details import careful
from disc.report.figures import figures
from disc.report.load import Results, Run, Study
from disc.report.markup import (
    NOTHING,
    Column,
    Html,
    TableCell,
    join,
    measured,
    note,
    numeric,
    several,
    some,
    table,
    tag,
)
from disc.report.svg import short
from disc.report.tables import PAPER_TASKS, main_table

EVALUATIONS = (
    "Last and best are evaluated returns. The best of many evaluations is partly lucky, so its "
    "policy (best.disc) is evaluated again on other episodes when a run ends; ± is the standard "
    "deviation over these episodes."
)
FEW = 5  # number of seeds in the paper
SHOWN = ("disc-rl", "python", "jax", "numpy", "gymnasium", "mujoco", "box2d")


def write(root: Path, out: Path | None = None) -> Path:
    """Write the report on a directory of runs and return its path.

    Args:
        root: directory of a sweep, or of any runs.
        out: the file; `report.html` in the directory by default.

    Raises:
        DiscError: there is nothing to report on.
    """
    text = page(load.load(root))
    path = out or root / "report.html"
    storage.write_text(path, text)
    return path


def page(found: Results) -> str:
    """The whole file."""
    title = f"Report on {found.root.absolute().name}"
    return document(title, _sections(found), "disc report")


def document(title: str, sections: list[Html], made_by: str) -> str:
    """An HTML file with the style and the script of reports, which needs no network."""
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    allowed = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=allowed),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    ]
    toggle = tag("button", "Dark", type="button", id="theme", hidden=True)
    body = [
        tag("header", tag("h1", title), toggle),
        tag("main", *sections),
        tag("footer", tag("p", f"Made by {made_by}, disc-rl {__version__}.")),
        tag("script", script),
    ]
    whole = tag("html", tag("head", join(head, "\n")), tag("body", join(body, "\n")), lang="en")
    text = f"<!doctype html>\n{whole}\n"
    return text.encode(errors="backslashreplace").decode()  # JSON may contain lone surrogates


def _asset(name: str) -> Html:
    return Html(resources.files("disc.report").joinpath(name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    """The hash with which the content security policy allows only the page's style and script."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _sections(found: Results) -> list[Html]:
    parts = [tag("p", summary(found), class_="summary"), _box(found), _contents(found)]
    parts += [_study(study, i) for i, study in enumerate(found.studies)]
    return [*parts, tag("section", tag("h2", "All runs"), _all_runs(found), id="runs")]


def _contents(found: Results) -> Html:
    if len(found.studies) == 1:
        return Html("")
    names = [(f"e{i}", study.experiment.title) for i, study in enumerate(found.studies)]
    names.append(("runs", "All runs"))
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name in names]
    return tag("nav", tag("ul", *links), aria_label="Contents")


def _study(study: Study, index: int) -> Html:
    experiment = study.experiment
    short = f" – {experiment.shortened}" if experiment.shortened else ""
    parts = [tag("h2", f"{experiment.title}{short}")]
    if experiment.note:
        parts.append(tag("p", experiment.note))
    if experiment.table:
        parts += [tag("h3", f"Table{short}"), main_table(study), careful(study)]
    if experiment.figures:
        parts += [tag("h3", f"Figures{short}"), figures(study)]
    return tag("section", *parts, id=f"e{index}")


def summary(found: Results) -> str:
    """The number of runs, their versions and dates."""
    runs = list(found.runs.values())
    finished = sum(found.finished(run) for run in runs)
    here = f"{several(len(runs), 'run')} here"
    if found.asked:
        used, asked = len(found.used & found.asked), len(found.asked)
        here = f"{'All' if used == asked else f'{used:,} of'} {several(asked, 'planned run')} here"
        here += f", and {several(len(runs) - used, 'other')}" if len(runs) > used else ""
    parts = [f"{here}: {finished:,} finished, {len(runs) - finished:,} unfinished."]
    if found.left_out:
        parts.append(f"{len(found.left_out):,} left out, for the reasons below.")
    versions = [f"{name} {_versions(runs, name)}" for name in SHOWN if _versions(runs, name)]
    if versions:
        parts.append(f"Run with {', '.join(versions)}.")
    days = sorted(f"{datetime.fromtimestamp(run.written):%Y-%m-%d}" for run in runs)
    when = f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"
    return " ".join([*parts, f"Last updated {when}."])


def _versions(runs: list[Run], name: str) -> str:
    return " or ".join(sorted({version for run in runs for version in run.versions(name)}))


def _box(found: Results) -> Html:
    warned = [tag("li", text) for text in warnings(found)]
    if not warned:
        return Html("")
    return tag("aside", tag("h2", "Warnings"), tag("ul", *warned), class_="warnings")


def warnings(found: Results) -> list[str]:
    """Limitations of the results."""
    warned = [*_shortened(found), *_few(found), *_differing(found), *_unfinished(found)]
    for study in found.studies:
        for text, count in Counter(study.otherwise).items():
            runs, name = several(count, "run"), study.experiment.name
            warned.append(f"{name}: {runs} evaluated differently than planned: {text}.")
    if any(study.experiment.table and study.experiment.paper for study in found.studies):
        warned.append(PAPER_TASKS)
    if found.strays:
        paths = some([str(run.path) for run in found.strays])
        warned.append(f"Not part of an experiment, so listed only at the end: {paths}.")
    return warned + [f"Left out: {entry.path} – {entry.reason}." for entry in found.left_out]


def _shortened(found: Results) -> list[str]:
    names: dict[str, list[str]] = {}
    for study in found.studies:
        if study.experiment.shortened:
            names.setdefault(study.experiment.shortened, []).append(study.experiment.name)
    end = "not comparable with full runs."
    return [f"{', '.join(some)}: {short}; {end}" for short, some in names.items()]


def _few(found: Results) -> list[str]:
    few = [x for x in found.groups if 0 < len(x.runs) < FEW]
    names = dict.fromkeys(f"{x.arm} on {x.task}: {len(x.runs)}" for x in few)
    text = f"Fewer than five seeds ({some(list(names))}); spreads and intervals are imprecise."
    return [text] if few else []


def _differing(found: Results) -> list[str]:
    """Packages whose versions differ between the runs of an experiment."""
    warned = []
    for package, name in (("mujoco", "MuJoCo"), ("gymnasium", "Gymnasium")):
        differing = [x for x in found.studies if " or " in _versions(x.runs, package)]
        if differing:
            names = ", ".join(study.experiment.name for study in differing)
            runs = [run for study in differing for run in study.runs]
            versions = _versions(runs, package)
            warned.append(f"The version of {name} differs between runs of {names}: {versions}.")
    return warned


def _unfinished(found: Results) -> list[str]:
    paths = sorted({str(run.path) for group in found.groups for run in group.unfinished})
    text = (
        f"{several(len(paths), 'run')} unfinished ({some(paths)}): left out if the same arm has "
        "finished runs on the task, otherwise used up to the current step."
    )
    return [text] if paths else []


def _all_runs(found: Results) -> Html:
    labels = {
        run.path: (group.task, group.arm)
        for study in reversed(found.studies)
        for group in study.groups.values()
        for run in group.everything
    }
    columns = [Column("task"), Column("arm")]
    columns += numeric("seed", "steps", "planned", "seconds")
    columns += [*numeric("last", "best", "best at", "best (re-evaluated)"), Column("commit")]
    columns += [Column("machine", "long"), Column("versions", "long")]
    columns += [Column("command", "long command"), Column("resumed", "long")]
    names = {path: labels.get(path) or _stray(run) for path, run in found.runs.items()}
    order = sorted(found.runs.values(), key=lambda run: (*names[run.path], run.config["seed"]))
    rows = [_run(run, *names[run.path], found) for run in order]
    return join([table("All runs, with their commands", columns, rows), note(EVALUATIONS)])


def _stray(run: Run) -> tuple[str, str]:
    return run.config["env_name"], f"{run.config['algorithm']} (no experiment)"


def _run(run: Run, task: str, arm: str, found: Results) -> list[object]:
    config = run.config
    planned = found.planned[run.path]
    machine = _dict(config.get("machine"))
    parts = [str(machine[x]) for x in ("processor", "system", "device") if machine.get(x)]
    cores = f", {machine['cores']} cores" if machine.get("cores") else ""
    versions = _dict(config.get("versions"))
    state = "" if found.finished(run) else " (unfinished)"
    state = " (stopped early)" if run.stopped_early else state
    best, again = run.best, run.best.get("reevaluated")
    return [
        task,
        arm,
        config["seed"],
        TableCell(f"{run.steps:,}{state}", run.steps),
        TableCell(f"{planned:,}", planned),
        TableCell(f"{run.seconds:,.0f}", run.seconds),
        NOTHING if run.last is None else measured(run.last),
        measured(best["return"]) if best else NOTHING,
        TableCell(short(best["step"]), best["step"]) if best else NOTHING,
        measured(again["return"], again["return_std"]) if again else NOTHING,
        config.get("commit") or "–",
        f"{', '.join(parts)}{cores}" or "–",
        ", ".join(f"{name} {versions[name]}" for name in versions) or "–",
        _command(config.get("command")),
        _resumed(run),
    ]


def _resumed(run: Run) -> TableCell:
    parts = [
        join([f"at step {entry.get('step')}: ", _command(entry.get("command")).shown])
        for entry in run.resumed
    ]
    return TableCell(join(parts, "; ") if parts else "no", len(parts))


def _command(args: Any) -> TableCell:
    text = shlex.join(map(str, args)) if isinstance(args, list) else str(args or "–")
    return TableCell(tag("code", text), text)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
