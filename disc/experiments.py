"""Experiments as data: which arms on which tasks with which seeds, for how long.

An experiment is a TOML file; a cell is one of its runs, and a cell's directory is a run directory.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from disc import runs
from disc.agent import make_config
from disc.algos import ALGORITHMS
from disc.envs import TASKS, Maker
from disc.types import DiscError

FEWEST_EVALUATIONS = 25  # of a run, however short
RUN_OPTIONS = ("num_envs", "env_kwargs")


class Arm(NamedTuple):
    """An algorithm with options of its own: a column of a table, a curve of a figure."""

    label: str
    algorithm: str
    options: dict[str, Any] = {}  # those of the algorithm that are not its defaults  # noqa: RUF012
    num_envs: int = 1
    env_kwargs: dict[str, Any] = {}  # noqa: RUF012

    @property
    def name(self) -> str:
        """What its directories are called: the algorithm and the options that tell it apart."""
        run = {"num_envs": self.num_envs} if self.num_envs != 1 else {}
        options = sorted({**self.options, **run, **self.env_kwargs}.items())
        return "_".join([self.algorithm, *(f"{name}={_plain(value)}" for name, value in options)])


class Figure(NamedTuple):
    """A figure of an experiment: one metric over the steps, or several of one arm."""

    title: str
    metric: tuple[str, ...] = ("eval/return",)  # columns of progress.csv
    label: str = "evaluated return"  # of the vertical axis
    window: int = 10  # of the trailing mean (paper: 10 iterations)
    together: bool = False  # all tasks in one panel; else a panel for each
    arms: tuple[str, ...] = ()  # labels; all if empty
    line: float | None = None  # a horizontal line for comparison


@dataclass(frozen=True)
class Cell:
    """One run of an experiment."""

    task: str
    arm: Arm
    seed: int
    steps: int
    anneal_steps: int
    eval_every: int
    eval_episodes: int
    checkpoint_every: int

    def __hash__(self) -> int:
        return hash((self.path, self.steps))

    @property
    def path(self) -> Path:
        """Its directory within that of the sweep."""
        return Path(_plain(self.task), f"{self.arm.name}_seed{self.seed}")

    @property
    def options(self) -> dict[str, Any]:
        """Of its algorithm, with the horizon of the learning rate where it has one."""
        fields = {x.name for x in dataclasses.fields(ALGORITHMS[self.arm.algorithm].Config)}
        own = {"anneal_steps": self.anneal_steps} if "anneal_steps" in fields else {}
        return {**own, **self.arm.options}

    def command(self, root: Path) -> list[str]:
        """The words behind `disc` that make this run."""
        words = ["train", self.task, "--algo", self.arm.algorithm, "--seed", str(self.seed)]
        words += ["--steps", str(self.steps), "--threads", "1", "--out", str(root / self.path)]
        words += ["--eval-every", str(self.eval_every), "--eval-episodes", str(self.eval_episodes)]
        words += ["--checkpoint-every", str(self.checkpoint_every)]
        if self.arm.num_envs != 1:
            words += ["--num-envs", str(self.arm.num_envs)]
        for name, value in self.options.items():
            words += _flag(name, value)
        if self.arm.env_kwargs:
            pairs = self.arm.env_kwargs.items()
            words += ["--env-kwargs", *itertools.chain(*((n, json.dumps(v)) for n, v in pairs))]
        return words

    def differences(self, config: Mapping[str, Any]) -> list[str]:
        """What a run's `config.json` has otherwise than this cell; the steps don't count."""
        plan, asked = config["plan"], self.options
        wanted = make_config(ALGORITHMS[self.arm.algorithm], asked)
        wanted = wanted.suited(Maker(self.task).name).planned(self.anneal_steps)
        pairs = {
            "algorithm": (config["algorithm"], self.arm.algorithm),
            "env": (config["env"], Maker(self.task).name),
            "env_kwargs": (config["env_kwargs"], self.arm.env_kwargs),
            "seed": (config["seed"], self.seed),
            "num_envs": (config["num_envs"], self.arm.num_envs),
            "eval_every": (plan["eval_every"], self.eval_every),
            "eval_episodes": (plan["eval_episodes"], self.eval_episodes),
            "checkpoint_every": (plan["checkpoint_every"], self.checkpoint_every),
        }
        for name, value in dataclasses.asdict(wanted).items():
            if name in config["config"]:  # an older run may not know an option
                pairs[name] = (_comparable(config["config"][name]), _comparable(value))
        return [
            f"{name} is {found}, not {asked}"
            for name, (found, asked) in pairs.items()
            if found != asked
        ]


@dataclass(frozen=True)
class Experiment:
    """What a file in `experiments/` says."""

    name: str
    title: str
    arms: tuple[Arm, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: dict[str, int]  # of each task
    anneal_steps: dict[str, int]  # over which the learning rate anneals
    eval_every: int = 4_000  # the grid of the paper's tables
    eval_episodes: int = 10
    checkpoint_every: int = runs.CHECKPOINT_EVERY
    table: bool = True
    figures: tuple[Figure, ...] = ()
    paper: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """The paper's numbers: by an arm's label and a task, the value and, if given, its ±."""
    note: str = ""
    scale: float = 1.0  # of all steps, the learning rate's too
    cut: int | None = None  # steps after which runs stop early, on the whole learning rate

    def cells(self) -> list[Cell]:
        """All runs, seed by seed, so that a part of them covers all arms and tasks."""
        return [
            self.cell(task, arm, seed)
            for seed in self.seeds
            for task in self.tasks
            for arm in self.arms
        ]

    def cell(self, task: str, arm: Arm, seed: int) -> Cell:
        """One run."""
        whole = max(1, round(self.scale * self.steps[task]))
        steps = min(whole, self.cut or whole)
        anneal = max(1, round(self.scale * self.anneal_steps[task]))
        every = max(1, min(self.eval_every, whole // FEWEST_EVALUATIONS))
        plan = (every if self.eval_every else 0, self.eval_episodes, self.checkpoint_every)
        return Cell(task, arm, seed, steps, anneal, *plan)

    def narrowed(
        self,
        seeds: Sequence[int] | None = None,
        tasks: Sequence[str] | None = None,
        algos: Sequence[str] | None = None,
    ) -> Self:
        """Only some seeds, tasks, or arms (by label, name or algorithm).

        Raises:
            DiscError: a name is none of the experiment's.
        """
        known = [{arm.label, arm.name, arm.algorithm} for arm in self.arms]
        labels = [name for names in known for name in sorted(names)]
        for given, there, what in ((tasks, self.tasks, "task"), (algos, labels, "arm")):
            for name in given or ():
                if name not in there:
                    choices = ", ".join(dict.fromkeys(there))
                    raise DiscError(f"{self.name} has no {what} {name!r}; it has {choices}.")
        chosen = zip(self.arms, known, strict=True)
        return replace(
            self,
            seeds=tuple(seeds) if seeds else self.seeds,
            tasks=tuple(task for task in self.tasks if not tasks or task in tasks),
            arms=tuple(arm for arm, names in chosen if not algos or names & set(algos)),
        )

    @property
    def shortened(self) -> str:
        """How the runs are shorter than the experiment's, in words; empty if they are not."""
        words = [f"runs shortened to {self.scale:g} of their length"] if self.scale != 1 else []
        words += [f"runs cut at {self.cut:,} steps"] if self.cut else []
        return ", ".join(words)

    def as_json(self) -> str:
        """All of it, for a file beside the runs."""
        fields = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
        named = {name: [x._asdict() for x in fields[name]] for name in ("arms", "figures")}
        return json.dumps({**fields, **named}, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str, path: Path) -> Experiment:
    """What `as_json` wrote.

    Raises:
        DiscError: it is damaged.
    """
    try:
        fields = json.loads(text)
        fields["arms"] = tuple(Arm(**arm) for arm in fields["arms"])
        figures = [
            {**x, "arms": tuple(x["arms"]), "metric": tuple(x["metric"])} for x in fields["figures"]
        ]
        fields["figures"] = tuple(Figure(**figure) for figure in figures)
        for name in ("tasks", "seeds"):
            fields[name] = tuple(fields[name])
        return Experiment(**fields)
    except (TypeError, ValueError, KeyError) as error:
        raise DiscError(f"{path}: can't be read as an experiment ({error}).") from error


def directory() -> Path:
    """Where the paper's experiments lie: in the package, or beside it in a checkout."""
    here = Path(__file__).parent
    packaged = here / "paper" / "experiments"
    return packaged if packaged.is_dir() else here.parent / "experiments"


def names() -> list[str]:
    """The paper's tables and figures that can be reproduced."""
    return sorted(path.stem for path in directory().glob("*.toml"))


def find(name: str) -> Experiment:
    """One of the paper's experiments, by its name.

    Raises:
        DiscError: there is none of that name.
    """
    if name not in names():
        raise DiscError(f"there is no experiment {name!r}; there are {', '.join(names())}.")
    return read(directory() / f"{name}.toml")


def read(path: Path) -> Experiment:
    """The experiment in a file.

    Raises:
        DiscError: it can't be read, or something in it makes no sense; names the place.
    """
    try:
        contents = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DiscError(f"{path}: can't be read ({error}).") from error
    try:
        return _experiment(path.stem, contents)
    except DiscError as error:
        raise DiscError(f"{path}: {error}") from error


def _experiment(name: str, contents: dict[str, Any]) -> Experiment:
    known = {x.name for x in dataclasses.fields(Experiment)} - {"name", "scale", "cut"}
    for key in contents:
        if key not in known:
            raise DiscError(f"there is no {key!r} in an experiment; there are {_list(known)}.")
    arms = tuple(arm for given in _tables(contents, "arms") for arm in _arms(given))
    if not arms:
        raise DiscError("has no [[arms]], and needs one at least, with its algo.")
    tasks = tuple(contents.get("tasks", ()))
    if not tasks or not all(isinstance(task, str) for task in tasks):
        raise DiscError('has no tasks; give a list, such as tasks = ["hopper"].')
    steps = _by_task(contents, "steps", tasks, {n: task.steps for n, task in TASKS.items()})
    labels = [arm.label for arm in arms]
    for label in labels:
        if labels.count(label) > 1:
            raise DiscError(f"two arms have the label {label!r}.")
    counts = {
        n: contents[n] for n in ("eval_every", "eval_episodes", "checkpoint_every") if n in contents
    }
    runs.check_counts(**counts)
    seeds = tuple(contents.get("seeds", range(5)))
    for seed in seeds:
        runs.check_counts(seed=seed)
    figures = tuple(_figure(given, labels) for given in _tables(contents, "figures"))
    return Experiment(
        name=name,
        title=str(contents.get("title", name)),
        arms=arms,
        tasks=tasks,
        seeds=seeds,
        steps=steps,
        anneal_steps=_by_task(contents, "anneal_steps", tasks, steps),
        table=bool(contents.get("table", True)),
        figures=figures or (Figure("Learning curves"),),
        paper=_paper(contents.get("paper", {}), labels),
        note=str(contents.get("note", "")),
        **counts,
    )


def _tables(contents: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = contents.get(key, [])
    if not isinstance(found, list) or not all(isinstance(x, dict) for x in found):
        raise DiscError(f"{key} must be tables, each under [[{key}]].")
    return found


def _by_task(
    contents: dict[str, Any], key: str, tasks: Sequence[str], default: Mapping[str, int]
) -> dict[str, int]:
    """One number for all tasks, or a table of them; where a task is not in it, the default."""
    given = contents.get(key, {})
    found = given if isinstance(given, dict) else dict.fromkeys(tasks, given)
    for task in found:
        if task not in tasks:
            raise DiscError(f"[{key}] names {task!r}, which is none of its tasks.")
    missing = [task for task in tasks if task not in found and task not in default]
    if missing:
        raise DiscError(f"says no {key} for {_list(missing)}; give {key} = a number.")
    result = {task: found[task] if task in found else default[task] for task in tasks}
    for count in result.values():
        runs.check_counts(steps=count)
    return result


def _arms(given: dict[str, Any]) -> Iterator[Arm]:
    """An arm, or one for each value of the options that are lists."""
    given = dict(given)
    algorithm = given.pop("algo", None)
    if algorithm not in ALGORITHMS:
        raise DiscError(f"an arm's algo must be one of {_list(ALGORITHMS)}, not {algorithm!r}.")
    label = given.pop("label", None)
    axes = {name: _axis(name, value) for name, value in given.items()}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        several = {name: chosen[name] for name in axes if len(axes[name]) > 1}
        told = ", ".join(f"{name} = {_plain(value)}" for name, value in several.items())
        yield _arm(algorithm, " ".join(filter(None, [label or algorithm, told])), chosen)


def _axis(name: str, value: Any) -> list[Any]:
    """The values of an option. That of `widths` is a list itself."""
    several = isinstance(value, list) and (name != "widths" or isinstance(value[0], list))
    return value if several else [value]


def _arm(algorithm: str, label: str, chosen: dict[str, Any]) -> Arm:
    run = {name: chosen.pop(name) for name in RUN_OPTIONS if name in chosen}
    runs.check_counts(num_envs=run.get("num_envs", 1))
    config = make_config(ALGORITHMS[algorithm], chosen)
    default = ALGORITHMS[algorithm].Config()
    own = {n: v for n, v in chosen.items() if getattr(config, n) != getattr(default, n)}
    return Arm(label, algorithm, own, **run)


def _figure(given: dict[str, Any], labels: list[str]) -> Figure:
    try:
        metric = given.get("metric", "eval/return")
        several = tuple(metric) if isinstance(metric, list) else (str(metric),)
        figure = Figure(**{**given, "arms": tuple(given.get("arms", ())), "metric": several})
    except TypeError as error:
        raise DiscError(f"a figure has {_list(Figure._fields)} ({error}).") from error
    for label in figure.arms:
        if label not in labels:
            raise DiscError(f"a figure names the arm {label!r}; there are {_list(labels)}.")
    return figure


def _paper(given: dict[str, Any], labels: list[str]) -> dict[str, dict[str, list[float]]]:
    for label in given:
        if label not in labels:
            raise DiscError(f"[paper] names the arm {label!r}; there are {_list(labels)}.")
    return {
        label: {task: list(x) if isinstance(x, list) else [x] for task, x in numbers.items()}
        for label, numbers in given.items()
    }


def _flag(name: str, value: Any) -> list[str]:
    """An option as words of the command line."""
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{dashed}" if value else f"--no-{dashed}"]
    several = value if isinstance(value, list | tuple) else [value]
    return [f"--{dashed}", *map(str, several)]


def _comparable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plain(value: Any) -> str:
    """A value as a part of a file's name."""
    text = "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return re.sub(r"[^\w.+-]", "-", text)


def _list(words: Any) -> str:
    return ", ".join(sorted(map(str, words)))
