"""Files from strangers: whatever is in them, the end is a clear error or something that works.

Loading never runs code, crashes, hangs, takes more memory than there is, or leads out of the
directory that was named.
"""

from __future__ import annotations

import io
import resource
import shutil
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
from disc.policy.policies import Policy
from disc.run import resume
from disc.run.agent import AGENTS, Agent
from disc.run.directory import RunDirectory
from disc.run.training import Training
from disc.types import DiscError
from faults import giants, mutations, studies
from faults.outcome import Outcome

ENV = "Pendulum-v1"  # quick to make
SECONDS = 5.0  # of computing, in which a file must be read
PATIENCE = 60  # seconds after which it hangs, however busy the machine is
MEMORY = 400_000  # kB by which reading one may make the process grow
LONGEST = 3_000  # characters of an error

BATCH = {"horizon": 64, "gradient_steps": 4, "epochs": 1, "widths": (8, 8)}
OFF = {"horizon": 64, "steps_per_update": 8, "random_steps": 8, "replay_size": 80, "widths": (8, 8)}
CHUNKS = {"horizon": 64, "chunk_length": 8, "path_length": 4, "replay_chunks": 9, "widths": (8, 8)}
OPTIONS: dict[str, dict[str, Any]] = {
    "disc": {**BATCH, "replay_length": 3},
    "acktr": {"horizon": 64, "value_steps": 2, "widths": (8, 8)},
    "trust-pcl": {**CHUNKS, "batch_chunks": 4},
    "ddpg": {**OFF, "batch_size": 4},
    "td3": {**OFF, "batch_size": 4},
    "sac": {**OFF, "batch_size": 4},
    "sql": {**OFF, "batch_size": 4},
}
KINDS = {"gaussian": "disc", "deterministic": "ddpg", "squashed": "sac", "sampler": "sql"}

Trial = tuple[str, Callable[[], Any]]  # what it is, for whoever looks into a loss, and itself


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """Read thousands of files that somebody changed."""
    for what, trials in lines(scratch, rng, scale, ("disc", "trust-pcl", "sac")):
        yield tally(what, trials)
    yield giants.outcome(scratch)


def lines(
    scratch: Path, rng: np.random.Generator, scale: float, trained: Sequence[str]
) -> Iterator[tuple[str, Iterator[Trial]]]:
    """What is tried in this process, by its name in the table.

    Args:
        scratch: an empty folder.
        rng: chooses the changes.
        scale: of the numbers of files.
        trained: the algorithms whose runs are changed.
    """
    count, few = (max(5, round(n * scale)) for n in (1500, 150))
    for kind, name in KINDS.items():
        path = save(scratch, name)
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
    """Try all, and say how many ended well."""
    tried, losses = 0, []
    for name, trial in trials:
        tried += 1
        loss = attempt(trial)
        if loss:
            losses.append(f"{name}: {loss}")
    remark = "; ".join(losses[:3])[:500] or "an error in one sentence, or it works"
    return Outcome("strangers", what, tried, tried - len(losses), remark)


def attempt(trial: Callable[[], Any]) -> str:
    """What went wrong; nothing if it worked, or ended in one readable sentence."""

    def stop(*_: Any) -> None:
        raise TimeoutError("hangs")

    before, clock = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        trial()
    except DiscError as error:
        said = str(error)
        if not said.isprintable() or len(said) > LONGEST or not said.endswith("."):
            return f"says {said[:200]!r}"
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


def make(name: str) -> Agent:
    """A small agent."""
    return AGENTS[name](ENV, threads=1, **OPTIONS[name])


def save(scratch: Path, name: str) -> Path:
    """A valid policy file."""
    path = scratch / f"{name}.disc"
    with make(name) as agent:
        agent.save(path)
    return path


def damaged_policies(path: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """Files with other bytes."""
    data, copy = path.read_bytes(), path.with_name("damaged.disc")
    for i in range(count):
        copy.write_bytes(mutations.damaged(data, rng))
        yield f"{i}", partial(act, copy)


def changed_policies(
    path: Path, rng: np.random.Generator, count: int, header: bool
) -> Iterator[Trial]:
    """Files that say something else, with the right checksum; each is described as well."""
    for i, copy in enumerate(rewritten(path, rng, count, header)):
        yield f"{i}", partial(act, copy)
        yield f"{i}, disc info", partial(describe, copy)


def loaded_agents(path: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """The same, as agents that could learn on."""
    name = policy_file.read(path).info["algorithm"]

    def load(copy: Path) -> None:
        with AGENTS[name].load(copy) as agent:
            able(agent)

    for header in (True, False):
        for i, copy in enumerate(rewritten(path, rng, count, header)):
            yield f"{i}", partial(load, copy)


def rewritten(path: Path, rng: np.random.Generator, count: int, header: bool) -> Iterator[Path]:
    """A file with another header, or other arrays, again and again."""
    file, copy = policy_file.read(path), path.with_name("changed.disc")
    for _ in range(count):
        arrays = file.tensors if header else mutations.altered(file.tensors, rng)
        info = mutations.changed(file.info, rng) if header else file.info
        mutations.write(copy, arrays, info)
        yield copy


def act(path: Path) -> None:
    """Load a policy and let it act."""
    use(policy_file.load(path))


def use(acting: Policy) -> None:
    """Let a policy act: what it gives must be of the right shape and type."""
    with np.errstate(all="ignore"):
        for batch in ((), (3,)):
            x = np.ones((*batch, *acting.observation_shape), np.float32)
            for deterministic in (True, False):
                action, _ = acting.predict(x, deterministic)
                assert action.shape == (*batch, *acting.action_shape), action.shape
                assert action.dtype == np.float32, action.dtype


def able(agent: Agent | Training) -> None:
    """An agent that acts, and has all it needs to learn: real numbers and a config for XLA."""
    use(agent.policy)
    leaves = jax.tree.leaves(agent.state.parameters())
    assert {leaf.dtype.name for leaf in leaves} == {"float32"}
    hash(agent.config)


def describe(path: Path) -> None:
    """`disc info`, on a terminal that knows UTF-8 only."""
    screen = io.TextIOWrapper(raw := io.BytesIO(), encoding="utf-8")
    console = Console(file=screen, highlight=False, soft_wrap=True)
    with mock.patch.object(cli_policy, "out", console):
        cli_policy.info(Info(path))
    screen.flush()
    assert b"\x1b]" not in raw.getvalue()


# Run directories


def train(scratch: Path, name: str) -> Path:
    """A run at its end."""
    path = scratch / f"run_{name}"
    with make(name) as agent:
        agent.learn(128, out=path, eval_every=64, eval_episodes=1, progress=False)
    return path


def changed_runs(run: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """Runs with another `config.json`, which are got ready to go on."""
    config, data = RunDirectory.open(run), (run / "config.json").read_bytes()
    config.close()
    for i in range(count):
        copy = again(run)
        said = mutations.text(mutations.changed(config.config, rng))
        (copy / "config.json").write_text(said, encoding="utf-8")
        yield f"{i}", partial(go_on, copy)
        (copy / "config.json").write_bytes(mutations.damaged(data, rng))
        yield f"{i}, bytes", partial(go_on, copy)


def changed_checkpoints(run: Path, rng: np.random.Generator, count: int) -> Iterator[Trial]:
    """Runs whose checkpoint says something else, with the right checksum."""
    (path,) = (run / "checkpoints").iterdir()
    arrays, info = storage.read_tensors(path, "disc-checkpoint", 1)
    for i in range(count):
        copy = again(run)
        odd = mutations.altered(arrays, rng) if i % 3 else arrays
        header = info if i % 3 else mutations.changed(info, rng)
        mutations.write(copy / "checkpoints" / path.name, odd, header)
        yield f"{i}", partial(go_on, copy)


def again(run: Path) -> Path:
    """A fresh copy of a run."""
    copy = run.with_name("changed_run")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    return copy


def go_on(run: Path) -> None:
    """Do all that `disc.resume` does before it trains."""
    training, _, directory = resume.open_run(run, 10**6, None, 1, None, lambda *_: None)
    try:
        able(training)
    finally:
        training.env.close()
        directory.close()
