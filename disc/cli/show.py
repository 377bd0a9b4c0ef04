"""`disc list` and `disc plot`."""

from __future__ import annotations

from rich.table import Table

from disc.algos import ALGORITHMS
from disc.cli.display import out
from disc.cli.options import List, Plot
from disc.envs.tasks import TASKS
from disc.policy import file as policies
from disc.report import plots
from disc.study import spec
from disc.types import DiscError


def plot(command: Plot) -> None:
    """`disc plot`."""
    if not command.run:
        raise DiscError("nothing to plot; give one or more run directories.")
    if command.diagnostics:
        plots.diagnostics(command.run, command.out)
    else:
        plots.curves(command.run, command.out, command.metric)
    out.print(f"{command.out}", markup=False)


def show_list(command: List) -> None:
    """`disc list`."""
    if command.zoo:
        _show_zoo()
        return
    algorithms = _table("Algorithms", "--algo", "description")
    for name, algorithm in ALGORITHMS.items():
        algorithms.add_row(name, (algorithm.__doc__ or "").partition("\n")[0])
    title = "Tasks: observation size (here and in the paper), action size, steps in the paper"
    tasks = _table(title)
    for column in ("name", "environment"):
        tasks.add_column(column, no_wrap=True)
    for column in ("obs.", "paper", "act.", "steps"):
        tasks.add_column(column, justify="right")
    for name, task in TASKS.items():
        sizes = (task.observation_size, task.paper_observation_size, task.action_size)
        tasks.add_row(name, task.id, *map(str, sizes), f"{task.steps // 1_000_000}M")
    paper = _table("Experiments of the paper, for `disc reproduce`", "name", "description")
    for name in spec.names():
        paper.add_row(name, spec.find(name).title)
    out.print(algorithms, tasks, paper)
    out.print("Any Gymnasium id, package:Id-v0 or package.module:factory also works.")


def _show_zoo() -> None:
    """One row per policy of the zoo."""
    table = _table("Trained policies, for `disc eval`, `disc watch`, `disc export`, `disc info`")
    for column in ("name", "environment", "algorithm"):
        table.add_column(column, no_wrap=True)
    for column in ("steps", "seed", "return"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, path in policies.zoo().items():
        info = policies.read(path).info
        score = info["zoo"]
        table.add_row(
            f"zoo:{name}",
            info["env_name"],
            info["algorithm"],
            f"{info['step']:,}",
            str(info["seed"]),
            f"{score['return']:,.0f} ± {score['return_std']:,.0f}",
        )
    out.print(table)


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=None)
