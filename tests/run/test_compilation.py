"""One run per algorithm whose programs no other test has compiled."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, NamedTuple

import jax
import pytest

from disc.run.agent import AGENTS, Agent
from tests.support.small import QUIET, small

SEVERAL_BATCHES = ("disc", "ppo-amber")


class Run(NamedTuple):
    """What was seen during a run."""

    algorithm: str
    options: set[str]  # all of the algorithm
    read: set[str]  # those that some code looked at
    compiled: list[int]  # programs until the end of each iteration
    batches: list[float]  # included in each iteration


@pytest.fixture(scope="module", params=list(AGENTS))
def run(request: pytest.FixtureRequest) -> Run:
    name = request.param
    config, read = AGENTS[name].algorithm.Config, set[str]()
    options = [field.name for field in dataclasses.fields(config)]
    compiled: list[str] = []
    counts: list[tuple[int, float]] = []

    def spy(self: Any, option: str) -> Any:
        """Copying and validating a config reads every option, which says nothing."""
        code = sys._getframe(1).f_code
        copies = code.co_filename == dataclasses.__file__
        validates = code.co_name == "__post_init__" or code.co_qualname.startswith("Checker.")
        if not copies and not validates:
            read.add(option)
        return object.__getattribute__(self, option)

    def values(self: Any) -> tuple[Any, ...]:
        return tuple(object.__getattribute__(self, option) for option in options)

    def listen(event: str, seconds: float, **_: Any) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    def watch(agent: Agent, row: dict[str, float]) -> None:
        counts.append((len(compiled), row.get("is/batches", 1.0)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "__hash__", lambda self: hash(values(self)))
        patch.setattr(config, "__eq__", lambda self, other: values(self) == values(other))
        own = {"widths": (15, 16)}  # in no other test, so that this run compiles its programs
        if name in SEVERAL_BATCHES:
            own |= {"replay_length": 8, "epsilon_b": 0.05}
        agent = small(AGENTS[name], "Hopper-v5", **own)
        patch.setattr(config, "__getattribute__", spy)
        jax.monitoring.register_event_duration_secs_listener(listen)
        agent.training.state = agent.algorithm.init(agent.config, agent.env.spec, 1, 0)
        agent.learn(2048, callbacks=[watch], **QUIET)
    numbers, batches = zip(*counts, strict=True)
    return Run(name, set(options), read, list(numbers), list(batches))


def test_every_option_is_read(run: Run) -> None:
    """No option may be without effect."""
    assert run.options - run.read == set()


def test_nothing_compiles_after_the_first_iteration(run: Run) -> None:
    """The number of included batches changes, but no shape does."""
    assert run.compiled[0] > 0
    assert len(set(run.compiled)) == 1
    assert len(set(run.batches)) > 1 or run.algorithm not in SEVERAL_BATCHES
