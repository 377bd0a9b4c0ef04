"""`python -m tools.step_quality STUDY.toml`: how much one update improves the policy, by settings.

Learning curves are noisy: two seeds of one algorithm differ more than most settings do. This tool
compares settings on single updates instead. The first arm of the study trains. At some of its
iterations the state before the update is kept, and many fresh batches are collected with its
policy π. Every arm then makes its own update of the same state, π → π', which is judged on the
fresh data:

    gain = mean (π'/π − 1) Â,  J_IS = ½ mean (log π'/π)²,  efficiency = gain / √(2 J_IS)

Â is standardised and comes from a value network that was fitted to other fresh batches. For small
steps the efficiency is proportional to the cosine between the step and the best one, the natural
gradient. Each row of the output has one arm at one state; the printed table compares each arm with
the first.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from disc.algos import ALGORITHMS
from disc.envs.pool import Environments
from disc.envs.rollout import collect
from disc.equations import advantages, importance
from disc.learning import networks, normalize, optim, snapshot
from disc.learning import replay as replays
from disc.learning.config import BatchConfig
from disc.learning.types import BatchReplay, Steps
from disc.run.training import Training
from disc.study import spec
from disc.study.spec import Cell, Experiment
from disc.types import DiscError

FRESH = 10**6  # offset of the seed and the iterations of fresh data
DRAWS = 3  # updates per arm and state, with different minibatches
LAM = 0.98  # of the advantages that judge
ROUNDS, PASSES, ROWS, RATE = 6, 2, 256, 1e-3  # of fitting the value network that judges
COLUMNS = ("task", "seed", "iteration", "arm", "gain", "j_is", "efficiency", "batches")


@dataclass(frozen=True)
class Judge:
    """Fresh data of one policy, and its advantages."""

    policy: Any  # π
    observation: jax.Array  # (T, S) normalised
    action: jax.Array  # (T, D)
    advantage: jax.Array  # (T,) standardised

    def __call__(self, updated: Any) -> tuple[float, float]:
        """The gain and J_IS of an updated policy."""
        log_rho = log_ratio(updated, self.policy, self.observation, self.action)
        gain = jnp.mean((importance.ratio(log_rho) - 1.0) * self.advantage)
        return float(gain), float(0.5 * jnp.mean(jnp.square(log_rho)))


@jax.jit
def log_ratio(updated: Any, policy: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    """The joint log-ratio log π'/π of each row, (T,)."""
    before = policy.output(observation)
    return importance.joint(
        updated.log_ratio(action, updated.output(observation), before, policy.log_std[None])
    )


def judge(training: Training, state: Any, count: int) -> Judge:
    """Collect `count` fresh batches with the policy of a state, and estimate their advantages."""
    config = replace(training.config, lam=LAM)
    env = Environments(training.maker, 1)
    env.reset(FRESH + state.seed, state.step)
    act: Any = partial(training.algorithm.act, config, env.spec)  # independent noise
    fresh = replays.init(count, config.horizon, env.spec)
    for i in range(count):
        named = replace(state, seed=FRESH + state.seed, iteration=FRESH * state.iteration + i)
        fresh = replays.push(fresh, collect(env, act, named, config.horizon), i)
    env.close()
    scale = normalize.scale(state.normalizer)
    shape = (count * config.horizon, -1)
    observation = normalize.observations(scale, fresh.observation.reshape(shape))
    advantage = np.empty((count, config.horizon), np.float32)
    half = np.arange(count) < count // 2
    for own in (half, ~half):
        fitted = _fit(config, state.value.parameters, scale, fresh, observation, own)
        found, _ = advantages.gae(*_steps(config, fitted, scale, fresh))
        advantage[~own] = np.asarray(found).T[~own]
    flat = jnp.asarray(advantage).reshape(-1)
    flat = (flat - jnp.mean(flat)) / jnp.std(flat)
    return Judge(state.policy.parameters, observation, fresh.action.reshape(shape), flat)


@partial(jax.jit, static_argnames="config")
def _steps(config: Any, value: Any, scale: Any, fresh: BatchReplay) -> Steps:
    """Inputs of the advantages of all batches."""
    return snapshot.steps(config, value, scale, fresh, jnp.ones(fresh.length, bool))


def _fit(
    config: Any, value: Any, scale: Any, fresh: BatchReplay, observation: jax.Array, own: Any
) -> Any:
    """A value network, fitted to the λ-returns of the batches in `own`."""
    rng = np.random.default_rng(0)
    rows = (np.flatnonzero(own)[:, None] * config.horizon + np.arange(config.horizon)).reshape(-1)
    learner = optim.init(value)
    for _ in range(ROUNDS):
        _, target = advantages.gae(*_steps(config, learner.parameters, scale, fresh))
        order = rng.permuted(np.tile(rows, (PASSES, 1)), axis=1).reshape(-1)
        minibatches = order[: len(order) // ROWS * ROWS].reshape(-1, ROWS)
        learner = _descend(learner, observation, target.T.reshape(-1), minibatches)
    return learner.parameters


@jax.jit
def _descend(
    learner: optim.Learner, observation: jax.Array, target: jax.Array, minibatches: jax.Array
) -> optim.Learner:
    """Regression: one step of Adam per minibatch."""

    def step(learner: optim.Learner, rows: jax.Array) -> tuple[optim.Learner, None]:
        def loss(value: Any) -> jax.Array:
            predicted = networks.forward(value, observation[rows])[:, 0]
            return jnp.mean(jnp.square(predicted - target[rows]))

        return optim.step(learner, jax.grad(loss)(learner.parameters), RATE), None

    return jax.lax.scan(step, learner, minibatches)[0]


def config_of(cell: Cell, training: Training) -> Any:
    """A cell's config in the environment of a run."""
    config = cell.config(cell.options, cell.arm.preset)
    return config.for_actions(training.env.spec.action_size)


def train(cell: Cell, iterations: int) -> Iterator[tuple[Training, Any]]:
    """Train a cell, without evaluations and files; yields the state before every update."""
    with Console(stderr=True).status(f"{cell.task}, {cell.arm.label}, seed {cell.seed}"):
        algorithm: Any = ALGORITHMS[cell.arm.algorithm]
        training = Training.create(
            algorithm,
            cell.task,
            seed=cell.seed,
            num_envs=1,
            threads=1,
            env_kwargs=cell.arm.env_kwargs,
            preset=cell.arm.preset,
            options=cell.options,
        )
        config, env = config_of(cell, training), training.env
        env.reset(training.seed, 0)
        for _ in range(iterations):
            explore = partial(algorithm.explore, config, env.spec)
            rollout = collect(env, explore, training.state, config.horizon)
            state = algorithm.observe(config, training.state, rollout)
            yield training, state
            training.state, _ = algorithm.update(config, state, 1)
        env.close()


def measure(cells: list[Cell], at: list[int], count: int) -> Iterator[dict[str, Any]]:
    """Train the first cell, and measure the updates of all cells at some of its iterations."""
    algorithm: Any = ALGORITHMS[cells[0].arm.algorithm]
    for iteration, (training, state) in enumerate(train(cells[0], max(at)), 1):
        if iteration not in at:
            continue
        judged = judge(training, state, count)
        for cell in cells:
            own = config_of(cell, training)
            found = [_update(algorithm, own, state, judged, i) for i in range(DRAWS)]
            gain, j_is, batches = np.mean(found, axis=0)
            efficiency = np.mean([g / np.sqrt(2.0 * j) for g, j, _ in found])
            named = (cell.task, cell.seed, iteration, cell.arm.label)
            values = (*named, gain, j_is, efficiency, batches)
            yield dict(zip(COLUMNS, values, strict=True))


def check_algorithm(study: Experiment) -> None:
    """Raise a `DiscError` unless all arms are of one such algorithm, with one environment."""
    names = sorted({arm.algorithm for arm in study.arms})
    if len(names) > 1 or not issubclass(ALGORITHMS[names[0]].Config, BatchConfig):
        listed = ", ".join(names)
        raise DiscError(f"All arms must be of DISC, of PPO or of PPO-AMBER; they are of {listed}.")
    if any(arm.num_envs > 1 for arm in study.arms):
        raise DiscError("All arms must have one environment (num_envs = 1).")


def _update(
    algorithm: Any, config: Any, state: Any, judged: Judge, draw: int
) -> tuple[float, float, float]:
    """The gain and J_IS of one update, and the batches it learned from."""
    named = replace(state, seed=state.seed + FRESH * draw)  # other minibatches
    updated, metrics = algorithm.update(config, named, 1)
    return *judged(updated.policy.parameters), metrics["is/batches"]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: each arm's means, and its efficiency compared with the first arm's."""
    lines = [
        "| task | arm | states | batches | J_IS | gain | efficiency | minus the first arm's |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    for task in tasks:
        for arm in arms:
            own, base = (
                [row for row in rows if (row["task"], row["arm"]) == (task, name)]
                for name in (arm, arms[0])
            )
            means = {x: np.mean([row[x] for row in own]) for x in COLUMNS[4:]}
            pairs = zip(own, base, strict=False)  # a study may have stopped in the middle
            difference = np.array([a["efficiency"] - b["efficiency"] for a, b in pairs])
            error = difference.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else np.nan
            lines.append(
                f"| {task} | {arm} | {len(own)} | {means['batches']:.1f} | {means['j_is']:.4f} "
                f"| {means['gain']:.5f} | {means['efficiency']:.4f} "
                f"| {difference.mean():+.4f} ± {error:.4f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, write the rows as they come, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tools.step_quality",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, help="an experiment file, as for `disc sweep`")
    parser.add_argument("--at", type=int, nargs="+", default=[15, 40, 70, 100, 140])
    parser.add_argument("--batches", type=int, default=60, help="fresh batches per state")
    parser.add_argument("--out", type=Path, default=Path("step_quality.csv"))
    options = parser.parse_args()
    try:
        study: Experiment = spec.read(options.study)
        check_algorithm(study)
        rows: list[dict[str, Any]] = []
        with options.out.open("x", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for seed in study.seeds:
                for task in study.tasks:
                    cells = [study.cell(task, arm, seed) for arm in study.arms]
                    for row in measure(cells, options.at, options.batches):
                        rows.append(row)
                        writer.writerow(
                            {k: f"{v:.6g}" if k in COLUMNS[4:] else v for k, v in row.items()}
                        )
                        file.flush()
        print(table(rows))
    except (DiscError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
