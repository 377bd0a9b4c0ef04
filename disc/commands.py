"""`disc sweep`, `disc reproduce` and `disc report`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from disc import board, experiments, machine, probe, runs, sweep
from disc.experiments import Experiment
from disc.options import Report, Reproduce, Sweep, Sweeping
from disc.sweep import Backend, Local
from disc.types import DiscError

out = Console(highlight=False, soft_wrap=True)
err = Console(highlight=False, stderr=True)


def sweep_file(command: Sweep) -> None:
    """`disc sweep`."""
    _sweep(experiments.read(command.file), Path("runs", command.file.stem), command.run)


def reproduce(command: Reproduce) -> None:
    """`disc reproduce`; all of the paper's experiments share runs, so they share a directory."""
    _sweep(experiments.find(command.name), Path("runs", "paper"), command.run)


def make_report(command: Report) -> None:
    """`disc report`."""
    from disc import report

    out.print(f"{report.write(command.directory, command.out)}", markup=False)


def _sweep(experiment: Experiment, default: Path, options: Sweeping) -> None:
    _check(options)
    if options.scale != 1.0:
        default = default.with_name(f"{default.name}_x{options.scale:g}")
    root = options.out or default
    experiment = replace(experiment, scale=options.scale, cut=options.steps)
    chosen = experiment.narrowed(options.seeds, options.tasks, options.algos)
    found = sweep.look(root, chosen.cells())
    jobs = options.jobs or machine.available_cores()
    if chosen.shortened:
        err.print(f"{experiment.name}: {chosen.shortened}.", markup=False)
    if options.dry_run:
        seconds = probe.estimate(found, jobs, lambda text: err.print(text, markup=False))
        out.print(board.plan(found, seconds, jobs))
        return
    sweep.write_down(root, experiment)
    backend = _backend(options, jobs)
    try:
        with board.Display(err) as display:
            state = sweep.run(root, found, backend, options.retries, display)
    except KeyboardInterrupt:
        err.print("Stopped; all runs are saved. The same command goes on with them.")
        sys.exit(130)
    from disc import report

    out.print(f"Report: {report.write(root)}", markup=False)
    for cell, reason in state.failed.items():
        log = root / sweep.LOGS / f"{cell.path}.log"
        err.print(f"{cell.path} failed: {reason} (all it said: {log})", markup=False)
    if state.failed:
        sys.exit(1)


def _check(options: Sweeping) -> None:
    runs.check_counts(steps=options.steps, jobs=options.jobs)
    for seed in options.seeds:
        runs.check_counts(seed=seed)
    if not 0.0 < options.scale <= 1.0:
        raise DiscError(f"--scale must be above 0 and at most 1, not {options.scale:g}.")
    if options.retries < 0:
        raise DiscError(f"--retries must be at least 0, not {options.retries}.")


def _backend(options: Sweeping, jobs: int) -> Backend:
    if options.ray is None:
        return Local(jobs)
    from disc.cluster import Cluster

    return Cluster.connect(options.ray, options.jobs)
