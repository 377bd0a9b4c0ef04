"""Going on with a run exactly where it stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

from disc import checkpoint, logs, runs
from disc.agent import AGENTS, Agent
from disc.recovery import bring_back
from disc.runs import RunDirectory
from disc.tasks import Source
from disc.train import Callback, Plan
from disc.types import DiscError


def resume(
    run: str | Path,
    steps: int | None = None,
    *,
    env: Source | None = None,
    threads: int | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
) -> Agent:
    """Go on with a run, exactly as if it had not stopped.

    Args:
        run: a run directory.
        steps: the run's steps in all; as planned when it began if None.
        env: the environment, for a run whose environment was an object or a function.
        threads: cores to use; as when the run began if None.
        callbacks: see `Agent.learn`.
        progress: show a progress bar on standard error.
    """
    directory = RunDirectory.open(Path(run))
    try:
        agent, plan = _prepare(directory, steps, env, threads, logs.make_console(progress).print)
        agent.metrics = directory.rewind(agent.state.step)
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
    say: Callable[..., None],
) -> tuple[Agent, Plan]:
    """The agent as it was at the newest checkpoint that is whole, and what it is to do."""
    run, config = directory.path, directory.config
    if env is None and config["env"] is None:
        raise DiscError(f"{run}: its environment was made in Python; use disc.resume(…, env=…).")
    runs.check_counts(steps=steps, threads=threads)
    plan = dataclasses.replace(directory.plan, steps=steps or directory.plan.steps)
    if config["algorithm"] not in AGENTS:
        raise DiscError(f"{run}: there is no algorithm {config['algorithm']!r} here.")
    agent = AGENTS[config["algorithm"]](
        env if env is not None else config["env"],
        seed=config["seed"],
        num_envs=config["num_envs"],
        threads=threads or config["threads"],
        env_kwargs=config["env_kwargs"],
        **config["config"],
    )
    found, complaints = checkpoint.newest(directory.checkpoints, agent.state)
    for complaint in complaints:
        say(f"{complaint} Going on from what was saved before it.", markup=False)
    step = found.state.step if found else 0
    if plan.steps <= step:
        raise DiscError(f"{run}: is at step {step:,} already; give more with --steps.")
    if found is not None:
        bring_back(agent, found, say)
    return agent, plan
