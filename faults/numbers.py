"""Non-finite values: detected in the iteration in which they arise, dumped, rolled back.

Every algorithm is trained from the command line while its updates are corrupted: one entry of one
array that an update changes becomes NaN or infinity; or rewards are so large that a loss overflows.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

import disc
from disc.report import plots
from disc.run import log
from disc.run.agents import AGENTS
from disc.run.nonfinite import DUMP
from faults import broken, short
from faults.environments import command
from faults.outcome import Outcome

STEPS, EVERY, BAD = 256, 64, 192  # total, per iteration, after the corrupted update
MEANT = ("state/['returns']", "state/['lengths']", "replay/log_std")  # NaN marks empty entries

Spoil = Callable[[Any, Any, Any], tuple[Any, Any]]  # (config, state, metrics) → state, metrics


def train(algo: str, path: Path, spoil: Spoil, *cli_args: str, env: str = "Sound") -> Any:
    """`disc train` with `spoil` applied after each update."""
    module: Any = AGENTS[algo].algorithm
    update = module.update

    def spoiled(config: Any, state: Any, threads: int) -> Any:
        return spoil(config, *update(config, state, threads))

    plan = {"algo": algo, "steps": STEPS, "checkpoint_every": EVERY, "eval_every": 0, "threads": 1}
    options = [*short.cli_args({**plan, **short.OPTIONS[algo], "horizon": EVERY}), "--no-check"]
    drawing = dict.fromkeys(("curves", "diagnostics"), mock.DEFAULT)
    with mock.patch.object(module, "update", spoiled), mock.patch.multiple(plots, **drawing):
        return command("train", f"{broken.__name__}:{env}", *options, *cli_args, "--out", path)


def moving(state: Any) -> tuple[list[tuple[str, jax.Array]], Callable[[list[Any]], Any]]:
    """All float arrays that updates change, and a function that makes a state of them."""
    names = [x.name for x in dataclasses.fields(state) if x.name not in ("replay", "bounds")]
    fields = {name: getattr(state, name) for name in names}
    leaves, tree = jax.tree_util.tree_flatten_with_path(fields)

    def join(values: list[Any]) -> Any:
        return dataclasses.replace(state, **jax.tree.unflatten(tree, values))

    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves], join


def spoiling(which: float, value: float, above: float = 0.0) -> Spoil:
    """Corrupt one entry of one array after step BAD, or after the last update before it.

    Args:
        which: position of the array among all arrays, as a fraction.
        value: new value of the entry.
        above: only if the first learning rate or KL limit is above this.
    """

    def spoil(config: Any, state: Any, metrics: Any) -> tuple[Any, Any]:
        if not BAD - EVERY < state.step <= BAD or step_size(config) <= above:
            return state, metrics
        leaves, join = moving(state)
        floats = [
            i
            for i, (_, x) in enumerate(leaves)
            if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating) and x.size
        ]
        at = floats[int(which * len(floats))]
        values = [leaf for _, leaf in leaves]
        values[at] = values[at].ravel().at[-1].set(value).reshape(values[at].shape)
        return join(values), metrics

    return spoil


def step_size(config: Any) -> float:
    """The option that `with_halved_steps` halves."""
    name = next(n for n in vars(config) if "learning_rate" in n or "_kl" in n)
    return float(getattr(config, name))


def nothing(config: Any, state: Any, metrics: Any) -> tuple[Any, Any]:
    """Corrupt nothing."""
    return state, metrics


def stops(algo: str, path: Path, spoil: Spoil) -> str:
    """Check that a run stops with a dump and good checkpoints; returns what went wrong."""
    result = train(algo, path, spoil)
    wanted = r"^disc: the update at step ([\d,]+) gave a non-finite value \(.+\); "
    if result.status != 2 or not (match := re.search(wanted, result.sentence)):
        return f"{algo}: status {result.status}, {result.err[-300:]!r}"
    step = int(match[1].replace(",", ""))
    dump = json.loads((path / DUMP).read_text())
    if not BAD - EVERY < step <= BAD or dump["step"] != step:
        return f"{algo}: detected only at step {step}"
    if not (dump["arrays"] or dump["metrics"]) or "reward" not in dump["batch"]:
        return f"{algo}: the dump is {dump}"
    return _whole(algo, path) or _resumes(algo, path)


def _whole(algo: str, path: Path) -> str:
    """Non-finite arrays in a run's checkpoints, or missing checkpoints."""
    found = sorted((path / "checkpoints").iterdir())
    if [int(re.sub(r"\D", "", file.name)) for file in found] != [BAD - 2 * EVERY, BAD - EVERY]:
        return f"{algo}: the checkpoints are {[file.name for file in found]}"
    return _finite(algo, found)


def _finite(algo: str, files: list[Path]) -> str:
    """Non-finite arrays in some checkpoints."""
    for file in files:
        for name, array in load_file(file).items():
            if array.dtype.kind == "f" and not np.isfinite(array).all() and name not in MEANT:
                return f"{algo}: {name} is not finite in {file.name}"
    return ""


def _resumes(algo: str, path: Path) -> str:
    agent = disc.resume(path, env=broken.Sound, progress=False)
    return "" if agent.state.step == STEPS else f"{algo}: resumed to {agent.state.step}"


def rolls_back(algo: str, path: Path) -> str:
    """Check that a run rolls back with half the step size; returns what went wrong."""
    size = step_size(AGENTS[algo].algorithm.Config())
    result = train(algo, path, spoiling(0.0, np.nan, 0.75 * size), "--on-nan", "rollback")
    wanted = f"Back to step {BAD - EVERY} with half the step size"
    config = json.loads((path / "config.json").read_text())
    rows = log.read_progress(path / "progress.csv")
    halved = step_size(AGENTS[algo].algorithm.Config(**_lists(config["config"])))
    good = (
        result.status == 0
        and result.err.count(wanted) == 1
        and halved == 0.5 * size
        and [row["step"] for row in rows] == list(range(EVERY, STEPS + 1, EVERY))
        and (path / DUMP).exists()
    )
    return "" if good else f"{algo}: status {result.status}, {result.err[-300:]!r}"


def _lists(options: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(x) if isinstance(x, list) else x for name, x in options.items()}


def overflows(algo: str, path: Path) -> str:
    """Rewards of 1e38: detected in its iteration, or finite to the end; what went wrong."""
    result = train(algo, path, nothing, env="RewardEnormous")
    seen = result.status == 2 and "gave a non-finite value" in result.sentence
    if result.status and not seen:
        return f"{algo}: status {result.status}, {result.err[-300:]!r}"
    return _finite(algo, sorted((path / "checkpoints").iterdir()))


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """Corrupt every algorithm's updates; the scale sets the number of arrays of each."""
    promise = "detected in its iteration, dumped, checkpoints finite, resumes"
    for algo in AGENTS:
        found = []
        for i in range(max(1, round(5 * scale))):
            value = (np.nan, np.inf, -np.inf)[i % 3]
            path = scratch / algo / str(i)
            found.append(stops(algo, path, spoiling(float(rng.random()), value)))
        yield Outcome.of("numbers", f"{algo}: one entry of one array", found, promise)
    found = [rolls_back(algo, scratch / algo / "back") for algo in AGENTS]
    yield Outcome.of(
        "numbers", "--on-nan rollback", found, "rolls back, reports it, ends with half the step"
    )
    found = [overflows(algo, scratch / algo / "huge") for algo in AGENTS]
    yield Outcome.of(
        "numbers", "rewards of 1e38", found, "detected in its iteration, or finite to the end"
    )
