"""`disc sweep`, `disc reproduce` and `disc report`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from disc import host, report
from disc.cli import display as cli_display
from disc.cli.display import live, out, tell
from disc.cli.options import Report, Reproduce, Running, Sweep, Sweeping
from disc.study import estimate, spec, sweep
from disc.study.local import Local
from disc.study.spec import Experiment
from disc.study.sweep import Backend, Board
from disc.types import DiscError


def sweep_file(command: Sweep) -> None:
    """`disc sweep`."""
    _sweep(spec.read(command.file), Path("runs", command.file.stem), command.run)


def reproduce(command: Reproduce) -> None:
    """`disc reproduce`; the paper's experiments share runs, so they share a directory."""
    _sweep(spec.find(command.name), Path("runs", "paper"), command.run)


def make_report(command: Report) -> None:
    """`disc report`."""
    out.print(f"{report.write(command.directory, command.out)}", markup=False)


def _sweep(experiment: Experiment, default: Path, options: Sweeping) -> None:
    experiment = replace(experiment, scale=options.scale, cut=options.steps)
    if options.scale != 1.0:
        default = default.with_name(f"{default.name}_x{options.scale:g}")
    root = options.out or default
    chosen = experiment.narrowed(options.seeds, options.tasks, options.algos)
    cells = [replace(cell, track=options.track) for cell in chosen.cells()]
    found = sweep.look(root, cells)
    sweep.check_environments(found)
    jobs = options.jobs or host.available_cores()
    if chosen.shortened:
        tell(f"{experiment.name}: {chosen.shortened}.")
    if options.dry_run:
        out.print(cli_display.plan(found, estimate.estimate(found, jobs, tell), jobs))
        return
    backend = make_backend(options)
    sweep.write_down(root, experiment)
    try:
        with cli_display.Display(live) as display:
            state = sweep.run(root, found, backend, options.retries, display)
    except KeyboardInterrupt as stopped:
        saved = str(stopped) or "all runs are saved"
        tell(f"Stopped; {saved}. Run the same command again to resume.")
        sys.exit(130)
    _finish(root, state)


def _finish(root: Path, state: Board) -> None:
    """Print the failed runs, and write the report."""
    for cell, reason in state.failed.items():
        log = root / sweep.LOGS / f"{cell.path}.log"
        tell(f"{cell.path} failed: {reason} (log: {log})")
    try:
        out.print(f"Report: {report.write(root)}", markup=False)
    except DiscError as error:
        if not state.failed:
            raise
        tell(str(error))
    if state.failed:
        sys.exit(1)


def make_backend(options: Running) -> Backend:
    """Where cells run."""
    if options.ray is None:
        return Local(options.jobs or host.available_cores())
    from disc.study.ray import Cluster

    return Cluster.connect(options.ray, options.jobs)
