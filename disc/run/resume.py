"""Returning to a checkpoint: to resume a run exactly, or to retry after a non-finite value."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from disc.algos import ALGORITHMS
from disc.envs.factory import Maker, Source
from disc.learning.config import OLD_PRESET, stored_options
from disc.options import convert
from disc.run import checkpoint, saving
from disc.run.config import awaits_end, stopped_early
from disc.run.directory import RunDirectory
from disc.run.nonfinite import DUMP, NonFinite
from disc.run.training import OnNan, Plan, Training, check_on_nan
from disc.types import DiscError

ROLLBACKS = 5  # per process, before a run gives up
Say = Callable[[str], None]


@dataclass(frozen=True)
class Overrides:
    """What a resumed run changes; None means as before."""

    steps: int | None = None  # in total
    env: Source | None = None  # needed if the directory may not choose it
    threads: int | None = None
    workers: str | None = None
    on_nan: OnNan | None = None
    stop_at: float | None = None  # infinity turns it off
    patience: int | None = None  # 0 turns it off


def open_run(run: Path, overrides: Overrides, say: Say) -> tuple[Training, Plan, RunDirectory]:
    """A run as it was at its newest undamaged checkpoint, and what is left to do.

    `say` receives what the user should know.

    Raises:
        DiscError: it can't be resumed.
    """
    directory = RunDirectory.open(run)
    try:
        training, plan = _open(directory, overrides, say)
        if overrides.on_nan is not None:
            check_on_nan(overrides.on_nan, written=True)
            directory.config["on_nan"] = overrides.on_nan
        directory.rewind(training, plan)
        directory.extend(training.state.step, plan)
    except BaseException:
        directory.close()
        raise
    return training, plan, directory


def _extended(plan: Plan, overrides: Overrides) -> Plan:
    """The run's plan, with the given values in place of its own.

    Raises:
        DiscError: it is invalid.
    """
    stop_at = convert("stop_at", overrides.stop_at, float | None)
    return dataclasses.replace(
        plan,
        steps=plan.steps if overrides.steps is None else overrides.steps,
        stop_at=plan.stop_at if stop_at is None else None if stop_at == math.inf else stop_at,
        patience=plan.patience if overrides.patience is None else overrides.patience,
    )


def _open(directory: RunDirectory, overrides: Overrides, say: Say) -> tuple[Training, Plan]:
    run, config = directory.path, directory.config
    plan = _extended(directory.plan, overrides)
    maker = _maker(directory, overrides.env, say)
    workers = _workers(directory, overrides.workers)
    if config["algorithm"] not in ALGORITHMS:
        raise DiscError(
            f"{run}: its algorithm {config['algorithm']!r} is not installed; install the package "
            "that registers it."
        )
    algorithm = ALGORITHMS[config["algorithm"]]
    training = Training.create(
        algorithm,
        maker.source,
        seed=config["seed"],
        num_envs=config["num_envs"],
        threads=config["threads"] if overrides.threads is None else overrides.threads,
        workers=workers,
        env_kwargs=dict(maker.kwargs),
        preset=config.get("preset", OLD_PRESET),
        options=stored_options(algorithm, config["config"]),
    )
    found, complaints = checkpoint.newest(directory.checkpoints, training.state)
    for complaint in complaints:
        say(f"{complaint} Resuming from the checkpoint before it.")
    if found is None:
        say(f"{run}: no checkpoint has been saved yet; the run starts from the beginning.")
    step = found.state.step if found else 0
    newest = checkpoint.place(directory.checkpoints, step)
    checkpoint.prune(newest, later=False)  # a kill may have prevented it
    if plan.steps <= step and not (found and found.pending):
        if plan != directory.plan or not awaits_end(config, step):
            raise DiscError(f"{run}: is already at step {step:,}; give a larger --steps.")
    elif stopped_early(config) and config["ended"]["step"] == step:
        before = directory.plan
        limits = (plan.stop_at, plan.patience) == (before.stop_at, before.patience)
        if limits and plan.steps <= before.steps:
            reason = config["ended"]["reason"]
            raise DiscError(
                f"{run}: is finished: it stopped early at step {step:,}, because {reason}. "
                "Give more --steps, or another --stop-at or --patience, to continue."
            )
        plan = dataclasses.replace(plan, limits_from=step)
    if found is not None:
        restore(training, found, say)
    return training, plan


def _maker(directory: RunDirectory, env: Source | None, say: Say) -> Maker:
    """The environment that the user named, or else the run's, if that imports nothing."""
    run, recipe, kwargs = directory.path, directory.config["env"], directory.config["env_kwargs"]
    if env is None:
        if recipe is None:
            raise DiscError(
                f"{run}: its environment was created in Python; use disc.resume(…, env=…)."
            )
        how = f"add `--env {shlex.quote(recipe)}` (in Python env={recipe!r})"
        return Maker.from_file(run, recipe, kwargs, how)
    if isinstance(env, str) and Maker(env).name != recipe:
        if kwargs:
            say(f"{run}: its env_kwargs are ignored: they belong to {recipe}, not {env}.")
        kwargs = {}
    return Maker(env, kwargs)


def _workers(directory: RunDirectory, workers: str | None) -> str | None:
    """The workers that the user named, or else the run's, if that connects to nothing.

    Raises:
        DiscError: the run's are at an address, which an untrusted file must not choose.
    """
    recorded = directory.config.get("workers")
    if workers is None and recorded is not None and ":" in recorded:
        raise DiscError(
            f"{directory.path}: its workers were {recorded}, an address that an untrusted file "
            f"must not choose; if you trust it, add `--workers {shlex.quote(recorded)}` (in Python "
            f"workers={recorded!r}), or choose other workers."
        )
    return workers or recorded


def restore(training: Training, found: checkpoint.Checkpoint, say: Say) -> None:
    """Restore a run and its environments to a checkpoint."""
    training.state, training.elapsed = found.state, float(found.info["elapsed"])
    training.pending, training.best = found.pending, found.best
    if found.best is not None:
        saving.check_fit(training, found.best)
    actions = found.actions_since_reset
    training.env.reset(training.seed, found.reset_step)
    training.started = True
    if actions.size:
        say(f"Repeating {actions[..., 0].size:,} steps to restore the episode …")
        training.env.replay(actions, training.policy.bound)
    if not np.array_equal(training.env.observations(), found.observations):
        say(
            f"{training.maker.name} is not deterministic under a seed: a new episode starts here, "
            "and the run will differ from an uninterrupted one."
        )
        training.renew_episodes()


def recover(
    training: Training,
    directory: RunDirectory | None,
    error: NonFinite,
    rollbacks: int,
    say: Say,
) -> None:
    """Write the non-finite values to a file and roll back, or raise the error again.

    Raises:
        NonFinite: the run may not roll back, or has done so too often.
    """
    if directory is None:
        raise error
    with suppress(OSError):  # the error itself matters more
        error.write(directory.path)
        say(f"{directory.path / DUMP} lists the non-finite values.")
    if directory.config.get("on_nan") != "rollback":
        raise error
    if rollbacks == ROLLBACKS:
        error.after(rollbacks)
        raise error
    roll_back(training, directory, error, say)


def roll_back(training: Training, directory: RunDirectory, error: NonFinite, say: Say) -> None:
    """Return to the last undamaged checkpoint, or to the start, with half the step size."""
    for array in training.state.replay:
        array.delete()  # there may not be memory for two
    fresh = training.algorithm.init(
        training.config, training.env.spec, training.num_envs, training.seed
    )
    found, complaints = checkpoint.newest(directory.checkpoints, fresh)
    for complaint in complaints:
        say(complaint)
    training.config = training.config.with_halved_steps()
    if found is None:
        training.state, training.pending, training.best = fresh, None, None
        training.env.reset(training.seed, 0)
    else:
        restore(training, found, say)
    step = training.state.step
    directory.rewind(training, directory.plan)
    directory.note_rollback(step, error.step, training.config)
    say(f"Back to step {step:,} with half the step size: {error.what}.")
