"""Untrusted files: whatever their contents, the result is a clear error or a working object.

Loading never runs code, crashes, hangs, exceeds the memory, or leaves the given directory.
"""

from __future__ import annotations

import io
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from rich.console import Console

from disc import storage
from disc.cli import policy as cli_policy
from disc.cli.options import Info
from disc.policy import file as policy_file
from disc.policy.policies import Categorical, Policy
from disc.run import resume
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from disc.run.directory import RunDirectory
from disc.run.training import Training
from disc.types import DiscError
from faults import giants, mutations, studies
from faults.outcome import Outcome, Trial, copied
from faults.short import OPTIONS

ENV = "Pendulum-v1"  # fast to make
DISCRETE = "CartPole-v1"
SECONDS = 5.0  # maximum CPU time to read a file
PATIENCE = 60  # seconds after which it counts as hanging, even on a busy machine
MEMORY = 400_000  # maximum kB that reading a file may allocate
LONGEST = 3_000  # maximum characters of an error

WRAPPED = {"random_steps": 8, "replay_size": 80, "replay_chunks": 9}  # overwrites old steps
KINDS = {
    "gaussian": "disc", "categorical": "ppo", "deterministic": "ddpg", "squashed": "sac",
    "sampler": "sql",
}  # fmt: skip


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """Read thousands of modified files."""
    for what, trials in lines(scratch, rng, scale, ("disc", "trust-pcl", "sac")):
        yield tally(what, trials)
    yield giants.outcome(scratch)


def lines(
    scratch: Path, rng: np.random.Generator, scale: float, trained: Sequence[str]
) -> Iterator[tuple[str, Iterator[Trial]]]:
    """The trials in this process, by their names in the table.

    Args:
        scratch: an empty folder.
        rng: chooses the changes.
        scale: factor of the number of files.
        trained: the algorithms whose runs are modified.
    """
    count, few = (max(5, round(n * scale)) for n in (1500, 150))
    for kind, name in KINDS.items():
        path = save(scratch, name, DISCRETE if kind == "categorical" else ENV)
        yield f"{kind} policies, bytes changed", damaged_policies(path, rng, count)
        yield f"{kind} policies, headers changed", changed_policies(path, rng, count, True)
        yield f"{kind} policies, arrays changed", changed_policies(path, rng, count, False)
        yield f"{kind} policies, loaded as agents", loaded_agents(path, rng, few)
    for name in trained:
        run = train(scratch, name)
        yield f"runs of {name}, config.json changed", changed_runs(run, rng, few)
        yield f"runs of {name}, checkpoint changed", changed_checkpoints(run, rng, few)
    yield from studies.lines(scratch, rng, scale)


# Trials


def tally(what: str, trials: Iterator[Trial]) -> Outcome:
    """Run all trials and count the good ones."""
    tried, losses = 0, []
    for name, trial in trials:
        tried += 1
        loss = attempt(trial)
        if loss:
            losses.append(f"{name}: {loss}")
    remark = "; ".join(losses[:3])[:500] or "an error in one sentence, or it works"
    return Outcome("untrusted", what, tried, tried - len(losses), remark)


def attempt(trial: Callable[[], Any]) -> str:
    """What went wrong; empty if it worked, or ended with a readable one-sentence error."""

    def stop(*_: Any) -> None:
        raise TimeoutError("hangs")

    before, clock = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        trial()
    except DiscError as error:
        message = str(error)
        if not message.isprintable() or len(message) > LONGEST or not message.endswith("."):
            return f"has the message {message[:200]!r}"
    except Exception as error:
        return f"raises {type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    if time.process_time() - clock > SECONDS:
        return f"takes {time.process_time() - clock:.0f} s"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"takes {grown // 1000} MB" if grown > MEMORY else ""


# Policy files


def make(name: str, env: str = ENV) -> Agent:
    """A small agent."""
    wrapped = {option: x for option, x in WRAPPED.items() if option in OPTIONS[name]}
    return AGENTS[name](env, threads=1, **{**OPTIONS[name], **wrapped})


def save(scratch: Path, name: str, env: str = ENV) -> Path:
    """A valid policy file."""
    path = scratch / f"{name}.disc"
    with make(name, env) as agent:
        agent.save(path)
    return path


def damaged_policies(path: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """Files with modified bytes."""
    data, copy = path.read_bytes(), path.with_name("damaged.disc")
    for i in range(count):
        copy.write_bytes(mutations.damaged(data, rng))
        yield f"{i}", partial(act, copy)


def changed_policies(
    path: Path, rng: np.random.Generator, count: int, header: bool
) -> Iterator[Trial]:
    """Files with modified contents and correct checksums; each is also passed to `disc info`."""
    for i, copy in enumerate(rewritten(path, rng, count, header)):
        yield f"{i}", partial(act, copy)
        yield f"{i}, disc info", partial(describe, copy)


def loaded_agents(path: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """The same, loaded as agents for continued training."""
    name = policy_file.read(path).info["algorithm"]

    def load(copy: Path) -> None:
        with AGENTS[name].load(copy) as agent:
            able(agent)

    for header in (True, False):
        for i, copy in enumerate(rewritten(path, rng, count, header)):
            yield f"{i}", partial(load, copy)


def rewritten(path: Path, rng: np.random.Generator, count: int, header: bool) -> Iterator[Path]:
    """Copies of a file with modified headers or arrays."""
    file, copy = policy_file.read(path), path.with_name("changed.disc")
    for _ in range(count):
        arrays = file.tensors if header else mutations.altered(file.tensors, rng)
        info = mutations.changed(file.info, rng) if header else file.info
        mutations.write(copy, arrays, info)
        yield copy


def act(path: Path) -> None:
    """Load a policy and compute actions."""
    use(policy_file.load(path))


def use(acting: Policy) -> None:
    """Compute actions, which must have the right shape and type."""
    with np.errstate(all="ignore"):
        for batch in ((), (3,)):
            x = np.ones((*batch, *acting.observation_shape), np.float32)
            for deterministic in (True, False):
                action, _ = acting.predict(x, deterministic)
                assert np.shape(action) == (*batch, *acting.action_shape), np.shape(action)
                kind = np.asarray(action).dtype.kind
                assert kind in ("iu" if isinstance(acting, Categorical) else "f"), kind


def able(agent: Agent | Training) -> None:
    """Check that an agent acts and can learn: its arrays are real and its config is hashable."""
    use(agent.policy)
    leaves = jax.tree.leaves(agent.state.parameters())
    assert {leaf.dtype.name for leaf in leaves} == {"float32"}
    hash(agent.config)


def describe(path: Path) -> None:
    """`disc info`, on a UTF-8 terminal."""
    screen = io.TextIOWrapper(raw := io.BytesIO(), encoding="utf-8")
    console = Console(file=screen, highlight=False, soft_wrap=True)
    with mock.patch.object(cli_policy, "out", console):
        cli_policy.info(Info(path))
    screen.flush()
    assert b"\x1b]" not in raw.getvalue()


# Run directories


def train(scratch: Path, name: str) -> Path:
    """A finished run."""
    path = scratch / f"run_{name}"
    with make(name) as agent:
        agent.learn(128, out=path, eval_every=64, eval_episodes=1, progress=False)
    return path


def changed_runs(run: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """Runs with a modified `config.json`, which are prepared for resuming."""
    config, data = RunDirectory.open(run), (run / "config.json").read_bytes()
    config.close()
    for i in range(count):
        copy = copied(run, "changed_run")
        message = mutations.text(mutations.changed(config.config, rng))
        (copy / "config.json").write_text(message, encoding="utf-8")
        yield f"{i}", partial(go_on, copy)
        (copy / "config.json").write_bytes(mutations.damaged(data, rng))
        yield f"{i}, bytes", partial(go_on, copy)


def changed_checkpoints(run: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """Runs whose checkpoint has modified contents and a correct checksum."""
    (path,) = (run / "checkpoints").iterdir()
    arrays, info = storage.read_tensors(path, "disc-checkpoint", 1)
    for i in range(count):
        copy = copied(run, "changed_run")
        odd = mutations.altered(arrays, rng) if i % 3 else arrays
        header = info if i % 3 else mutations.changed(info, rng)
        mutations.write(copy / "checkpoints" / path.name, odd, header)
        yield f"{i}", partial(go_on, copy)


def go_on(run: Path) -> None:
    """Do everything that `disc.resume` does before training."""
    overrides = resume.Overrides(steps=10**6, threads=1)
    training, _, directory = resume.open_run(run, overrides, lambda *_: None)
    try:
        able(training)
    finally:
        training.env.close()
        directory.close()
