"""The command line: train, resume, eval, watch, plot, sweep, reproduce, report, list, info."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import OmitArgPrefixes

from disc import commands, deployed, experiments, inspection, plots, runs, terminal, video
from disc._version import __version__
from disc.agent import AGENTS, SAVED, Agent
from disc.algos import ALGORITHMS
from disc.config import Preset, make_config
from disc.options import (
    Check,
    Eval,
    Info,
    List,
    Plot,
    Report,
    Reproduce,
    Resume,
    Sweep,
    Train,
    Watch,
)
from disc.resuming import resume
from disc.tasks import TASKS, Maker
from disc.train import Plan
from disc.types import DiscError

out = Console(emoji=False, highlight=False, soft_wrap=True)
err = terminal.Speaker(soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with status 2 after a mistake of the user's."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else "--help"
    if name in ("--version", "-V"):
        out.print(f"disc {__version__}")
    elif name in ("--help", "-h"):
        out.print(_overview())
    elif name not in COMMANDS:
        err.print(f"disc: there is no command {name!r}; `disc --help` lists them.", markup=False)
        sys.exit(2)
    else:
        _run(name, words[1:])


def _run(name: str, words: list[str]) -> None:
    kind, do = COMMANDS[name]
    kind = _with_options(words) if kind is Train else kind
    try:
        do(tyro.cli(kind, prog=f"disc {name}", args=words, description=_summary(COMMANDS[name][0])))
    except (DiscError, OSError) as error:
        if os.environ.get("DISC_DEBUG"):
            raise
        err.print(f"disc: {error}", markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("disc: stopped.")
        sys.exit(130)


def _overview() -> Table:
    table = Table(title="disc: train continuous-control policies", box=None, title_justify="left")
    table.add_column("command", style="bold")
    table.add_column("what it does")
    for name, (kind, _) in COMMANDS.items():
        table.add_row(name, _summary(kind))
    table.caption = "disc COMMAND --help tells more. Start with: disc train hopper --video"
    table.caption_justify = "left"
    return table


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").strip()


def _with_options(words: list[str]) -> type:
    """`Train` joined with the options of the algorithm and the preset that the words choose."""
    algorithm = ALGORITHMS[_chosen(words, "--algo", ALGORITHMS, Train.algo)]
    preset = _chosen(words, "--preset", get_args(Preset), Train.preset)
    config = make_config(algorithm, {}, preset)
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


def _chosen(words: list[str], option: str, choices: Collection[str], default: str) -> str:
    """What an option is set to, before all others are known."""
    for word, following in itertools.pairwise([*words, ""]):
        name, _, value = word.partition("=")
        if name == option and (value or following) in choices:
            default = value or following
    return default


def train(command: Any) -> None:
    """`disc train`."""
    options: Train = command.run
    if options.out is not None:
        runs.check_free(options.out)
    plan = Plan(options.steps, options.eval_every, options.eval_episodes, options.checkpoint_every)
    runs.check_plan(plan)
    agent = AGENTS[options.algo](
        options.env,
        seed=options.seed,
        num_envs=options.num_envs,
        threads=options.threads,
        env_kwargs={name: _value(text) for name, text in options.env_kwargs.items()},
        preset=options.preset,
        **dataclasses.asdict(command.config),
    )
    if options.video:
        video.check(agent.maker.make)
    where = options.out or _claim_directory(options)
    with agent:
        _finish(
            where,
            agent.maker.words,
            lambda: agent.learn(
                options.steps,
                out=where,
                eval_every=options.eval_every,
                eval_episodes=options.eval_episodes,
                checkpoint_every=options.checkpoint_every,
                on_nan=options.on_nan,
            ),
        )
    if options.video:
        deployed.watch(Watch(where, seconds=10.0, env=options.env))


def resume_run(command: Resume) -> None:
    """`disc resume`."""
    run, env, threads = command.run, command.env, command.threads

    def learn() -> Agent:
        return resume(run, command.steps, env=env, threads=threads, on_nan=command.on_nan)

    _finish(run, ["--env", env] if env else [], learn)


def _finish(where: Path, words: list[str], learn: Callable[[], Agent]) -> None:
    """Train, say how to go on if interrupted, and draw the curve at the end."""
    try:
        agent = learn()
    except KeyboardInterrupt as stop:
        how = "Stopped" if SAVED in stop.args else "Stopped without saving"
        err.print(f"{how}. Go on with: {runs.command(where, words)}", markup=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to stop
        sys.exit(130)
    plots.curves([where], where / "curve.png")
    if any("is/rho_last" in row for row in agent.metrics):
        plots.diagnostics([where], where / "weights.png")
    last = next((row for row in reversed(agent.metrics) if "eval/return" in row), None)
    score = (
        f" Evaluated at {last['eval/return']:,.1f} ± {last['eval/return_std']:,.1f}."
        if last
        else ""
    )
    out.print(f"{agent.state.step:,} steps in {agent.elapsed:,.0f} s.{score}")
    out.print(
        f"Run directory: {where} (policy.disc, progress.csv, curve.png, events/)", markup=False
    )


def _claim_directory(options: Train) -> Path:
    """Make a directory under runs/ that is not taken, also not by a run that starts just now."""
    env = options.env.replace("/", "-").replace(":", "-")
    base = Path("runs", f"{env}_{options.algo}_seed{options.seed}")
    for number in itertools.count(1):
        path = base if number == 1 else base.with_name(f"{base.name}_{number}")
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            break
    return path


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def plot(command: Plot) -> None:
    """`disc plot`."""
    if not command.run:
        raise DiscError("there is nothing to plot; name a run directory, or several.")
    if command.diagnostics:
        plots.diagnostics(command.run, command.out)
    else:
        plots.curves(command.run, command.out, command.metric)
    out.print(f"{command.out}", markup=False)


def check(command: Check) -> None:
    """`disc check`; exits with status 1 where something will hurt."""
    runs.check_counts(steps=command.steps, seed=command.seed)
    maker = Maker(command.env, {name: _value(text) for name, text in command.env_kwargs.items()})
    with err.status(f"Trying {maker.name} …"):
        found = inspection.check(maker, command.steps, command.seed)
    marks = {"good": "[green]good[/]", "note": "[yellow]note[/]", "problem": "[red]problem[/]"}
    table = Table(title=maker.name, title_justify="left", box=None, show_header=False)
    for kind, text in found:
        table.add_row(marks[kind], Text(text))
    out.print(table)
    if any(kind == "problem" for kind, _ in found):
        sys.exit(1)


def show_list(_: List) -> None:
    """`disc list`."""
    algorithms = Table(title="Algorithms", title_justify="left", box=None)
    algorithms.add_column("--algo")
    algorithms.add_column("what it is")
    for name, module in ALGORITHMS.items():
        algorithms.add_row(name, (module.__doc__ or "").splitlines()[0])
    title = "Tasks: sizes of observations (here and in the paper) and actions, the paper's steps"
    tasks = Table(title=title, title_justify="left", box=None)
    for column in ("name", "environment"):
        tasks.add_column(column, no_wrap=True)
    for column in ("obs.", "paper", "act.", "steps"):
        tasks.add_column(column, justify="right")
    for name, task in TASKS.items():
        sizes = (task.observation_size, task.paper_observation_size, task.action_size)
        tasks.add_row(name, task.id, *map(str, sizes), f"{task.steps // 1_000_000}M")
    title = "Experiments of the paper, for `disc reproduce`"
    paper = Table("name", "what it is", title=title, title_justify="left", box=None)
    for name in experiments.names():
        paper.add_row(name, experiments.find(name).title)
    out.print(algorithms, tasks, paper)
    out.print("Any Gymnasium id with Box actions, or package.module:factory, works as well.")


COMMANDS: dict[str, tuple[type, Callable[[Any], None]]] = {
    "train": (Train, train),
    "check": (Check, check),
    "resume": (Resume, resume_run),
    "eval": (Eval, deployed.evaluate),
    "watch": (Watch, deployed.watch),
    "plot": (Plot, plot),
    "sweep": (Sweep, commands.sweep_file),
    "reproduce": (Reproduce, commands.reproduce),
    "report": (Report, commands.make_report),
    "list": (List, show_list),
    "info": (Info, deployed.info),
}
