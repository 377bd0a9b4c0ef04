"""`python -m benchmarks.time_to_score`: minutes from the start of a process to a given return.

Our algorithms and those of Stable-Baselines3, sb3-contrib and SBX, with RL Zoo's settings ("tuned")
or ours ("ours"), run one after the other, each in a process on `--cores` pinned cores. The clock
starts when the process is launched: imports, compilation (our cache of programs is emptied),
sampling, updates and, for ours, the run directory with its checkpoints count. Only evaluations do
not: ten episodes without exploration, after the first update at or after every `--every` steps.

A run ends with its task's highest threshold, after `--minutes` or after `--steps`. It is added to
`--out` when it ends, and the same command then skips it; one that fails is reported and not added.
Compare times only if other processes used equally many cores; the tables have no other ratios.
A median counts a run that did not reach the threshold as infinite. PyTorch uses one thread or one
per core, whichever is faster in a short trial before the run, outside the clock.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks import peers, speed, zoo
from disc import storage

THRESHOLDS: dict[str, tuple[int, ...]] = {
    "Hopper-v5": (2_500,),
    "Walker2d-v5": (3_000,),
    "HalfCheetah-v5": (4_000,),
    "Ant-v5": (2_000, 4_000),
    "Humanoid-v5": (1_000, 5_000),
}
LARGE = ("HalfCheetah-", "Ant-", "Humanoid")  # tasks where our SAC and TD3 begin with more
RANDOM_STEPS, FEW_RANDOM_STEPS = 10_000, 1_000  # random steps
SAME_LOAD = 0.15  # cores by which the use of other processes may differ
EVALUATING = 0.5  # time of evaluations ÷ clock, assumed until runs are recorded
LIBRARIES = {"sb3": ("ppo", "trpo", "sac", "td3"), "sbx": ("ppo", "sac", "td3", "crossq")}
COLORS = {
    "disc recommended": "#d55e00", "disc paper": "#e69f00", "ppo": "#0072b2", "trpo": "#56b4e9",
    "sac": "#009e73", "td3": "#cc79a7", "crossq": "#000000",
}  # fmt: skip
"""Of the algorithms; distinct for colour-blind readers (Okabe and Ito, 2008)."""
STYLES = {"disc": "-", "sb3": "--", "sbx": ":"}

Record = dict[str, Any]


class Contender(NamedTuple):
    """A row of the tables."""

    label: str
    library: str  # disc, sb3 or sbx
    algorithm: str
    choice: str = ""  # our preset, or where a peer's settings come from


OURS = (
    Contender("disc recommended", "disc", "disc", "recommended"),
    Contender("disc paper", "disc", "disc", "paper"),
    *(Contender(name, "disc", name) for name in ("ppo", "trpo", "sac", "td3")),
)
PEERS = tuple(
    Contender(f"{library} {algorithm} {choice}", library, algorithm, choice)
    for library, algorithms in LIBRARIES.items()
    for algorithm in algorithms
    for choice in ("tuned", "ours")
    if (algorithm, choice) != ("crossq", "ours")  # we have no CrossQ
)
CONTENDERS = {contender.label: contender for contender in (*OURS, *PEERS)}


class Run(NamedTuple):
    """One training run."""

    task: str
    contender: Contender
    seed: int


class Limit(NamedTuple):
    """How long a run may take, and on what."""

    minutes: float
    steps: int
    every: int
    cores: int


class Score(NamedTuple):
    """When the runs of a contender reached a threshold; a run that did not counts as infinite."""

    minutes: float  # median
    steps: float  # median
    reached: list[float]  # minutes, of the runs that did
    runs: int
    longest: float  # minutes, of the runs that did not


def choose(
    tasks: Sequence[str], patterns: Sequence[str], seeds: Sequence[int], with_peers: bool
) -> list[Run]:
    """The runs asked for, ordered by seed, so that early results cover all tasks and contenders."""
    known = [x for x in CONTENDERS.values() if with_peers or x.library == "disc"]
    for pattern in patterns:
        if not any(fnmatchcase(x.label, pattern) for x in known):
            labels = ", ".join(x.label for x in known)
            raise SystemExit(f"No contender is called {pattern!r}; there are {labels}.")
    chosen = [x for x in known if any(fnmatchcase(x.label, pattern) for pattern in patterns)]
    return [Run(task, x, seed) for seed in seeds for task in tasks for x in chosen]


def left(runs: Iterable[Run], records: Iterable[Record], limit: Limit) -> list[Run]:
    """The runs that are not recorded with this limit."""
    done = {(x["task"], x["label"], x["seed"], Limit(**x["limit"])) for x in records}
    return [x for x in runs if (x.task, x.contender.label, x.seed, limit) not in done]


def read(path: Path) -> list[Record]:
    """The recorded runs; none if the file does not exist."""
    if not path.exists():
        return []
    return storage.parse(storage.read_text(path, storage.RECORD))["runs"]


def append(path: Path, record: Record) -> None:
    """Add a run to the file, which is replaced at once."""
    runs = [json.dumps(x) for x in (*read(path), record)]
    storage.write_text(path, '{"runs": [\n' + ",\n".join(runs) + "\n]}\n")


def settings_of(run: Run) -> dict[str, Any]:
    """A peer's settings."""
    if run.contender.choice == "tuned":
        return zoo.TUNED[run.contender.algorithm][run.task]
    steps = RANDOM_STEPS if run.task.startswith(LARGE) else FEW_RANDOM_STEPS
    return peers.ours(run.contender.algorithm, steps)


def measure(run: Run, limit: Limit, python: Path | None) -> Record:
    """Train; returns the result, and how many cores other processes used meanwhile."""
    contender = run.contender
    task: dict[str, Any] = {
        "library": contender.library,
        "algorithm": contender.algorithm,
        "env": run.task,
        "seed": run.seed,
        "score": THRESHOLDS[run.task][-1],
        "seconds": 60 * limit.minutes,
        "steps": limit.steps,
        "every": limit.every,
    }
    command, variables = [sys.executable], {"NPROC": "1"} if limit.cores == 1 else {}
    with tempfile.TemporaryDirectory() as folder:
        if contender.library == "disc":
            task |= {"preset": contender.choice} if contender.choice else {}
            task["out"] = str(Path(folder, "run"))
            variables["XDG_CACHE_HOME"] = str(Path(folder, "cache"))
        else:
            command, task["settings"] = [str(python)], settings_of(run)
        command += ["-m", "benchmarks.score_worker"]
        load = speed.Load()
        task["launched"] = time.monotonic()
        result = speed.run(command, limit.cores, task, **variables)
        return {**result, "other_cores": load.others()}


def about(python: Path | None) -> Record:
    """Versions, commit and machine, found in another process: no fork may follow JAX's import."""
    code = (
        "import json; from disc import host; print(json.dumps({'versions': host.versions(), "
        "'commit': host.commit(), 'machine': host.facts()}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=speed.HERE.parent, capture_output=True)
    done.check_returncode()
    return {**json.loads(done.stdout), "peers": speed.versions_of(python)}


def sit(runs: list[Run], limit: Limit, python: Path | None, out: Path) -> list[str]:
    """Do the runs one after the other and record them; returns the names of those that failed."""
    known, failed = about(python), []
    for number, run in enumerate(runs):
        name = f"{run.task}, {run.contender.label}, seed {run.seed}"
        speed.say(f"{name} ({number + 1} of {len(runs)}) …")
        try:
            result = measure(run, limit, python)
        except SystemExit as error:  # of the process
            failed.append(name)
            speed.say(f"  {error}")
            continue
        chosen = {"task": run.task, "label": run.contender.label, "seed": run.seed}
        record = {**chosen, "limit": limit._asdict(), **result, **known}
        append(out, record)
        scores = (score([record], threshold) for threshold in THRESHOLDS[run.task])
        found = "; ".join(
            f"{threshold:,}: {text(x)}"
            for threshold, x in zip(THRESHOLDS[run.task], scores, strict=True)
        )
        highest = f"best {best(record):,.0f}" if record["curve"] else "no evaluation"
        speed.say(f"  {found}; {highest} in {record['last_step']:,} steps")
    return failed


def best(record: Record) -> float:
    """The highest mean return of an evaluation; −∞ if there was none."""
    return max((value for _, _, value in record["curve"]), default=-math.inf)


def reached(curve: Iterable[Sequence[float]], threshold: float) -> tuple[float, float] | None:
    """Seconds and steps at the first evaluation that reached a threshold."""
    found = ((seconds, step) for step, seconds, value in curve if value >= threshold)
    return next(found, None)


def score(runs: Sequence[Record], threshold: float) -> Score:
    """Median over the seeds of a contender."""
    points = [reached(run["curve"], threshold) for run in runs]
    missed = [run["seconds"] / 60 for run, point in zip(runs, points, strict=True) if not point]
    never = (math.inf, math.inf)
    return Score(
        minutes=statistics.median((point or never)[0] for point in points) / 60,
        steps=statistics.median((point or never)[1] for point in points),
        reached=sorted(point[0] / 60 for point in points if point),
        runs=len(runs),
        longest=max(missed, default=0.0),
    )


def text(found: Score) -> str:
    """The minutes, and how many runs reached the score: `3.1 (2 of 2)`, or `— (0 of 2, 15 min)`."""
    count = f"{len(found.reached)} of {found.runs}"
    if math.isfinite(found.minutes):
        return f"{found.minutes:.1f} ({count})"
    if found.reached:
        count += f" in {', '.join(f'{x:.1f}' for x in found.reached)}"
    return f"— ({count}, {found.longest:.1f}".removesuffix(".0") + " min)"


def same_load(some: Iterable[Record], others: Iterable[Record]) -> bool:
    """Whether runs are comparable: the same machine and cores, and the same load by others."""
    runs = [*some, *others]
    loads = [run["other_cores"] for run in runs]
    places = {json.dumps([run["machine"], run["limit"]["cores"]], sort_keys=True) for run in runs}
    return len(places) == 1 and None not in loads and max(loads) - min(loads) < SAME_LOAD


def ratio(runs: Sequence[Record], fastest: Sequence[Record] | None, threshold: float) -> str:
    """The time of a contender by that of the fastest of ours, under the same load only."""
    minutes = score(runs, threshold).minutes
    if fastest is None or not math.isfinite(minutes):
        return ""
    if not same_load(runs, fastest):
        return "other load"
    return f"{minutes / score(fastest, threshold).minutes:.2f}"


def tables(records: Iterable[Record]) -> dict[str, list[list[str]]]:
    """Title → rows of text, the first one being the header, for each task, limit and machine."""
    groups: dict[str, dict[str, list[Record]]] = {}
    for x in records:
        limit, machine = Limit(**x["limit"]), x["machine"]
        title = (
            f"{x['task']}: {limit.cores} of {machine['cores']} cores ({machine['processor']}), "
            f"{limit.minutes:g} minutes or {limit.steps:,} steps, evaluated every {limit.every:,}"
        )
        groups.setdefault(title, {}).setdefault(x["label"], []).append(x)
    return {
        title: rows(groups[title], THRESHOLDS[title.partition(":")[0]])
        for title in sorted(groups, key=lambda title: list(THRESHOLDS).index(title.split(":")[0]))
    }


def rows(runs: dict[str, list[Record]], thresholds: Sequence[int]) -> list[list[str]]:
    """A header, and a row for each contender."""
    header = ["contender"]
    for threshold in thresholds:
        header += [f"minutes to {threshold:,}", "steps", "÷ fastest of ours"]
    found = [[label] for label in CONTENDERS if label in runs]
    for threshold in thresholds:
        times = {x.label: score(runs[x.label], threshold).minutes for x in OURS if x.label in runs}
        first = min(times, key=times.__getitem__, default="")
        fastest = runs[first] if math.isfinite(times.get(first, math.inf)) else None
        for row in found:
            here = score(runs[row[0]], threshold)
            steps = f"{here.steps:,.0f}" if math.isfinite(here.steps) else ""
            row += [text(here), steps, ratio(runs[row[0]], fastest, threshold)]
    for row in found:
        loads = [x["other_cores"] for x in runs[row[0]] if x["other_cores"] is not None]
        ends = dict.fromkeys(f"{x:.2f}" for x in (min(loads, default=0), max(loads, default=0)))
        highest = statistics.median(best(x) for x in runs[row[0]])
        row += [
            f"{highest:,.0f}" if math.isfinite(highest) else "",
            "–".join(ends) if loads else "unknown",
        ]
    return [[*header, "best return", "cores used by others"], *found]


def markdown(title: str, cells: list[list[str]]) -> str:
    """A table as Markdown."""
    header, *body = (f"| {' | '.join(row)} |" for row in cells)
    return "\n".join([f"{title}\n", header, "|---" + "|---:" * (len(cells[0]) - 1) + "|", *body])


def show(records: list[Record], as_markdown: bool) -> None:
    """Print the tables."""
    for title, cells in tables(records).items():
        if as_markdown:
            sys.stdout.write(markdown(title, cells) + "\n\n")
            continue
        table = Table(title=title, title_justify="left")
        for i, column in enumerate(cells[0]):
            table.add_column(column, justify="right" if i else "left", no_wrap=not i)
        for row in cells[1:]:
            table.add_row(*row, style="bold" if CONTENDERS[row[0]] in OURS else None)
        speed.console.print(table)


def curves_of(task: str, records: Iterable[Record]) -> dict[tuple[str, Limit], list[Any]]:
    """The curves of a task by contender and limit."""
    found: dict[tuple[str, Limit], list[Any]] = {}
    for x in records:
        if x["task"] == task:
            found.setdefault((x["label"], Limit(**x["limit"])), []).append(x["curve"])
    return found


def median_curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[tuple[float, float]]:
    """Medians over seeds of the seconds and the return, at the evaluations that all have."""
    points = zip(*curves, strict=False)
    return [
        (statistics.median(x[1] for x in some), statistics.median(x[2] for x in some))
        for some in points
    ]


def draw(records: list[Record], out: Path) -> None:
    """Return against minutes, one panel per task: seeds thin, the median bold."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from disc.report import plots

    tasks = [task for task in THRESHOLDS if any(x["task"] == task for x in records)]
    labels = [label for label in CONTENDERS if any(x["label"] == label for x in records)]
    columns = min(3, len(tasks))
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(4.6 * columns + 2.0, 4.2 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).reshape(-1)
    for axes, task in zip(grid, tasks, strict=False):
        for (label, _), curves in curves_of(task, records).items():
            look = appearance(CONTENDERS[label])
            for curve in curves:
                minutes = [seconds / 60 for _, seconds, _ in curve]
                values = [value for _, _, value in curve]
                axes.plot(minutes, values, **look | {"linewidth": 0.7, "alpha": 0.4, "marker": ""})
            middle = median_curve(curves)
            axes.plot([x / 60 for x, _ in middle], [y for _, y in middle], **look)
        for threshold in THRESHOLDS[task]:
            axes.axhline(threshold, color="#888888", linewidth=0.8, zorder=0)
        axes.set_title(task, fontsize="medium")
        axes.set_xlabel("minutes")
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[::columns]:
        axes.set_ylabel("evaluated return")
    handles = [Line2D([], [], label=label, **appearance(CONTENDERS[label])) for label in labels]
    look = {"frameon": False, "handlelength": 3.2}
    if len(grid) > len(tasks):  # in the place of a panel
        grid[-1].legend(handles=handles, loc="center", ncols=1 + len(handles) // 12, **look)
    else:
        figure.legend(handles=handles, loc="outside right center", **look)
    for axes in grid[len(tasks) :]:
        axes.set_axis_off()
    plots.save(figure, out)


def appearance(contender: Contender) -> dict[str, Any]:
    """Colour by algorithm, dashes by library; a marker where a peer has our settings."""
    name = contender.label if contender.algorithm == "disc" else contender.algorithm
    peer_with_ours = contender.library != "disc" and contender.choice == "ours"
    return {
        "color": COLORS[name],
        "linestyle": STYLES[contender.library],
        "linewidth": 2.4 if contender.library == "disc" else 1.7,
        "marker": "o" if peer_with_ours else "",
        "markersize": 3.5,
        "markevery": 0.1,
    }


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.time_to_score")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--tasks", nargs="+", default=list(THRESHOLDS), choices=list(THRESHOLDS))
    labels = ", ".join(CONTENDERS)
    parser.add_argument("--contenders", nargs="+", default=["*"], help=f"patterns for {labels}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--minutes", type=float, default=15.0, help="limit of a run's clock")
    limited = "limit of a run's steps; also what our learning rates anneal over"
    parser.add_argument("--steps", type=int, default=3_000_000, help=limited)
    parser.add_argument("--every", type=int, default=10_000, help="steps between evaluations")
    parser.add_argument("--cores", type=int, default=2)
    speed.add_options(parser, "time_to_score.json")
    parser.add_argument("--figure", type=Path, help="draw the curves into this .png or .svg")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--show", action="store_true", help="only print and draw what is recorded")
    parser.add_argument("--dry-run", action="store_true", help="only list the runs that are left")
    options = parser.parse_args()
    if options.figure and options.figure.suffix not in (".png", ".svg"):
        parser.error(f"{options.figure}: the name of a figure must end in .png or .svg")
    return options


def forecast(runs: list[Run], records: list[Record], limit: Limit) -> str:
    """How long some runs take at worst."""
    clock = sum(x["seconds"] for x in records)
    share = sum(x["evaluating_seconds"] for x in records) / clock if clock else EVALUATING
    hours = len(runs) * limit.minutes / 60
    return (
        f"{len(runs)} run{'s' if len(runs) != 1 else ''}: at most {hours:.2f} hours of the clock, "
        f"about {hours * (1 + share):.2f} with evaluations."
    )


def main() -> None:
    """Do the runs that are not recorded, then print the tables."""
    options = parse()
    limit = Limit(options.minutes, options.steps, options.every, options.cores)
    wanted = choose(options.tasks, options.contenders, options.seeds, not options.no_peers)
    runs = left(wanted, read(options.out), limit)
    if options.dry_run:
        for run in runs:
            speed.say(f"{run.task}, {run.contender.label}, seed {run.seed}")
        speed.say(forecast(runs, read(options.out), limit))
        return
    failed: list[str] = []
    for path in filter(None, (options.out, options.figure)):  # fail before the first run
        path.parent.mkdir(parents=True, exist_ok=True)
    if runs and not options.show:
        speed.say(forecast(runs, read(options.out), limit))
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # every run compiles
        options.no_peers |= all(run.contender.library == "disc" for run in runs)
        with speed.peers(options) as python:
            failed = sit(runs, limit, python, options.out)
    names = {(run.task, run.contender.label) for run in wanted}
    found = [x for x in read(options.out) if (x["task"], x["label"]) in names]
    if not found:
        speed.say(f"{options.out}: has no such runs.")
    show(found, options.markdown)
    if options.figure and found:
        draw(found, options.figure)
    if failed:
        raise SystemExit(f"Failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
