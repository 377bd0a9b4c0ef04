"""`disc check`, and its warnings before `disc train`."""

from __future__ import annotations

import sys
from typing import Any

from rich.table import Table
from rich.text import Text

from disc.algos import ALGORITHMS
from disc.cli.display import err, out
from disc.cli.options import Check, parse_values
from disc.envs import diagnose
from disc.envs.factory import Maker


def check(command: Check) -> None:
    """`disc check`; exits with status 1 if there are problems."""
    maker = Maker(command.env, parse_values(command.env_kwargs))
    with err.status(f"Testing {maker.name} …"):
        found = diagnose.check(maker, command.steps, command.seed, _configs())
    marks = {"good": "[green]good[/]", "note": "[yellow]note[/]", "problem": "[red]problem[/]"}
    table = Table(title=maker.name, title_justify="left", box=None, show_header=False)
    for kind, text in found:
        table.add_row(marks[kind], Text(text))
    out.print(table)
    if any(kind == "problem" for kind, _ in found):
        sys.exit(1)


def warn(maker: Maker) -> None:
    """Print the warnings of `disc check`, one line each."""
    for kind, text in diagnose.glance(maker, _configs()):
        if kind != "good":
            err.print(f"{maker.name}: {kind}: {text}", markup=False)


def _configs() -> dict[str, Any]:
    """The class of each algorithm's options, for `diagnose`."""
    return {name: algorithm.Config for name, algorithm in ALGORITHMS.items()}
