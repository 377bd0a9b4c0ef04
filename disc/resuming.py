"""Going on with a run exactly where it stopped."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from disc import checkpoint, runs, terminal
from disc.agent import AGENTS, Agent
from disc.config import OLD_PRESET, make_config
from disc.recovery import bring_back
from disc.runs import RunDirectory
from disc.tasks import Maker, Source
from disc.train import Callback, Plan
from disc.types import DiscError


def resume(
    run: str | Path,
    steps: int | None = None,
    *,
    env: Source | None = None,
    threads: int | None = None,
    on_nan: runs.OnNan | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
) -> Agent:
    """Go on with a run, exactly as if it had not stopped.

    Args:
        run: a run directory.
        steps: the run's steps in all; as planned when it began if None.
        env: the environment, for a run whose environment was an object or a function, or is made
            by a `package.module:factory` or from a path: a file can't choose what is imported.
        threads: cores to use; as when the run began if None.
        on_nan: see `Agent.learn`; as when the run began if None.
        callbacks: see `Agent.learn`.
        progress: show a progress bar on standard error.
    """
    directory = RunDirectory.open(Path(run))
    try:
        say = partial(terminal.make_console(progress).print, markup=False)
        agent, plan = _prepare(directory, steps, env, threads, say)
        if on_nan is not None:
            runs.check_on_nan(on_nan, written=True)
            directory.config["on_nan"] = on_nan
        agent.metrics = directory.rewind(agent)
        directory.extend(agent.state.step, plan)
    except BaseException:
        directory.close()
        raise
    return agent._run(plan, directory, tuple(callbacks), progress)


def _prepare(
    directory: RunDirectory,
    steps: int | None,
    env: Source | None,
    threads: int | None,
    say: Callable[[str], None],
) -> tuple[Agent, Plan]:
    """The agent as it was at the newest checkpoint that is whole, and what it is to do."""
    run, config = directory.path, directory.config
    maker = _maker(directory, env, say)
    runs.check_counts(steps=steps, threads=threads)
    plan = dataclasses.replace(directory.plan, steps=steps or directory.plan.steps)
    if config["algorithm"] not in AGENTS:
        raise DiscError(f"{run}: there is no algorithm {config['algorithm']!r} here.")
    kind = AGENTS[config["algorithm"]]
    preset = config.get("preset", OLD_PRESET)
    make_config(kind.algorithm, config["config"], preset)  # which must name no other argument
    agent = kind(
        maker.source,
        seed=config["seed"],
        num_envs=config["num_envs"],
        threads=threads or config["threads"],
        env_kwargs=dict(maker.kwargs),
        preset=preset,
        **config["config"],
    )
    found, complaints = checkpoint.newest(directory.checkpoints, agent.state)
    for complaint in complaints:
        say(f"{complaint} Going on from what was saved before it.")
    if found is None:
        say(f"{run}: nothing was saved yet; the run begins again.")
    step = found.state.step if found else 0
    newest = checkpoint.place(directory.checkpoints, step)
    checkpoint.prune(newest, later=False)  # a kill may have come before that
    if plan.steps <= step and not (found and found.unscored):
        raise DiscError(f"{run}: is at step {step:,} already; give more with --steps.")
    if found is not None:
        bring_back(agent, found, say)
    return agent, plan


def _maker(directory: RunDirectory, env: Source | None, say: Callable[[str], None]) -> Maker:
    """What the user named, or else what the run's `config.json` does, if that is no function."""
    run, recipe, kwargs = directory.path, directory.config["env"], directory.config["env_kwargs"]
    if env is None:
        if recipe is None:
            raise DiscError(
                f"{run}: its environment was made in Python; use disc.resume(…, env=…)."
            )
        how = f"add `--env {shlex.quote(recipe)}` (in Python env={recipe!r})"
        return Maker.from_file(run, recipe, kwargs, how)
    if isinstance(env, str) and Maker(env).name != recipe:
        if kwargs:
            say(f"{run}: its env_kwargs are left out, as it was made by {recipe}, not {env}.")
        kwargs = {}
    return Maker(env, kwargs)
