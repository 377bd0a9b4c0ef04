"""`disc tune`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from disc import host, storage
from disc.cli import display
from disc.cli.display import live, tell
from disc.cli.options import Running, Tune
from disc.cli.study import make_backend
from disc.report import tuning as page
from disc.study import confirm, estimate, sweep, tune
from disc.study.confirm import TuningOutcome
from disc.study.trials import Journal, Trial, optuna
from disc.study.tune import FRESH, SEARCH, Driver, Tuning


def tune_file(command: Tune) -> None:
    """`disc tune`."""
    optuna()
    tuning = tune.read(command.file)
    root = command.out or Path("runs", command.file.stem)
    plan = tuning.experiment
    found = sweep.look(root / SEARCH, plan.cells())
    sweep.check_environments(found)
    if command.dry_run:
        display.out.print(_plan(tuning, found, command.run.jobs or host.available_cores()))
        return
    arguments = (tuning.identity, tuning.space, tuning.defaults, tuning.seed)
    journal = Journal(root, *arguments, tuning.random_trials)
    try:
        outcome = _study(tuning, root, journal, command.run)
    except KeyboardInterrupt as stopped:
        saved = str(stopped) or "all runs are saved"
        tell(f"Stopped; {saved}. Run the same command again to resume.")
        sys.exit(130)
    finally:
        journal.close()
    _finish(root, outcome)


def _study(tuning: Tuning, root: Path, journal: Journal, options: Running) -> TuningOutcome:
    """The search, then the fresh seeds."""
    trials = _search(tuning, root, journal, options)
    chosen = confirm.finalists(tuning, trials)
    experiment = confirm.experiment(tuning, chosen)
    cells = [replace(cell, track=options.track) for cell in experiment.cells()]
    found = sweep.look(root / FRESH, cells)
    labels = ", ".join(arm.label for arm in experiment.arms)
    seeds = ", ".join(map(str, tuning.fresh))
    tell(f"The search is over. Now on fresh seeds ({seeds}): {labels}.")
    sweep.write_down(root / FRESH, experiment)
    with display.Display(live) as shown:
        backend = make_backend(options)
        state = sweep.run(root / FRESH, found, backend, options.retries, shown)
    failed = {cell.path: reason for cell, reason in state.failed.items()}
    results = confirm.compare(tuning, root, chosen, failed)
    return TuningOutcome(tuning, trials, results, journal.importances())


def _search(tuning: Tuning, root: Path, journal: Journal, options: Running) -> list[Trial]:
    backend = make_backend(options)
    parallel = -(-backend.slots() // len(tuning.experiment.seeds))
    with display.Display(live) as shown:
        driver = Driver(tuning, root, journal, parallel, shown.say, options.track)
        sweep.run(root / SEARCH, [], backend, options.retries, shown, driver.more)
    return driver.trials


def _finish(root: Path, outcome: TuningOutcome) -> None:
    """Write the files, and print the results."""
    storage.write_text(root / confirm.SUMMARY, outcome.as_json())
    storage.write_text(root / confirm.BEST, outcome.as_toml())
    report = page.write(root, outcome)
    for result in outcome.results:
        if result.reason:
            tell(f"{result.arm.label} failed on a fresh seed: {result.reason}")
    for trial in outcome.trials:
        if trial.outcome == "paused":
            first = next(confirm.continue_commands(outcome.tuning, root, trial))
            tell(f"Paused trials can be continued. For trial {trial.number}: {first}")
            break
    display.out.print(f"Report: {report}", markup=False)
    display.out.print(f"Arms for disc sweep: {root / confirm.BEST}", markup=False)
    display.out.print(outcome.sentence, markup=False)
    if outcome.best is None or any(result.reason for result in outcome.results):
        sys.exit(1)


def _plan(tuning: Tuning, found: list[sweep.Status], jobs: int) -> Group:
    """What the study will do, and the longest time it can take."""
    seeds, again = len(tuning.experiment.seeds), (1 + confirm.TOP) * len(tuning.fresh)
    runs = tuning.trials * seeds
    known = [x for x in estimate.estimate(found, jobs, tell).values() if x is not None]
    title = f"{tuning.trials} trials on {seeds} seeds, {tuning.steps:,} steps each, then {again} "
    title += f"runs on fresh seeds: at most {runs + again} runs"
    if known:
        hours = (runs + again) * sum(known) / len(known) / jobs / 3600
        title += f", about {hours:,.2f} h with {jobs} at a time if none is paused"
    rungs = ", ".join(f"{steps:,}" for steps in tuning.rungs[:-1]) or "never"
    note = f"Trials below the median are paused at these steps: {rungs}."
    table = Table("option", "default", "searched", box=None)
    for name, entry in tuning.space.items():
        table.add_row(Text(name), Text(str(tuning.defaults[name])), Text(str(entry)))
    return Group(Text(title), Text(note), table)
