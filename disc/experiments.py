"""Experiments as data: TOML files that say which arms on which tasks with which seeds."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from disc import runs, sound, untrusted
from disc.algos import ALGORITHMS
from disc.cells import Arm, Experiment, Figure, plain
from disc.config import DEFAULT_PRESET, make_config
from disc.tasks import TASKS
from disc.types import DiscError

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
MOST = 1_000  # arms, or entries of a list
LARGE = 10**6  # bytes of a file
FIGURE_KINDS = {"title": str, "label": str, "window": int, "together": bool, "line": float}


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
        text = untrusted.read_text(path, LARGE)
        if any(map(_deep, text.splitlines())):
            raise ValueError("nested too deeply")
        contents = tomllib.loads(text)
        untrusted.check_depth(contents)
    except RecursionError:
        raise DiscError(f"{path}: can't be read (nested too deeply).") from None
    except (OSError, ValueError) as error:
        raise DiscError(f"{path}: can't be read ({error}).") from error
    try:
        found = _experiment(path.stem, contents)
        sound.check(found)
        return found
    except DiscError as error:
        raise DiscError(f"{path}: {error}") from error
    except untrusted.MALFORMED as error:
        raise DiscError(f"{path}: can't be read as an experiment ({error}).") from error


def _deep(line: str) -> bool:
    """Whether a line holds a key of so many parts that reading it would take long."""
    keys = (piece.split(".") for piece in re.split(r"[=,{}\[\]]", line))
    return any(len(x) > untrusted.DEPTH and all(len(y.split()) == 1 for y in x) for x in keys)


def _experiment(name: str, contents: dict[str, Any]) -> Experiment:
    known = {x.name for x in dataclasses.fields(Experiment)} - {"name", "scale", "cut"}
    for key in contents:
        if key not in known:
            raise DiscError(f"there is no {key!r} in an experiment; there are {_list(known)}.")
    every = (arm for given in _tables(contents, "arms") for arm in _arms(given))
    arms = tuple(itertools.islice(every, MOST + 1))  # lists in an arm may multiply to millions
    if len(arms) > MOST:
        raise DiscError(f"has more than {MOST:,} arms.")
    if not arms:
        raise DiscError("has no [[arms]], and needs one at least, with its algo.")
    if not contents.get("tasks"):
        raise DiscError('has no tasks; give a list, such as tasks = ["hopper"].')
    tasks = _several("tasks", contents["tasks"], str)
    _check_apart(arms, tasks)
    steps = _by_task(contents, "steps", tasks, {n: task.steps for n, task in TASKS.items()})
    labels = [arm.label for arm in arms]
    counts = ("eval_every", "eval_episodes", "checkpoint_every")
    seeds = _several("seeds", contents.get("seeds", list(range(5))), int)
    for seed in seeds:
        runs.check_counts(seed=seed)
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
    """Refuse labels, and directories of different runs, that are the same."""
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
    """The value if it is of a kind: true is no number, but a whole one is a number too."""
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise DiscError(f"{name} must be {KINDS[kind]}, not {value!r}.")
    return float(value) if kind is float else value


def _count(name: str, value: Any) -> int:
    runs.check_counts(**{name: _typed(name, value, int)})
    return value


def _several(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    """The entries of a list, each of a kind and there once."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST:
        raise DiscError(f"{name} must be a list of 1 to {MOST:,} entries, not {value!r}.")
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
        runs.check_counts(steps=_typed(key, count, int))
    return result


def _arms(given: dict[str, Any]) -> Iterator[Arm]:
    """An arm, or one for each value of the options that are lists."""
    given = dict(given)
    algorithm = given.pop("algo", None)
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise DiscError(f"an arm's algo must be one of {_list(ALGORITHMS)}, not {algorithm!r}.")
    label = _typed("an arm's label", given.pop("label", algorithm), str)
    axes = {name: _axis(name, value) for name, value in given.items()}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        several = {name: chosen[name] for name in axes if len(axes[name]) > 1}
        yield _arm(algorithm, f"{label} {_told(several)}".strip(), chosen)


def _axis(name: str, value: Any) -> list[Any]:
    """The values of an option. That of `widths` is a list itself."""
    several = isinstance(value, list)
    if several and name == "widths":
        several = any(isinstance(entry, list) for entry in value)
    if several and not value:
        raise DiscError(f"{name} has no values; give one, or a list of them.")
    return value if several else [value]


def _told(options: dict[str, Any]) -> str:
    """Options as a part of a label."""
    parts = [
        _told(value) if isinstance(value, dict) else f"{name} = {plain(value)}"
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
        raise DiscError(f"env_kwargs must be what JSON can hold ({error}).") from error
    known = {x.name: str(x.type) for x in dataclasses.fields(ALGORITHMS[algorithm].Config)}
    options = {n: _option(n, v, known[n]) if n in known else v for n, v in chosen.items()}
    config = make_config(ALGORITHMS[algorithm], options, preset)
    if config.at_once % num_envs:
        raise DiscError(
            f"{label}: num_envs must divide the steps that are collected at once, "
            f"{config.at_once}, and {num_envs} doesn't."
        )
    default = make_config(ALGORITHMS[algorithm], {}, preset)
    own = {n: v for n, v in options.items() if getattr(config, n) != getattr(default, n)}
    return Arm(label, algorithm, own, num_envs, env_kwargs, preset)


def _option(name: str, value: Any, declared: str) -> Any:
    """An option's value, if it is of the type that the algorithm declares."""
    if declared.startswith("tuple"):
        if not isinstance(value, list):
            raise DiscError(f"{name} must be a list of whole numbers, not {value!r}.")
        return [_typed(f"an entry of {name}", entry, int) for entry in value]
    kinds = {"bool": bool, "int": int, "float": float}
    return _typed(name, value, kinds.get(declared.removesuffix(" | None"), str))


def _figure(given: dict[str, Any], labels: list[str]) -> Figure:
    for name in given:
        if name not in Figure._fields:
            raise DiscError(f"a figure has no {name!r}; it has {_list(Figure._fields)}.")
    if "title" not in given:
        raise DiscError("a figure has no title.")
    found: dict[str, Any] = {}
    for name, value in given.items():
        what = f"a figure's {name}"
        if name in FIGURE_KINDS:
            found[name] = _typed(what, value, FIGURE_KINDS[name])
        else:
            found[name] = _several(what, [value] if isinstance(value, str) else value, str)
    figure = Figure(**found)
    runs.check_counts(window=figure.window)
    for label in figure.arms:
        if label not in labels:
            raise DiscError(f"a figure names the arm {label!r}; there are {_list(labels)}.")
    return figure


def _paper(
    given: Any, labels: Sequence[str], tasks: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for label, numbers in _table("paper", given).items():
        if label not in labels:
            raise DiscError(f"[paper] names the arm {label!r}; there are {_list(labels)}.")
        found[label] = {}
        for task, number in _table(f"paper.{label}", numbers).items():
            if task not in tasks:
                raise DiscError(f"[paper.{label}] names {task!r}, which is none of its tasks.")
            pair = number if isinstance(number, list) else [number]
            if not 1 <= len(pair) <= 2:
                raise DiscError(f"[paper.{label}] {task} must be a number, or it and its ±.")
            found[label][task] = [_typed(f"[paper.{label}] {task}", x, float) for x in pair]
    return found


def _list(words: Any) -> str:
    return ", ".join(sorted(map(str, words)))
