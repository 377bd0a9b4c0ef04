"""Untrusted experiments and records, read by reports, plots and sweeps."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from disc import report
from disc.algos import ALGORITHMS
from disc.learning.config import make_config
from disc.report import plots
from disc.study import spec, sweep
from disc.study.spec import Arm, Cell, Experiment, Figure
from faults import mutations
from faults.outcome import Trial, copied

STUDY: dict[str, Any] = {
    "title": "A study",
    "note": "of nothing",
    "tasks": ["hopper", "Pendulum-v1"],
    "seeds": [0, 1],
    "steps": {"hopper": 20_000, "Pendulum-v1": 10_000},
    "anneal_steps": 20_000,
    "eval_every": 4_000,
    "eval_episodes": 2,
    "table": True,
    "arms": [
        {"algo": "disc", "label": "DISC", "replay_length": [2, 4], "widths": [8, 8]},
        {"algo": "sac", "num_envs": 1, "env_kwargs": {"g": 9.0}, "tau": 0.01},
    ],
    "figures": [{"title": "Curves", "metric": ["eval/return"], "window": 2, "line": 1.0}],
    "paper": {"DISC replay_length = 2": {"hopper": [3.0, 1.0]}},
}


def lines(
    scratch: Path, rng: np.random.Generator, scale: float
) -> Iterator[tuple[str, Iterator[Trial]]]:
    """All trials, by their names in the table."""
    root = make(scratch / "study")
    many, some, few = (max(5, round(n * scale)) for n in (3000, 150, 60))
    yield "experiment files (TOML) changed", changed_files(scratch, rng, many)
    yield "experiments (JSON) changed", changed_experiments(root, rng, many)
    yield "reports on changed experiments", changed_reports(root, rng, some)
    yield "reports on changed runs and records", hostile_runs(root, rng, some)
    yield "plots of changed records", hostile_plots(root, rng, few)


# Valid files


def study() -> Experiment:
    """A valid experiment."""
    arms = (Arm("DISC", "disc"), Arm("SAC", "sac", {"tau": 0.01}))
    steps, every = {"hopper": 20_000}, {"hopper": 4_000}
    figures = (Figure("Curves"), Figure("Others", ("is/batches",), line=1.0, together=True))
    paper = {"DISC": {"hopper": [3.0, 1.0]}}
    more: dict[str, Any] = {"figures": figures, "paper": paper, "note": "of nothing"}
    return Experiment("study", "A study", arms, ("hopper",), (0,), steps, steps, every, **more)


def make(root: Path) -> Path:
    """A directory with an experiment and its runs, as written by a sweep."""
    found = study()
    sweep.write_down(root, found)
    for cell in found.cells():
        run = root / cell.path
        run.mkdir(parents=True)
        (run / "config.json").write_text(json.dumps(config(cell)))
        (run / "progress.csv").write_text(record(cell.steps))
    return root


def config(cell: Cell) -> dict[str, Any]:
    """A `config.json`, as written by `disc train`."""
    options = make_config(ALGORITHMS[cell.arm.algorithm], cell.options)
    plan = {
        name: getattr(cell, name)
        for name in ("steps", "eval_every", "eval_episodes", "checkpoint_every")
    }
    return {
        "algorithm": cell.arm.algorithm,
        "env": "Hopper-v5",
        "env_name": "Hopper-v5",
        "env_kwargs": {},
        "seed": cell.seed,
        "num_envs": 1,
        "threads": 1,
        "plan": plan,
        "config": dataclasses.asdict(options.for_task("Hopper-v5").for_steps(cell.anneal_steps)),
        "versions": {"disc-rl": "1.0", "mujoco": "3"},
        "commit": "0123456789ab",
        "machine": {"system": "Linux", "processor": "some", "cores": 2, "device": "cpu"},
        "command": ["disc", *cell.command(Path("runs"))],
        "resumed": [{"step": 4_000, "versions": {"mujoco": "3"}, "command": ["disc", "resume"]}],
    }


def record(steps: int) -> str:
    """A `progress.csv`."""
    rows = ["step,time/elapsed,eval/return,eval/return_std,train/return,is/batches"]
    rows += [f"{i},{i / 100},{i % 7},0.5,{i % 5},2" for i in range(4_000, steps + 1, 4_000)]
    return "\n".join(rows) + "\n"


# Experiments


def changed_files(scratch: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """TOML files."""
    path = scratch / "study.toml"
    data = toml(STUDY).encode()
    for i in range(count):
        if i % 2:
            path.write_bytes(mutations.damaged(data, rng))
        else:
            text = toml(mutations.changed(STUDY, rng))
            path.write_text(text, encoding="utf-8", errors="surrogatepass")
        yield f"{i}", lambda: inside(spec.read(path))


def changed_experiments(root: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """JSON files, as written by a sweep."""
    whole = (root / "study.json").read_text()
    for i in range(count):
        text = mutations.text(mutations.changed(json.loads(whole), rng))
        if i % 2:
            text = mutations.damaged(whole.encode(), rng).decode(errors="replace")
        yield f"{i}", partial(parse, text, root / "study.json")


def parse(text: str, path: Path) -> None:
    """Read an experiment and check it."""
    inside(spec.from_json(text, path))


def inside(found: Experiment) -> None:
    """Check that all runs lie in the sweep's directory, and have commands and names."""
    for cell in found.cells():
        assert len(cell.path.parts) == 2, cell.path
        assert ".." not in cell.path.parts, cell.path
        assert not cell.path.is_absolute(), cell.path
        assert all(isinstance(word, str) for word in cell.command(Path("runs")))
    found.as_json()


def toml(value: Any) -> str:
    """A table as TOML, one line per key."""
    if not isinstance(value, dict):
        return f"x = {_toml(value)}\n"
    return "".join(f"{json.dumps(key)} = {_toml(x)}\n" for key, x in value.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(x)}" for k, x in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return mutations.text(value)


# Reports


def changed_reports(root: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """A report on intact runs with a modified experiment."""
    whole = json.loads((root / "study.json").read_text())
    for i in range(count):
        copy = copied(root, "changed_study")
        text = mutations.text(mutations.changed(whole, rng))
        (copy / "study.json").write_text(text)
        yield f"{i}", partial(page, copy)


def hostile_runs(root: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """A report and a sweep on a directory with one modified run."""
    found = study()
    first = found.cells()[0].path
    whole, rows = (root / first / "config.json").read_text(), record(20_000)
    for i in range(count):
        copy = copied(root, "changed_study")
        if i % 4 == 0:
            (copy / "study.json").unlink()
        if i % 2:
            text = mutations.text(mutations.changed(json.loads(whole), rng))
            (copy / first / "config.json").write_text(text)
        else:
            odd = hostile_record(rows, rng)
            (copy / first / "progress.csv").write_bytes(odd)
        yield f"{i}", partial(page, copy)
        yield f"{i}, disc sweep", partial(sweep.look, copy, found.cells())


CELLS = (
    "", "nan", "inf", "-inf", "1e308", "-1e308", "1e400", "-1", "1e15", "1e18", "9" * 400, "0x10",
    "1_000", '"', '"1', "٣", "\0", "x", "<b>", "1,2", "9" * 140_000, "\ud800", "5e-324", "\n",
)  # fmt: skip


def hostile_record(whole: str, rng: np.random.Generator) -> bytes:
    """A `progress.csv` with modified bytes or cells."""
    if rng.integers(3) == 0:
        return mutations.damaged(whole.encode(), rng)
    rows = [row.split(",") for row in whole.splitlines()]
    for _ in range(int(rng.integers(1, 4))):
        row = mutations.one(rng, rows)
        kind = int(rng.integers(5))
        if kind == 0:
            row.append(mutations.one(rng, CELLS))
        elif kind == 1:
            row.pop()
        elif kind == 2:
            column = int(rng.integers(len(rows[0]) or 1))
            value = mutations.one(rng, CELLS)
            for other in rows[1:]:
                other[column:column] = [value]
                del other[column + 1 : column + 2]
        elif row:
            row[int(rng.integers(len(row)))] = mutations.one(rng, (*CELLS, *mutations.TEXTS))
    text = "\n".join(",".join(row) for row in rows) + "\n"
    return text.encode("utf-8", "surrogatepass")


def hostile_plots(root: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """Plots of modified records."""
    path, out = root.with_name("progress.csv"), root.with_name("figure.svg")
    for i in range(count):
        path.write_bytes(hostile_record(record(20_000), rng))
        draw = plots.diagnostics if i % 4 == 0 else plots.curves
        yield f"{i}", partial(draw, [path], out)


class Page(HTMLParser):
    """Checks that all elements of a page are closed, and none comes from a file."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the element."""
        assert tag not in ("img", "iframe", "link", "object", "base", "form"), tag
        assert not any(name.startswith("on") or name in ("src", "style") for name, _ in attrs)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that it closes the last open element."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Check that the data of scripts is valid JSON for a browser."""
        if self.open and self.open[-1] == "script" and data.startswith("{"):
            json.loads(data, parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not valid JSON")


def page(root: Path) -> None:
    """Write the report, and parse it like a browser."""
    parser = Page()
    parser.feed(report.write(root).read_text(encoding="utf-8"))
    assert not parser.open
