"""The agents of all algorithms by name, and resuming a run as an agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from disc.algos import ALGORITHMS
from disc.envs.factory import Source
from disc.run import loop, terminal
from disc.run.agent import Agent, Callback
from disc.run.resume import Overrides, open_run
from disc.run.training import OnNan


class Agents(Mapping[str, type[Agent]]):
    """The agents of all registered algorithms, by the algorithms' names."""

    def __init__(self) -> None:
        self._made: dict[str, type[Agent]] = {}

    def __getitem__(self, name: str) -> type[Agent]:
        if name not in self._made:
            algorithm = ALGORITHMS[name]
            body = {"algorithm": algorithm, "__doc__": algorithm.__doc__, "__module__": "disc"}
            self._made[name] = type(getattr(algorithm, "AGENT", name), (Agent,), body)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ALGORITHMS)

    def __len__(self) -> int:
        return len(ALGORITHMS)


AGENTS = Agents()


def agent_named(name: str) -> type[Agent] | None:
    """The agent whose class has this name, such as `TrustPCL`."""
    return next((kind for kind in AGENTS.values() if kind.__name__ == name), None)


def resume(
    run: str | Path,
    steps: int | None = None,
    *,
    env: Source | None = None,
    threads: int | None = None,
    workers: str | None = None,
    on_nan: OnNan | None = None,
    stop_at: float | None = None,
    patience: int | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
) -> Agent:
    """Resume a run, exactly as if it had not stopped.

    Args:
        run: a run directory.
        steps: the run's total steps; as planned when it began if None.
        env: the environment, for a run whose environment was an object or a function, or is made
            by a `package.module:factory` or from a path: a file must not choose what is imported.
        threads: cores to use; as when the run began if None.
        workers: where several environments are stepped; as when the run began if None. May
            differ: the results are the same.
        on_nan: see `Agent.learn`; as when the run began if None.
        stop_at: see `Agent.learn`; as when the run began if None, infinity turns it off. If the
            run was stopped early, `stop_at` and `patience` count only later evaluations.
        patience: see `Agent.learn`; as when the run began if None.
        callbacks: see `Agent.learn`.
        progress: show a progress bar on standard error.
    """
    say = partial(terminal.make_console(progress).print, markup=False)
    overrides = Overrides(
        steps=steps,
        env=env,
        threads=threads,
        workers=workers,
        on_nan=on_nan,
        stop_at=stop_at,
        patience=patience,
    )
    training, plan, directory = open_run(Path(run), overrides, say)
    kind = AGENTS[training.algorithm.NAME]
    agent = kind.__new__(kind)
    agent.training = training
    loop.run(training, plan, directory, [partial(x, agent) for x in callbacks], progress)
    return agent
