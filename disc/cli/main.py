"""The command line: `disc COMMAND`; `COMMANDS` lists all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro
from rich.table import Table

from disc._version import __version__
from disc.cli import check, options, policy, show, study, train, tune
from disc.cli.display import err, out
from disc.types import DiscError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with status 2 after a user error."""
    cli_args = list(sys.argv[1:] if arguments is None else arguments)
    name = cli_args[0] if cli_args else "--help"
    if name in ("--version", "-V"):
        out.print(f"disc {__version__}")
    elif name in ("--help", "-h"):
        out.print(_overview())
    elif name not in COMMANDS:
        err.print(f"disc: no command {name!r}; `disc --help` lists all commands.", markup=False)
        sys.exit(2)
    else:
        _run(name, cli_args[1:])


def _run(name: str, cli_args: list[str]) -> None:
    kind, do = COMMANDS[name]
    summary = _summary(kind)
    try:
        kind = options.with_options(cli_args) if kind is options.Train else kind
        do(tyro.cli(kind, prog=f"disc {name}", args=cli_args, description=summary))
    except (DiscError, OSError) as error:
        if os.environ.get("DISC_DEBUG"):
            raise
        err.print(f"disc: {error}", markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("disc: stopped.")
        sys.exit(130)


def _overview() -> Table:
    table = Table(title="disc: train control policies", title_justify="left", box=None)
    table.add_column("command", style="bold")
    table.add_column("description")
    for name, (kind, _) in COMMANDS.items():
        table.add_row(name, _summary(kind).partition("\n")[0])
    table.caption = "disc COMMAND --help shows its options. Example: disc train hopper --video"
    table.caption_justify = "left"
    return table


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").strip()


COMMANDS: dict[str, tuple[type, Callable[[Any], None]]] = {
    "train": (options.Train, train.train),
    "check": (options.Check, check.check),
    "resume": (options.Resume, train.resume_run),
    "eval": (options.Eval, policy.evaluate),
    "watch": (options.Watch, policy.watch),
    "export": (options.Export, policy.export_policy),
    "plot": (options.Plot, show.plot),
    "sweep": (options.Sweep, study.sweep_file),
    "tune": (options.Tune, tune.tune_file),
    "reproduce": (options.Reproduce, study.reproduce),
    "report": (options.Report, study.make_report),
    "list": (options.List, show.show_list),
    "info": (options.Info, policy.info),
}
