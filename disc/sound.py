"""Whether what was read from a file can be an experiment: the kinds, sizes and number of all."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from disc import runs, untrusted
from disc.config import Preset
from disc.types import DiscError

if TYPE_CHECKING:
    from disc.cells import Experiment

MOST = 100_000  # runs, or curves in figures
ARMS = 1_000
LONGEST = 255  # bytes of a directory's name
WIDEST = 10_000  # points of a trailing mean


def check(found: Experiment) -> None:
    """Look at all that a file may hold otherwise than a sweep writes it.

    Raises:
        DiscError: something is of the wrong kind or size, or there is too much of it.
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError: likewise.
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
    if not found.arms or not found.tasks or many > MOST:
        raise DiscError(f"it has no arms, no tasks, or more than {MOST:,} runs or curves.")
    counts = ("eval_every", "eval_episodes", "checkpoint_every")
    runs.check_counts(**{name: getattr(found, name) for name in counts}, steps=found.cut)
    if not 0.0 < found.scale <= 1.0:
        raise DiscError(f"scale must be above 0 and at most 1, not {found.scale!r}.")
    for seed in found.seeds:
        runs.check_counts(seed=seed)
    for task, arm in itertools.product(found.tasks, found.arms):
        runs.check_counts(steps=found.steps[task], num_envs=arm.num_envs)
        cell = found.cell(task, arm, max(found.seeds, default=0))
        runs.check_counts(anneal_steps=cell.anneal_steps)
        cell.command(Path())
        if max(len(part.encode()) for part in cell.path.parts) > LONGEST:
            raise DiscError(f"the directory of {arm.label!r} on {task!r} has too long a name.")
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
            raise TypeError(f"{value!r} is no {kind.__name__}")


def _number(*values: Any) -> None:
    for value in values:
        if not isinstance(value, int | float) or not abs(value) < untrusted.DRAWN:
            raise ValueError(f"{value!r} can't be drawn")
