"""`disc train`, `disc resume` and `disc check`."""

from __future__ import annotations

import dataclasses
import itertools
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args

from rich.table import Table
from rich.text import Text
from tyro.conf import OmitArgPrefixes

from disc.algos import ALGORITHMS
from disc.cli.display import err, out
from disc.cli.options import Check, Resume, Train, Watch, parse_values
from disc.cli.policy import watch
from disc.envs import diagnose
from disc.envs.factory import Maker
from disc.learning.config import Preset, make_config
from disc.options import RANGES
from disc.report import plots
from disc.run import log
from disc.run.agent import AGENTS, Agent, resume
from disc.run.directory import check_free, resume_command, worker_args
from disc.run.loop import SAVED
from disc.video import record


def with_options(cli_args: list[str]) -> type:
    """`Train` with the options of the chosen algorithm and preset."""
    algorithm = ALGORITHMS[_chosen(cli_args, "--algo", ALGORITHMS, Train.algo)]
    preset = _chosen(cli_args, "--preset", get_args(Preset), Train.preset)
    config = make_config(algorithm, {}, preset, _num_envs(cli_args))
    return dataclasses.make_dataclass(
        "Train",
        [
            ("run", Annotated[Train, OmitArgPrefixes]),
            (
                "config",
                Annotated[algorithm.Config, OmitArgPrefixes],
                dataclasses.field(default_factory=lambda: config),
            ),
        ],
        frozen=True,
    )


def _chosen(cli_args: list[str], option: str, choices: Collection[str], default: str) -> str:
    """The value of an option, before the command line is parsed."""
    for word, following in itertools.pairwise([*cli_args, ""]):
        name, _, value = word.partition("=")
        if name == option and (value or following) in choices:
            default = value or following
    return default


def _num_envs(cli_args: list[str]) -> int:
    """The number of environments, before the command line is parsed; 1 if it is not valid."""
    for word, following in itertools.pairwise([*cli_args, ""]):
        name, _, value = word.partition("=")
        if name in ("--num-envs", "--num_envs") and (value or following).isdecimal():
            return max(1, min(int(value or following), RANGES["num_envs"][1]))
    return Train.num_envs


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
        _warn(agent.maker)
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


def _warn(maker: Maker) -> None:
    """Print the warnings of `disc check`, one line each."""
    for kind, text in diagnose.glance(maker, _configs()):
        if kind != "good":
            err.print(f"{maker.name}: {kind}: {text}", markup=False)


def _configs() -> dict[str, Any]:
    """The class of each algorithm's options, for `diagnose`."""
    return {name: algorithm.Config for name, algorithm in ALGORITHMS.items()}


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
        out.print(f"Last evaluation: {shown(log.evaluation(last))}.")
    files = ["policy.disc", "progress.csv", *(["curve.png"] if draw else []), "events/"]
    if agent.training.best is not None:
        found = agent.training.best.evaluation
        again = f"; re-evaluated: {shown(found['reevaluated'])}" if "reevaluated" in found else ""
        out.print(f"Best evaluation: {shown(found)} at step {found['step']:,}{again}.")
        files.insert(1, "best.disc")
    out.print(f"Run directory: {directory} ({', '.join(files)})", markup=False)


def shown(evaluation: Mapping[str, float]) -> str:
    """An evaluation's mean and standard deviation."""
    return f"{evaluation['return']:,.1f} ± {evaluation['return_std']:,.1f}"


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
