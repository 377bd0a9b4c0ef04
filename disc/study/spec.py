"""Experiments: TOML files that define arms, tasks, seeds and steps."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

from disc import storage
from disc.algos import ALGORITHMS
from disc.envs.factory import Maker
from disc.envs.tasks import TASKS
from disc.learning.config import DEFAULT_PRESET, OLD_PRESET, Preset, make_config
from disc.run.training import CHECKPOINT_EVERY, check_counts
from disc.types import DiscError

PAPER = Path(__file__).parent / "paper"
"""The paper's experiments."""
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
FIGURE_KINDS = {"title": str, "label": str, "window": int, "together": bool, "line": float}
FEWEST_EVALUATIONS = 25  # of a shortened run, if the full run has as many
MOST_RUNS = 100_000  # maximum of runs, or curves in figures
ARMS = 1_000
LONGEST = 255  # maximum bytes of a directory's name
WIDEST = 10_000  # maximum points of a trailing mean


class Arm(NamedTuple):
    """An algorithm with some options: a row of a table, a curve of a figure."""

    label: str
    algorithm: str
    options: dict[str, Any] = {}  # other than the defaults  # noqa: RUF012
    num_envs: int = 1
    env_kwargs: dict[str, Any] = {}  # noqa: RUF012
    preset: Preset = DEFAULT_PRESET

    @property
    def name(self) -> str:
        """The name of its directories: the algorithm and the options that differ."""
        run = {"num_envs": self.num_envs} if self.num_envs != 1 else {}
        preset = [self.preset] if ALGORITHMS[self.algorithm].Config.paper else []
        options = sorted({**self.options, **run, **self.env_kwargs}.items())
        parts = [f"{plain(name)}={plain(value)}" for name, value in options]
        return "_".join([self.algorithm, *preset, *parts])


class Figure(NamedTuple):
    """A figure of an experiment: one metric over the steps, or several metrics of one arm."""

    title: str
    metric: tuple[str, ...] = ("eval/return",)  # columns of progress.csv
    label: str = "evaluated return"  # of the vertical axis
    window: int = 10  # of the trailing mean (paper: 10 iterations)
    together: bool = False  # all tasks in one panel; else one panel per task
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
        """Its directory within the sweep's directory."""
        return Path(plain(self.task), f"{self.arm.name}_seed{self.seed}")

    @property
    def options(self) -> dict[str, Any]:
        """Options of its algorithm, including the learning rate's `anneal_steps` if it has one."""
        fields = {x.name for x in dataclasses.fields(ALGORITHMS[self.arm.algorithm].Config)}
        own = {"anneal_steps": self.anneal_steps} if "anneal_steps" in fields else {}
        return {**own, **self.arm.options, **own}

    def command(self, root: Path) -> list[str]:
        """The arguments of `disc` that start this run."""
        args = ["train", self.task, "--algo", self.arm.algorithm, "--seed", str(self.seed)]
        args += ["--steps", str(self.steps), "--threads", "1", "--out", str(root / self.path)]
        args += ["--eval-every", str(self.eval_every), "--eval-episodes", str(self.eval_episodes)]
        args += ["--checkpoint-every", str(self.checkpoint_every)]
        args += ["--preset", self.arm.preset]
        if self.arm.num_envs != 1:
            args += ["--num-envs", str(self.arm.num_envs)]
        for name, value in self.options.items():
            args += _flag(name, value)
        if self.arm.env_kwargs:
            pairs = self.arm.env_kwargs.items()
            args += ["--env-kwargs", *itertools.chain(*((n, json.dumps(v)) for n, v in pairs))]
        return args

    def differences(self, config: Mapping[str, Any]) -> list[str]:
        """Differences between a run's `config.json` and this cell, except the steps."""
        plan, asked = config["plan"], self.options
        wanted = self._config(asked, self.arm.preset)
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
        then = self._config({}, OLD_PRESET)
        for name, value in dataclasses.asdict(wanted).items():
            found = config["config"].get(name, getattr(then, name))  # missing in older files
            pairs[name] = (_as_list(found), _as_list(value))
        return [
            f"{name} is {found}, not {asked}"
            for name, (found, asked) in pairs.items()
            if found != asked
        ]

    def _config(self, options: dict[str, Any], preset: str) -> Any:
        config = make_config(ALGORITHMS[self.arm.algorithm], options, preset)
        return config.for_task(Maker(self.task).name).for_steps(self.anneal_steps)


@dataclass(frozen=True)
class Experiment:
    """The contents of a file in `experiments/`."""

    name: str
    title: str
    arms: tuple[Arm, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: dict[str, int]  # of each task
    anneal_steps: dict[str, int]  # over which the learning rate anneals
    eval_every: int = 4_000  # the grid of the paper's tables
    eval_episodes: int = 10
    checkpoint_every: int = CHECKPOINT_EVERY
    table: bool = True
    figures: tuple[Figure, ...] = ()
    paper: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """The paper's numbers by arm label and task: the value and, if given, its ±."""
    note: str = ""
    scale: float = 1.0  # of all steps, including the learning rate's
    cut: int | None = None  # steps after which runs stop early, without changing the annealing

    def cells(self) -> list[Cell]:
        """All runs, ordered by seed, so that early results cover all arms and tasks."""
        return [
            self.cell(task, arm, seed)
            for seed in self.seeds
            for task in self.tasks
            for arm in self.arms
        ]

    def cell(self, task: str, arm: Arm, seed: int) -> Cell:
        """One run."""
        whole = self._scaled(self.steps[task])
        steps = min(whole, self.cut or whole)
        anneal = self._scaled(arm.options.get("anneal_steps", self.anneal_steps[task]))
        every = self.eval_every
        if every:
            evaluations = max(1, min(FEWEST_EVALUATIONS, self.steps[task] // every))
            every = max(1, min(every, whole // evaluations))
        plan = (every, self.eval_episodes, self.checkpoint_every)
        return Cell(task, arm, seed, steps, anneal, *plan)

    def _scaled(self, steps: int) -> int:
        return max(1, round(self.scale * steps))

    def narrowed(
        self,
        seeds: Sequence[int] | None = None,
        tasks: Sequence[str] | None = None,
        algos: Sequence[str] | None = None,
    ) -> Self:
        """Only some seeds, tasks, or arms (by label, name or algorithm).

        Raises:
            DiscError: the experiment has no such task or arm.
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
        """A description of how the runs are shortened; empty if they are not."""
        parts = [f"runs shortened to {self.scale:g} of their length"] if self.scale != 1 else []
        whole = [self._scaled(steps) for task, steps in self.steps.items() if task in self.tasks]
        if self.cut and self.cut < max(whole, default=0):
            parts.append(f"runs cut at {self.cut:,} steps")
        return ", ".join(parts)

    def as_json(self) -> str:
        """The experiment as JSON, for a file in the sweep's directory."""
        fields = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
        named = {name: [x._asdict() for x in fields[name]] for name in ("arms", "figures")}
        return json.dumps({**fields, **named}, indent=1, ensure_ascii=False) + "\n"


def _flag(name: str, value: Any) -> list[str]:
    """An option as command-line arguments."""
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{dashed}" if value else f"--no-{dashed}"]
    several = value if isinstance(value, list | tuple) else [value]
    return [f"--{dashed}", *map(str, several)]


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def plain(value: Any) -> str:
    """A value as part of a file name."""
    text = "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = re.sub(r"[^\w.+-]", "-", text)
    return text if text.strip(".") else "-" * max(1, len(text))  # prevents ".."


def names() -> list[str]:
    """The paper's tables and figures that can be reproduced."""
    return sorted(path.stem for path in PAPER.glob("*.toml"))


def find(name: str) -> Experiment:
    """One of the paper's experiments, by name.

    Raises:
        DiscError: there is no experiment with this name.
    """
    if name not in names():
        raise DiscError(f"there is no experiment {name!r}; choose from {', '.join(names())}.")
    return read(PAPER / f"{name}.toml")


def read(path: Path) -> Experiment:
    """The experiment in a file.

    Raises:
        DiscError: it can't be read, or an entry is invalid, which the message names.
    """
    try:
        contents = tomllib.loads(storage.read_text(path))
    except (OSError, RecursionError, ValueError) as error:
        raise DiscError(f"{path}: can't be read ({error}).") from error
    try:
        found = _experiment(path.stem, contents)
        check(found)
        return found
    except DiscError as error:
        raise DiscError(f"{path}: {error}") from error
    except storage.MALFORMED as error:
        raise DiscError(f"{path}: can't be read as an experiment ({error}).") from error


def _experiment(name: str, contents: dict[str, Any]) -> Experiment:
    known = {x.name for x in dataclasses.fields(Experiment)} - {"name", "scale", "cut"}
    for key in contents:
        if key not in known:
            raise DiscError(f"there is no {key!r} in an experiment; choose from {_list(known)}.")
    arms = tuple(arm for given in _tables(contents, "arms") for arm in _arms(given))
    if not arms:
        raise DiscError("has no [[arms]]; add at least one, with an algo.")
    if not contents.get("tasks"):
        raise DiscError('has no tasks; add a list, such as tasks = ["hopper"].')
    tasks = _several("tasks", contents["tasks"], str)
    _check_apart(arms, tasks)
    steps = _by_task(contents, "steps", tasks, {n: task.steps for n, task in TASKS.items()})
    labels = [arm.label for arm in arms]
    counts = ("eval_every", "eval_episodes", "checkpoint_every")
    seeds = _several("seeds", contents.get("seeds", list(range(5))), int)
    for seed in seeds:
        check_counts(seed=seed)
    figures = tuple(_figure(given, labels) for given in _tables(contents, "figures"))
    return Experiment(
        name=name,
        title=_typed("title", contents.get("title", name), str),
        arms=arms,
        tasks=tasks,
        seeds=seeds,
        steps=steps,
        anneal_steps=_by_task(contents, "anneal_steps", tasks, steps),
        table=_typed("table", contents.get("table", True), bool),
        figures=figures or (Figure("Learning curves"),),
        paper=_paper(contents.get("paper", {}), labels, tasks),
        note=_typed("note", contents.get("note", ""), str),
        **{count: _count(count, contents[count]) for count in counts if count in contents},
    )


def _check_apart(arms: Sequence[Arm], tasks: Sequence[str]) -> None:
    """Raise a `DiscError` if arms share labels, or different runs share directories."""
    for one, other in itertools.combinations(arms, 2):
        if one.label == other.label:
            raise DiscError(f"two arms have the label {one.label!r}.")
        if one.name == other.name and one[1:] != other[1:]:
            both = f"the arms {one.label!r} and {other.label!r}"
            raise DiscError(f"{both} would share the directories {one.name}_seed….")
    for first, second in itertools.combinations(tasks, 2):
        if plain(first) == plain(second):
            raise DiscError(f"{first!r} and {second!r} would share the directory {plain(first)}.")


def _typed(name: str, value: Any, kind: type) -> Any:
    """The value, if it has the type: true is not a number, but an integer is also a float."""
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise DiscError(f"{name} must be {KINDS[kind]}, not {value!r}.")
    return float(value) if kind is float else value


def _count(name: str, value: Any) -> int:
    check_counts(**{name: _typed(name, value, int)})
    return value


def _several(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    """The entries of a list, with their type checked and without duplicates."""
    if not isinstance(value, list) or not value:
        raise DiscError(f"{name} must be a list of one or more entries, not {value!r}.")
    found = tuple(_typed(f"an entry of {name}", entry, kind) for entry in value)
    for entry, often in Counter(found).items():
        if often > 1:
            raise DiscError(f"{name} has {entry!r} twice.")
    return found


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DiscError(f"{name} must be a table, not {value!r}.")
    return value


def _tables(contents: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = contents.get(key, [])
    if not isinstance(found, list) or not all(isinstance(x, dict) for x in found):
        raise DiscError(f"{key} must be tables, each under [[{key}]].")
    return found


def _by_task(
    contents: dict[str, Any], key: str, tasks: Sequence[str], default: Mapping[str, int]
) -> dict[str, int]:
    """One number for all tasks, or a table by task; missing tasks get the default."""
    given = contents.get(key, {})
    found = given if isinstance(given, dict) else dict.fromkeys(tasks, given)
    for task in found:
        if task not in tasks:
            raise DiscError(f"[{key}] has {task!r}, which is not one of the tasks.")
    missing = [task for task in tasks if task not in found and task not in default]
    if missing:
        raise DiscError(f"has no {key} for {_list(missing)}; add {key} = a number.")
    result = {task: found[task] if task in found else default[task] for task in tasks}
    for count in result.values():
        check_counts(steps=_typed(key, count, int))
    return result


def _arms(given: dict[str, Any]) -> Iterator[Arm]:
    """One arm per combination of the options that are lists."""
    given = dict(given)
    algorithm = given.pop("algo", None)
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise DiscError(f"an arm's algo must be one of {_list(ALGORITHMS)}, not {algorithm!r}.")
    label = _typed("an arm's label", given.pop("label", algorithm), str)
    axes = {name: _axis(name, value) for name, value in given.items()}
    if (count := math.prod(map(len, axes.values()))) > ARMS:
        raise DiscError(f"the lists of arm {label!r} give {count:,} arms; at most {ARMS:,}.")
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        several = {name: chosen[name] for name in axes if len(axes[name]) > 1}
        yield _arm(algorithm, f"{label} {_summary(several)}".strip(), chosen)


def _axis(name: str, value: Any) -> list[Any]:
    """The values of an option. A single value of `widths` is a list."""
    several = isinstance(value, list)
    if several and name == "widths":
        several = any(isinstance(entry, list) for entry in value)
    if several and not value:
        raise DiscError(f"{name} has no values; give one or more.")
    return value if several else [value]


def _summary(options: dict[str, Any]) -> str:
    """Options as part of a label."""
    parts = [
        _summary(value) if isinstance(value, dict) else f"{name} = {plain(value)}"
        for name, value in options.items()
    ]
    return ", ".join(filter(None, parts))


def _arm(algorithm: str, label: str, chosen: dict[str, Any]) -> Arm:
    num_envs = _count("num_envs", chosen.pop("num_envs", 1))
    env_kwargs = _table("env_kwargs", chosen.pop("env_kwargs", {}))
    preset = _typed("preset", chosen.pop("preset", DEFAULT_PRESET), str)
    try:
        json.dumps(env_kwargs, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DiscError(f"env_kwargs must be valid JSON values ({error}).") from error
    config = make_config(ALGORITHMS[algorithm], chosen, preset)
    config.check_num_envs(num_envs)
    default = make_config(ALGORITHMS[algorithm], {}, preset)
    values = {name: getattr(config, name) for name in chosen}
    own = {n: _as_list(v) for n, v in values.items() if v != getattr(default, n)}
    return Arm(label, algorithm, own, num_envs, env_kwargs, preset)


def _figure(given: dict[str, Any], labels: list[str]) -> Figure:
    for name in given:
        if name not in Figure._fields:
            raise DiscError(f"a figure has no {name!r}; choose from {_list(Figure._fields)}.")
    if "title" not in given:
        raise DiscError("a figure has no title; add title = a text.")
    found: dict[str, Any] = {}
    for name, value in given.items():
        what = f"a figure's {name}"
        if name in FIGURE_KINDS:
            found[name] = _typed(what, value, FIGURE_KINDS[name])
        else:
            found[name] = _several(what, [value] if isinstance(value, str) else value, str)
    figure = Figure(**found)
    check_counts(window=figure.window)
    for label in figure.arms:
        if label not in labels:
            raise DiscError(f"a figure has the unknown arm {label!r}; use {_list(labels)}.")
    return figure


def _paper(
    given: Any, labels: Sequence[str], tasks: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for label, numbers in _table("paper", given).items():
        if label not in labels:
            raise DiscError(f"[paper] has the unknown arm {label!r}; use {_list(labels)}.")
        found[label] = {}
        for task, number in _table(f"paper.{label}", numbers).items():
            if task not in tasks:
                raise DiscError(f"[paper.{label}] has {task!r}, which is not one of the tasks.")
            pair = number if isinstance(number, list) else [number]
            if not 1 <= len(pair) <= 2:
                raise DiscError(f"[paper.{label}] {task} must be a number, or a number and its ±.")
            found[label][task] = [_typed(f"[paper.{label}] {task}", x, float) for x in pair]
    return found


def _list(entries: Any) -> str:
    return ", ".join(sorted(map(str, entries)))


def from_json(text: str, path: Path) -> Experiment:
    """Parse the output of `as_json`.

    Raises:
        DiscError: it is damaged.
    """
    try:
        fields = storage.parse(text)
        fields["arms"] = tuple(Arm(**{"preset": OLD_PRESET, **arm}) for arm in fields["arms"])
        figures = [
            {**x, "arms": tuple(x["arms"]), "metric": tuple(x["metric"])} for x in fields["figures"]
        ]
        fields["figures"] = tuple(Figure(**figure) for figure in figures)
        for name in ("tasks", "seeds"):
            fields[name] = tuple(fields[name])
        found = Experiment(**fields)
        check(found)
        return found
    except (DiscError, *storage.MALFORMED) as error:
        why = str(error).removesuffix(".")
        raise DiscError(f"{path}: can't be read as an experiment ({why}).") from error


def check(found: Experiment) -> None:
    """Validate an experiment from an untrusted file.

    Raises:
        DiscError: an entry has the wrong type or size, or there are too many.
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError: the same.
    """
    _all(str, found.name, found.title, found.note, *found.tasks, *(x.label for x in found.arms))
    _all(bool, found.table, *(figure.together for figure in found.figures))
    _all(dict, *(x for arm in found.arms for x in (arm.options, arm.env_kwargs)))
    for arm in found.arms:
        if arm.preset not in get_args(Preset):
            raise DiscError(f"there is no preset {arm.preset!r}.")
    drawn = sum(len(figure.metric) for figure in found.figures)
    many = len(found.arms) * len(found.tasks) * max(1, len(found.seeds), drawn)
    if len(found.arms) > ARMS:
        raise DiscError(f"has more than {ARMS:,} arms.")
    if not found.arms or not found.tasks or many > MOST_RUNS:
        raise DiscError(f"has no arms, no tasks, or more than {MOST_RUNS:,} runs or curves.")
    counts = ("eval_every", "eval_episodes", "checkpoint_every")
    check_counts(**{name: getattr(found, name) for name in counts}, steps=found.cut)
    if not 0.0 < found.scale <= 1.0:
        raise DiscError(f"scale must be above 0 and at most 1, not {found.scale!r}.")
    for seed in found.seeds:
        check_counts(seed=seed)
    for task, arm in itertools.product(found.tasks, found.arms):
        check_counts(steps=found.steps[task], num_envs=arm.num_envs)
        cell = found.cell(task, arm, max(found.seeds, default=0))
        check_counts(anneal_steps=cell.anneal_steps)
        cell.command(Path())
        if max(len(part.encode()) for part in cell.path.parts) > LONGEST:
            raise DiscError(f"the name of the directory of {arm.label!r} on {task!r} is too long.")
    for figure in found.figures:
        _all(str, figure.title, figure.label, *figure.metric, *figure.arms)
        _number(*() if figure.line is None else (figure.line,))
        if not 1 <= figure.window <= WIDEST:
            raise DiscError(f"a figure's window must be 1 to {WIDEST:,}, not {figure.window!r}.")
    for numbers in found.paper.values():
        for pair in numbers.values():
            _number(pair[0], *pair[1:])


def _all(kind: type, *values: Any) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is not of type {kind.__name__}")


def _number(*values: Any) -> None:
    for value in values:
        if not isinstance(value, int | float) or not abs(value) < storage.DRAWN:
            raise ValueError(f"{value!r} can't be plotted")
