"""Back to where a checkpoint was taken: after a stop, or after a number that is none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from disc import checkpoint
from disc.finite import DUMP, NonFinite
from disc.train import Outcome, renew

if TYPE_CHECKING:
    from disc.agent import Agent
    from disc.runs import RunDirectory

ROLLBACKS = 5  # of a run in one process, before it stops after all


def persist(
    agent: Agent,
    train: Callable[[], Outcome],
    directory: RunDirectory | None,
    say: Callable[[str], None],
) -> Outcome:
    """Train; after a number that is not finite write it down and, if so asked, go back.

    Raises:
        NonFinite: it was not asked to go back, or has done so too often.
    """
    for rollbacks in itertools.count():
        try:
            return train()
        except NonFinite as error:
            if directory is None:
                raise
            with suppress(OSError):  # what is to be told matters more
                error.write(directory.path)
                say(f"{directory.path / DUMP} says what was not finite.")
            if directory.config.get("on_nan") != "rollback":
                raise
            if rollbacks == ROLLBACKS:
                error.after(rollbacks)
                raise
            roll_back(agent, directory, error, say)
    raise AssertionError


def bring_back(agent: Agent, found: checkpoint.Checkpoint, say: Callable[..., None]) -> None:
    """Put an agent and its environments where a checkpoint was taken."""
    agent.state, agent.elapsed = found.state, float(found.info["elapsed"])
    agent.unscored = found.unscored
    taken = found.taken
    agent.env.reset(agent.seed, agent.state.step - taken.shape[0] * taken.shape[1])
    agent._started = True
    if taken.size:
        say(f"Taking {taken[..., 0].size:,} steps again to bring back the episode …")
        agent.env.retrace(taken, agent.policy.bound)
    if not np.array_equal(agent.env.where(), found.where):
        say(
            f"{agent.maker.name} does not repeat itself under a seed: a new episode starts here, "
            "and the run will differ from an uninterrupted one."
        )
        renew(agent)


def roll_back(
    agent: Agent, directory: RunDirectory, error: NonFinite, say: Callable[..., None]
) -> None:
    """Put an agent back to its last good checkpoint, or to the start, with half the step size."""
    for array in agent.state.replay:
        array.delete()  # there may not be memory for two
    fresh = agent.algorithm.init(agent.config, agent.env.spec, agent.num_envs, agent.seed)
    found, complaints = checkpoint.newest(directory.checkpoints, fresh)
    for complaint in complaints:
        say(complaint)
    agent.config = agent.config.smaller()
    if found is None:
        agent.state, agent.unscored = fresh, None
        agent.env.reset(agent.seed, 0)
    else:
        bring_back(agent, found, say)
    step = agent.state.step
    agent.metrics = directory.rewind(agent)
    directory.roll_back(step, error.step, agent.config)
    say(f"Back to step {step:,} with half the step size: {error.what}.")
