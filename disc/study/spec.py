"""Experiments: TOML files that define arms, tasks, seeds and steps."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, get_origin

from disc import storage
from disc.algos import ALGORITHMS
from disc.envs.factory import Maker
from disc.envs.tasks import GRID, TASKS
from disc.learning.config import DEFAULT_PRESET, OLD_PRESET, Preset, make_config
from disc.options import Checker, convert, count, kinds
from disc.run.training import CHECKPOINT_EVERY, DEFAULT_TRACK, PLANNED, BestBy, Plan, Track
from disc.types import DiscError

PAPER = Path(__file__).parent / "paper"
"""The paper's experiments."""
FEWEST_EVALUATIONS = 25  # in a shortened run, if the full run has that many
MOST_RUNS = 100_000  # maximum of runs, or curves in figures
ARMS = 1_000
LONGEST = 255  # maximum bytes of a directory's name
WIDEST = 10_000  # maximum points of a trailing mean
LIMITS = ("best", "stop_at", "patience")
PER_TASK = ("steps", "anneal_steps", "eval_every", "stop_at")  # entries by task


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
    best: BestBy = "mean"
    stop_at: float | None = None
    patience: int = 0
    track: tuple[Track, ...] = DEFAULT_TRACK

    def __hash__(self) -> int:
        return hash((self.path, self.steps))

    @property
    def path(self) -> Path:
        """Its directory within the sweep's directory."""
        return Path(plain(self.task), f"{self.arm.name}_seed{self.seed}")

    @property
    def kind(self) -> tuple[str, str]:
        """What its speed depends on: the task and the arm's name."""
        return self.task, self.arm.name

    @property
    def options(self) -> dict[str, Any]:
        """Options of its algorithm, including the learning rate's `anneal_steps` if it has one."""
        fields = {x.name for x in dataclasses.fields(ALGORITHMS[self.arm.algorithm].Config)}
        own = {"anneal_steps": self.anneal_steps} if "anneal_steps" in fields else {}
        return {**self.arm.options, **own}

    @property
    def limited(self) -> bool:
        """Whether its evaluations choose a policy or an end in another way than by default."""
        return any(getattr(self, name) != getattr(Cell, name) for name in LIMITS)

    def command(self, root: Path) -> list[str]:
        """The arguments of `disc` that start this run."""
        args = ["train", self.task, "--algo", self.arm.algorithm, "--seed", str(self.seed)]
        args += ["--steps", str(self.steps), "--threads", "1", "--out", str(root / self.path)]
        args += ["--eval-every", str(self.eval_every), "--eval-episodes", str(self.eval_episodes)]
        args += ["--checkpoint-every", str(self.checkpoint_every)]
        args += ["--preset", self.arm.preset, "--no-check", "--no-plots"]
        for name in LIMITS:
            if (value := getattr(self, name)) != getattr(Cell, name):
                args += _flag(name, value)
        if self.track != DEFAULT_TRACK:
            args += _flag("track", self.track)
        if self.arm.num_envs != 1:
            args += ["--num-envs", str(self.arm.num_envs)]
        defaults = ALGORITHMS[self.arm.algorithm].Config
        for name, value in self.options.items():
            args += _flag(name, value, switch=getattr(defaults, name, True) is not None)
        if self.arm.env_kwargs:
            pairs = self.arm.env_kwargs.items()
            args += ["--env-kwargs", *itertools.chain(*((n, json.dumps(v)) for n, v in pairs))]
        return args

    def differences(self, config: Mapping[str, Any]) -> list[str]:
        """Differences between a run's `config.json` and this cell, except the steps."""
        plan, asked = config["plan"], self.options
        wanted = self.config(asked, self.arm.preset)
        pairs = {
            "algorithm": (config["algorithm"], self.arm.algorithm),
            "env": (config["env"], Maker(self.task).name),
            "env_kwargs": (config["env_kwargs"], self.arm.env_kwargs),
            "seed": (config["seed"], self.seed),
            "num_envs": (config["num_envs"], self.arm.num_envs),
            **{n: (plan.get(n, getattr(Cell, n, None)), getattr(self, n)) for n in PLANNED[1:]},
        }
        then = self.config({}, OLD_PRESET)
        filled = left_open(self.arm.algorithm, Maker(self.task).name)
        for name, value in dataclasses.asdict(wanted).items():
            found = config["config"].get(name, getattr(then, name))  # missing in older files
            if name in wanted.by_actions:
                found, value = (filled.get(name) if x is None else x for x in (found, value))
                if value is None:
                    continue  # the environment decides, and is not known here
            pairs[name] = (_as_list(found), _as_list(value))
        return [
            f"{name} is {found}, not {asked}"
            for name, (found, asked) in pairs.items()
            if found != asked
        ]

    def config(self, options: dict[str, Any], preset: str) -> Any:
        """The config of its algorithm with these options."""
        algorithm, num_envs = ALGORITHMS[self.arm.algorithm], self.arm.num_envs
        config = make_config(algorithm, options, preset, num_envs)
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
    eval_every: dict[str, int]  # of each task
    eval_episodes: int = 10
    checkpoint_every: int = CHECKPOINT_EVERY
    best: BestBy = "mean"
    stop_at: dict[str, float] = field(default_factory=dict)  # of each task, if it has one
    patience: int = 0
    table: bool = True
    figures: tuple[Figure, ...] = ()
    paper: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """The paper's numbers by arm label and task: the value and, if given, its ±."""
    note: str = ""
    scale: float = 1.0  # of all steps, including the learning rate's
    cut: int | None = None  # steps after which runs stop early, without changing the annealing

    def __post_init__(self) -> None:
        """Raise a `DiscError` that names the first entry that is invalid."""
        for name in ("name", "title", "best", "table", "note", "scale"):
            convert(name, getattr(self, name), kinds(Experiment)[name])
        for name in ("eval_episodes", "checkpoint_every", "patience"):
            count(name, getattr(self, name))
        Checker(self)("scale", 0.0 < self.scale <= 1.0, "above 0 and at most 1")
        if self.cut is not None:
            count("steps", self.cut)

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
        every = self.eval_every[task]
        if every:
            evaluations = max(1, min(FEWEST_EVALUATIONS, self.steps[task] // every))
            every = max(1, min(every, whole // evaluations))
        plan = (every, self.eval_episodes, self.checkpoint_every)
        limits = (self.best, self.stop_at.get(task), self.patience)
        return Cell(task, arm, seed, steps, anneal, *plan, *limits)

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
            seeds=tuple(count("seed", x) for x in seeds) if seeds else self.seeds,
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


def left_open(algorithm: str, env: str) -> dict[str, Any]:
    """What options that are None become in a run on one of the paper's tasks; empty on others.

    A new run records these values; older runs recorded None.
    """
    sizes = [task.action_size for task in TASKS.values() if task.id == env]
    if not sizes:
        return {}
    config = make_config(ALGORITHMS[algorithm], {}, "recommended").for_actions(sizes[0])
    return {option: getattr(config, option) for option in config.by_actions}


def _flag(name: str, value: Any, switch: bool = True) -> list[str]:
    """An option as command-line arguments; a truth value that may be None is not a switch."""
    dashed = name.replace("_", "-")
    if switch and isinstance(value, bool):
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
    """The experiment in a TOML file.

    Raises:
        DiscError: it can't be read, or an entry is invalid, which the message names.
    """
    contents = read_toml(path)
    try:
        every = (arm for given in _tables(contents, "arms") for arm in _expand(given))
        found = _experiment(path.stem, contents, list(itertools.islice(every, ARMS + 1)))
        _check_names(found)
        return found
    except DiscError as error:
        raise DiscError(f"{path}: {error}") from error
    except storage.MALFORMED as error:
        raise DiscError(f"{path}: can't be read as an experiment ({error}).") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file; raises a `DiscError` if it can't be read."""
    try:
        return tomllib.loads(storage.read_text(path))
    except (OSError, RecursionError, ValueError) as error:
        raise DiscError(f"{path}: can't be read ({error}).") from error


def from_json(text: str, path: Path) -> Experiment:
    """Parse the output of `as_json`, possibly of an older version.

    Names of directories depend on the options of arms, so these are kept unchanged. Steps,
    figures and the paper's numbers may be of tasks and arms that were left out.

    Raises:
        DiscError: an entry is invalid.
    """
    try:
        contents = storage.parse(text)
        name, scale, cut = (
            contents.pop("name"),
            contents.pop("scale", 1.0),
            contents.pop("cut", None),
        )
        contents["figures"] = [
            {n: x for n, x in figure.items() if (n, x) != ("arms", [])}
            for figure in contents["figures"]
        ]
        arms = [_arm({"preset": OLD_PRESET, **given}) for given in _tables(contents, "arms")]
        return replace(_experiment(name, contents, arms), scale=scale, cut=cut)
    except (DiscError, *storage.MALFORMED) as error:
        why = str(error).removesuffix(".")
        raise DiscError(f"{path}: can't be read as an experiment ({why}).") from error


def _experiment(name: str, contents: dict[str, Any], arms: Sequence[Arm]) -> Experiment:
    """The experiment with these arms and the other entries of a file, all of them checked."""
    known = {x.name for x in dataclasses.fields(Experiment)} - {"name", "scale", "cut"}
    for key in contents:
        if key not in known:
            raise DiscError(f"an experiment has no entry {key!r}; choose from {listed(known)}.")
    if not arms:
        raise DiscError("has no [[arms]]; add at least one, with an algo.")
    if not contents.get("tasks"):
        raise DiscError('has no tasks; add a list, such as tasks = ["hopper"].')
    tasks = check_list("tasks", contents["tasks"])
    steps = _by_task(contents, "steps", tasks, {n: task.steps for n, task in TASKS.items()})
    every = dict.fromkeys(tasks, GRID) | {n: task.eval_every for n, task in TASKS.items()}
    seeds = check_list("seeds", contents.get("seeds", list(range(5))), partial(count, "seed"))
    figures = tuple(map(_figure, _tables(contents, "figures"))) or (Figure("Learning curves"),)
    special = {
        "arms": tuple(arms),
        "tasks": tasks,
        "seeds": seeds,
        "steps": steps,
        "anneal_steps": _by_task(contents, "anneal_steps", tasks, steps),
        "eval_every": _by_task(contents, "eval_every", tasks, every),
        "stop_at": _stop_at(contents.get("stop_at", {}), tasks),
        "figures": figures,
        "paper": _paper(contents.get("paper", {})),
    }
    found = Experiment(**{"name": name, "title": name, **contents, **special})
    check_runs(found)
    return found


def check_runs(found: Experiment) -> None:
    """Raise a `DiscError` if there are too many runs, or different ones would share a directory."""
    curves = sum(len(figure.metric) for figure in found.figures)
    runs = len(found.arms) * len(found.tasks) * max(len(found.seeds), curves)
    if len(found.arms) > ARMS or runs > MOST_RUNS:
        raise DiscError(f"has more than {ARMS:,} arms, or more than {MOST_RUNS:,} runs or curves.")
    label, often = Counter(arm.label for arm in found.arms).most_common(1)[0]
    if often > 1:
        raise DiscError(f"two arms have the label {label!r}.")
    arms, tasks = dict[str, Arm](), dict[str, str]()
    for arm in found.arms:
        other = arms.setdefault(arm.name, arm)
        if other[1:] != arm[1:]:
            both = f"the arms {other.label!r} and {arm.label!r}"
            raise DiscError(f"{both} would share the directories {arm.name}_seed….")
    for task in found.tasks:
        first = tasks.setdefault(plain(task), task)
        if first != task:
            raise DiscError(f"{first!r} and {task!r} would share the directory {plain(task)}.")
    for task, arm in itertools.product(found.tasks, found.arms):
        cell = found.cell(task, arm, max(found.seeds))
        count("anneal_steps", cell.anneal_steps)
        Plan(**{name: getattr(cell, name) for name in PLANNED})
        if max(len(part.encode()) for part in cell.path.parts) > LONGEST:
            raise DiscError(f"the name of the directory of {arm.label!r} on {task!r} is too long.")


def _check_names(found: Experiment) -> None:
    """Raise a `DiscError` if an entry is of a task or an arm that the experiment does not have."""
    labels = [arm.label for arm in found.arms]
    by_label = [("a figure", list(figure.arms)) for figure in found.figures]
    for where, names in [*by_label, ("[paper]", list(found.paper))]:
        for label in names:
            if label not in labels:
                raise DiscError(f"{where} has the unknown arm {label!r}; use {listed(labels)}.")
    by_task = [(f"paper.{label}", list(numbers)) for label, numbers in found.paper.items()]
    by_task += [(key, list(getattr(found, key))) for key in PER_TASK]
    for where, names in by_task:
        for task in names:
            if task not in found.tasks:
                raise DiscError(f"[{where}] has {task!r}, which is not one of the tasks.")


def check_type(name: str, value: Any, kind: Any) -> Any:
    """The value as this type. A number must not be too large for a figure."""
    found = convert(name, value, kind)
    if isinstance(found, float) and not abs(found) < storage.DRAWN:
        raise DiscError(f"{name} must be a number within ±{storage.DRAWN:g}, not {value!r}.")
    return found


def check_list(name: str, value: Any, check: Callable[[Any], Any] | None = None) -> tuple[Any, ...]:
    """The entries of a list without duplicates, each checked; strings by default."""
    if not isinstance(value, list) or not value:
        raise DiscError(f"{name} must be a list of one or more entries, not {value!r}.")
    found = tuple(map(check or partial(convert, f"an entry of {name}", kind=str), value))
    for entry, often in Counter(found).items():
        if often > 1:
            raise DiscError(f"{name} has {entry!r} twice.")
    return found


def check_table(name: str, value: Any) -> dict[str, Any]:
    """The value, if it is a table."""
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
    missing = [task for task in tasks if task not in found and task not in default]
    if missing:
        raise DiscError(f"has no {key} for {listed(missing)}; add {key} = a number.")
    result = {task: found[task] if task in found else default[task] for task in tasks}
    result |= found  # tasks that were left out
    return {task: count(key, number) for task, number in result.items()}


def _stop_at(given: Any, tasks: Sequence[str]) -> dict[str, float]:
    """One return for all tasks, or a table by task."""
    found = given if isinstance(given, dict) else dict.fromkeys(tasks, given)
    return {task: check_type("stop_at", value, float) for task, value in found.items()}


def _expand(given: dict[str, Any]) -> Iterator[Arm]:
    """One arm per combination of the options that are lists, in the TOML of an arm.

    An arm keeps only the options that differ from the defaults.
    """
    options = dict(given)
    fixed = {"algorithm": options.pop("algo", None)}
    fixed |= {"label": options.pop("label")} if "label" in options else {}
    axes = {name: _axis(name, value) for name, value in options.items()}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        summary = _summary({name: chosen[name] for name in axes if len(axes[name]) > 1})
        run = {name: chosen.pop(name) for name in Arm._fields[3:] if name in chosen}
        arm = _arm({**fixed, **run})
        config, default = (
            make_config(ALGORITHMS[arm.algorithm], x, arm.preset, arm.num_envs)
            for x in (chosen, {})
        )
        config.check_num_envs(arm.num_envs)
        found = {name: getattr(config, name) for name in chosen}
        own = {n: _as_list(value) for n, value in found.items() if value != getattr(default, n)}
        yield arm._replace(label=f"{arm.label} {summary}".strip(), options=own)


def single_arm(given: Mapping[str, Any]) -> Arm:
    """The arm of a table in which no list is an axis; as in a file, only other options are kept.

    Raises:
        DiscError: an entry is invalid.
    """
    named = ("algo", "label")
    return next(_expand({n: x if n in named else [x] for n, x in given.items()}))


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


def _arm(fields: dict[str, Any]) -> Arm:
    """An arm with its fields checked, except the values of the algorithm's options."""
    algorithm = fields["algorithm"]
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise DiscError(f"an arm's algo must be one of {listed(ALGORITHMS)}, not {algorithm!r}.")
    arm = Arm(**{"label": algorithm, **fields})
    convert("an arm's label", arm.label, str)
    check_table("options", arm.options)
    count("num_envs", arm.num_envs)
    check_table("env_kwargs", arm.env_kwargs)
    convert("preset", arm.preset, Preset)
    try:
        json.dumps(arm.env_kwargs, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DiscError(f"env_kwargs must be valid JSON values ({error}).") from error
    return arm


def _figure(given: dict[str, Any]) -> Figure:
    for name in given:
        if name not in Figure._fields:
            raise DiscError(f"a figure has no {name!r}; choose from {listed(Figure._fields)}.")
    if "title" not in given:
        raise DiscError("a figure has no title; add title = a string.")
    found: dict[str, Any] = {}
    for name, value in given.items():
        what = f"a figure's {name}"
        if get_origin(kinds(Figure)[name]) is tuple:
            found[name] = check_list(what, [value] if isinstance(value, str) else value)
        else:
            found[name] = check_type(what, value, kinds(Figure)[name])
    count("a figure's window", found.get("window", 1), (1, WIDEST))
    return Figure(**found)


def _paper(given: Any) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for label, numbers in check_table("paper", given).items():
        found[label] = {}
        for task, number in check_table(f"paper.{label}", numbers).items():
            pair = number if isinstance(number, list) else [number]
            if not 1 <= len(pair) <= 2:
                raise DiscError(f"[paper.{label}] {task} must be a number, or a number and its ±.")
            found[label][task] = [check_type(f"[paper.{label}] {task}", x, float) for x in pair]
    return found


def listed(entries: Any) -> str:
    """Names in a sentence, sorted."""
    return ", ".join(sorted(map(str, entries)))
