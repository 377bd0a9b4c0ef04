"""One run of an experiment, and the experiment: arms on tasks with seeds, for so many steps.

A cell is one of its runs, and a cell's directory is a run directory.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from disc import runs, sound, untrusted
from disc.algos import ALGORITHMS
from disc.config import DEFAULT_PRESET, OLD_PRESET, Preset, make_config
from disc.tasks import Maker
from disc.types import DiscError

FEWEST_EVALUATIONS = 25  # of a shortened run, if the whole one has as many


class Arm(NamedTuple):
    """An algorithm with options of its own: a column of a table, a curve of a figure."""

    label: str
    algorithm: str
    options: dict[str, Any] = {}  # those of the algorithm that are not its defaults  # noqa: RUF012
    num_envs: int = 1
    env_kwargs: dict[str, Any] = {}  # noqa: RUF012
    preset: Preset = DEFAULT_PRESET

    @property
    def name(self) -> str:
        """What its directories are called: the algorithm and the options that tell it apart."""
        run = {"num_envs": self.num_envs} if self.num_envs != 1 else {}
        preset = [self.preset] if ALGORITHMS[self.algorithm].Config.paper else []
        options = sorted({**self.options, **run, **self.env_kwargs}.items())
        words = [f"{plain(name)}={plain(value)}" for name, value in options]
        return "_".join([self.algorithm, *preset, *words])


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
        return Path(plain(self.task), f"{self.arm.name}_seed{self.seed}")

    @property
    def options(self) -> dict[str, Any]:
        """Of its algorithm, with the horizon of the learning rate where it has one."""
        fields = {x.name for x in dataclasses.fields(ALGORITHMS[self.arm.algorithm].Config)}
        own = {"anneal_steps": self.anneal_steps} if "anneal_steps" in fields else {}
        return {**own, **self.arm.options, **own}

    def command(self, root: Path) -> list[str]:
        """The words behind `disc` that make this run."""
        words = ["train", self.task, "--algo", self.arm.algorithm, "--seed", str(self.seed)]
        words += ["--steps", str(self.steps), "--threads", "1", "--out", str(root / self.path)]
        words += ["--eval-every", str(self.eval_every), "--eval-episodes", str(self.eval_episodes)]
        words += ["--checkpoint-every", str(self.checkpoint_every)]
        words += ["--preset", self.arm.preset]
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
        then = self._config({}, config.get("preset", OLD_PRESET))
        for name, value in dataclasses.asdict(wanted).items():
            found = config["config"].get(name, getattr(then, name))  # it may be older than that
            pairs[name] = (_comparable(found), _comparable(value))
        return [
            f"{name} is {found}, not {asked}"
            for name, (found, asked) in pairs.items()
            if found != asked
        ]

    def _config(self, options: dict[str, Any], preset: str) -> Any:
        config = make_config(ALGORITHMS[self.arm.algorithm], options, preset)
        return config.suited(Maker(self.task).name).planned(self.anneal_steps)


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
        whole = [self._scaled(steps) for task, steps in self.steps.items() if task in self.tasks]
        if self.cut and self.cut < max(whole, default=0):
            words.append(f"runs cut at {self.cut:,} steps")
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
        fields = untrusted.parse(text)
        fields["arms"] = tuple(Arm(**{"preset": OLD_PRESET, **arm}) for arm in fields["arms"])
        figures = [
            {**x, "arms": tuple(x["arms"]), "metric": tuple(x["metric"])} for x in fields["figures"]
        ]
        fields["figures"] = tuple(Figure(**figure) for figure in figures)
        for name in ("tasks", "seeds"):
            fields[name] = tuple(fields[name])
        found = Experiment(**fields)
        sound.check(found)
        return found
    except (DiscError, *untrusted.MALFORMED) as error:
        why = str(error).removesuffix(".")
        raise DiscError(f"{path}: can't be read as an experiment ({why}).") from error


def _flag(name: str, value: Any) -> list[str]:
    """An option as words of the command line."""
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{dashed}" if value else f"--no-{dashed}"]
    several = value if isinstance(value, list | tuple) else [value]
    return [f"--{dashed}", *map(str, several)]


def _comparable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def plain(value: Any) -> str:
    """A value as a part of a file's name."""
    text = "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = re.sub(r"[^\w.+-]", "-", text)
    return text if text.strip(".") else "-" * max(1, len(text))  # no way up
