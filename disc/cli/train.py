"""`disc train` and `disc resume`."""

from __future__ import annotations

import dataclasses
import itertools
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from disc.cli import check
from disc.cli.display import err, out
from disc.cli.options import Resume, Train, Watch, parse_values
from disc.cli.policy import watch
from disc.report import plots
from disc.run.agent import Agent
from disc.run.agents import AGENTS, resume
from disc.run.config import resume_command, worker_args
from disc.run.directory import check_free
from disc.run.loop import SAVED
from disc.video import record


def train(command: Any) -> None:
    """`disc train`."""
    options: Train = command.run
    if options.out is not None:
        check_free(options.out)
    agent = AGENTS[options.algo](
        options.env,
        seed=options.seed,
        num_envs=options.num_envs,
        threads=options.threads,
        workers=options.workers,
        env_kwargs=parse_values(options.env_kwargs),
        preset=options.preset,
        **dataclasses.asdict(command.config),
    )
    if options.video:
        record.check(agent.maker.make, options.renderer)
    if options.check:
        check.warn(agent.maker)
    directory = options.out or _claim_directory(options)
    with agent:
        _finish(
            directory,
            [*agent.maker.cli_args, *worker_args(options.workers)],
            lambda: agent.learn(
                out=directory, on_nan=options.on_nan, track=options.track, **options.plan
            ),
            options.plots,
        )
    if options.video:
        watch(Watch(directory, seconds=10.0, env=options.env, renderer=options.renderer))


def resume_run(command: Resume) -> None:
    """`disc resume`."""
    run, env, threads = command.run, command.env, command.threads

    def learn() -> Agent:
        return resume(
            run,
            command.steps,
            env=env,
            threads=threads,
            workers=command.workers,
            on_nan=command.on_nan,
            stop_at=command.stop_at,
            patience=command.patience,
        )

    named = ["--env", env] if env else []
    _finish(run, [*named, *worker_args(command.workers)], learn, command.plots)


def _finish(directory: Path, cli_args: list[str], learn: Callable[[], Agent], draw: bool) -> None:
    """Train, then draw the curves; if interrupted, print the command to resume."""
    try:
        agent = learn()
    except KeyboardInterrupt as stop:
        how = "Stopped" if SAVED in stop.args else "Stopped without saving"
        err.print(f"{how}. Resume with: {resume_command(directory, cli_args)}", markup=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop
        sys.exit(130)
    if draw:
        plots.curves([directory], directory / "curve.png")
        if any("is/rho_last" in row for row in agent.metrics):
            plots.diagnostics([directory], directory / "weights.png")
    out.print(f"{agent.state.step:,} steps in {agent.elapsed:,.0f} s.")
    last = next((row for row in reversed(agent.metrics) if "eval/return" in row), None)
    if last is not None:
        out.print(f"Last evaluation: {shown(last, 'eval/')}.")
    files = ["policy.disc", "progress.csv", *(["curve.png"] if draw else []), "events/"]
    if agent.training.best is not None:
        found = agent.training.best.evaluation
        again = f"; re-evaluated: {shown(found['reevaluated'])}" if "reevaluated" in found else ""
        out.print(f"Best evaluation: {shown(found)} at step {found['step']:,}{again}.")
        files.insert(1, "best.disc")
    out.print(f"Run directory: {directory} ({', '.join(files)})", markup=False)


def shown(found: Mapping[str, float], prefix: str = "") -> str:
    """The mean and the standard deviation of an evaluation."""
    return f"{found[prefix + 'return']:,.1f} ± {found[prefix + 'return_std']:,.1f}"


def _claim_directory(options: Train) -> Path:
    """Make a new directory under runs/; safe if several runs start at the same time."""
    env = options.env.replace("/", "-").replace(":", "-")
    base = Path("runs", f"{env}_{options.algo}_seed{options.seed}")
    for number in itertools.count(1):
        path = base if number == 1 else base.with_name(f"{base.name}_{number}")
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            break
    return path
