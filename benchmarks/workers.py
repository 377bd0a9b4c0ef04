"""Single measurements, each in a separate process: reads a JSON task, prints a JSON result.

`python -m benchmarks.workers '{"kind": "train", …}'`. The parent sets which cores may be used.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP = 2
QUIET: dict[str, Any] = {"eval_every": 0, "checkpoint_every": 0, "progress": False}


def train(task: dict[str, Any]) -> dict[str, Any]:
    """Steps per second of DISC, PPO or PPO-AMBER, after compilation, without evaluation."""
    import jax

    from disc.run.agents import AGENTS

    compiled: list[float] = []

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(note)
    env = task.get("env") or synthetic(task["dimensions"], task.get("observations", 32))
    agent = AGENTS[task["algorithm"]](
        env,
        threads=task.get("threads", task["cores"]),
        num_envs=task.get("num_envs", 1),
        **task.get("options", {}),
    )
    horizon, held = agent.config.horizon, task.get("held")
    if held:
        _fill(agent)
    warm_up = task.get("warm_up", WARM_UP)
    agent.learn(horizon, **QUIET)
    compilations = len(compiled)
    agent.learn((warm_up - 1) * horizon, **QUIET)
    clock, cpu = time.perf_counter(), time.process_time()
    agent.learn(task["iterations"] * horizon, **QUIET)
    seconds, cpu = time.perf_counter() - clock, time.process_time() - cpu
    rows = agent.metrics[warm_up:]
    if held:  # the checkpoint is part of the peak memory
        with tempfile.TemporaryDirectory() as folder:
            agent.learn(horizon, out=f"{folder}/run", **QUIET)
    mean = {
        name: float(np.mean([row[f"time/{name}"] for row in rows]))
        for name in ("sampling", "reading", "updating")
    }
    least = {name: min(row[f"time/{name}"] for row in rows) for name in mean}
    totals = [sum(row[f"time/{name}"] for name in mean) for row in rows]
    batches = float(np.mean([row["is/batches"] for row in rows]))
    work = _flops(agent) * agent.config.epochs * horizon * batches
    return {
        "steps_per_second": task["iterations"] * horizon / seconds,
        "seconds": mean,
        "least_seconds": {**least, "iteration": min(totals)},
        "batches": batches,
        "cores_used": cpu / seconds,
        "gflops": work / mean["updating"] / 1e9,
        "compile_seconds": sum(compiled[:compilations]),
        "compilations": compilations,
        "compilations_later": len(compiled) - compilations,
        "microseconds_per_step": 1e6 * mean["sampling"] / horizon,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def shares(task: dict[str, Any]) -> dict[str, Any]:
    """Steps per second of training, and microseconds per step of sampling and of learning."""
    from disc.run.agents import AGENTS

    options = {**task.get("options", {}), "preset": task.get("preset", "paper")}
    agent = AGENTS[task["algorithm"]](task["env"], threads=task["cores"], **options)
    first = getattr(agent.config, "random_steps", None) or 0  # steps without learning
    agent.learn(task.get("warm_up", first + WARM_UP * agent.config.horizon), **QUIET)
    before, clock = len(agent.metrics), time.perf_counter()
    agent.learn(task["steps"], **QUIET)
    seconds, rows = time.perf_counter() - clock, agent.metrics[before:]
    steps = len(rows) * agent.config.horizon

    def spent(*names: str) -> float:
        return 1e6 * sum(row.get(f"time/{name}", 0.0) for row in rows for name in names) / steps

    return {
        "steps_per_second": steps / seconds,
        "sampling": spent("sampling"),
        "learning": spent("reading", "updating"),
        "batches": float(np.mean([row.get("is/batches", 1.0) for row in rows])),
    }


def acting(task: dict[str, Any]) -> dict[str, Any]:
    """Microseconds to sample an action, in numpy and with the same network compiled."""
    import jax
    import jax.numpy as jnp

    from disc.learning import networks
    from disc.run.agents import AGENTS

    agent = AGENTS[task["algorithm"]](task["env"], threads=1)
    spec, acting = agent.env.spec, agent.policy
    rng = np.random.default_rng(0)
    observation = rng.standard_normal(spec.observation_size).astype(np.float32)
    noise = rng.standard_normal(spec.action_size).astype(np.float32)

    @jax.jit
    def compiled(layers: Any, observation: jax.Array, noise: jax.Array) -> jax.Array:
        given = observation if task["algorithm"] != "sql" else jnp.concatenate([observation, noise])
        found = networks.forward(layers, given[None], jax.nn.relu)[0]
        size = spec.action_size
        std = jnp.exp(found[size:]) if task["algorithm"] == "sac" else 0.1
        return jnp.tanh(found[:size] + std * noise)

    def clock(do: Any) -> float:
        times = []
        for _ in range(2_000):
            start = time.perf_counter()
            do()
            times.append(time.perf_counter() - start)
        return 1e6 * float(np.median(times))

    layers = agent.state.policy.parameters
    return {
        "numpy": clock(lambda: acting.sample(observation, noise)),
        "compiled": clock(lambda: np.asarray(compiled(layers, observation, noise))),
    }


def _fill(agent: Any) -> None:
    """Fill every slot of the replay with the same batch, so that all are included at once."""
    from disc.envs.rollout import collect

    agent.env.reset(agent.state.seed, 0)
    agent.training.started = True
    act = partial(agent.algorithm.act, agent.config, agent.env.spec)
    rollout = collect(agent.env, act, agent.state, agent.config.horizon)
    for _ in range(agent.state.replay.length):
        agent.training.state = agent.algorithm.observe(agent.config, agent.state, rollout)
        agent.training.state = replace(agent.state, iteration=agent.state.iteration + 1)


def _flops(agent: Any) -> float:
    """Floating-point operations of one sample's forward and backward pass, both networks.

    A layer of (in, out) costs 2·in·out forward, the same for the gradient of its weights and,
    except for the first layer, the same for the gradient of its inputs.
    """
    total = 0
    for mlp in (agent.state.policy.parameters.mean, agent.state.value.parameters):
        sizes = [int(np.prod(layer.weight.shape)) for layer in mlp]
        total += 2 * (3 * sum(sizes) - sizes[0])
    return float(total)


def synthetic(dimensions: int, observations: int = 32) -> Any:
    """A task with given sizes of actions and observations, whose steps cost almost nothing."""
    import gymnasium as gym

    class Synthetic(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (observations,), np.float32)
        action_space = gym.spaces.Box(-1.0, 1.0, (dimensions,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.time = 0
            self.state: Any = np.zeros(observations, np.float32)
            return self.state, {}

        def step(self, action: Any) -> Any:
            self.time += 1
            self.state = 0.9 * self.state + 0.1 * np.resize(action, observations)
            return self.state, -float(action @ action), False, self.time == 1000, {}

    return Synthetic


def sampling(task: dict[str, Any]) -> dict[str, Any]:
    """Time to collect a batch, and to only step the environments with the same actions."""
    from disc import PPO
    from disc.envs.rollout import collect

    agent = PPO(task["env"], num_envs=task["num_envs"], threads=task["cores"])
    horizon, env = agent.config.horizon, agent.env
    agent.learn(WARM_UP * horizon, **QUIET)
    act: Any = partial(agent.algorithm.act, agent.config, env.spec)
    collecting, alone = [], []
    for repeat in range(task["repeats"]):
        env.reset(agent.state.seed, repeat)
        clock = time.perf_counter()
        rollout = collect(env, act, agent.state, horizon, agent.threads)
        collecting.append(time.perf_counter() - clock)
        env.reset(agent.state.seed, repeat)
        actions = rollout.action.reshape(agent.num_envs, -1, *env.spec.action_shape)
        clock = time.perf_counter()
        for lane, lane_actions in zip(env.lanes, actions, strict=True):
            step, reset = lane.env.step, lane.env.reset
            for action in lane_actions:
                _, _, terminated, truncated, _ = step(action)
                if terminated or truncated:
                    reset()
        alone.append(time.perf_counter() - clock)
    mine, bare = (1e6 * float(np.median(x)) / horizon for x in (collecting, alone))
    return {
        "microseconds_per_step": mine,
        "bare_microseconds_per_step": bare,
        "above": mine - bare,
        "steps_per_second": 1e6 / mine,
    }


def product(task: dict[str, Any]) -> dict[str, Any]:
    """Peak speed of a single-precision matrix product with a shape of the learner."""
    from concurrent.futures import ThreadPoolExecutor

    import jax
    import jax.numpy as jnp

    rows, inner, outer = task["shape"]
    repeats = int(4e10 / (2 * rows * inner * outer))

    @jax.jit
    def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
        def body(_: Any, b: jax.Array) -> jax.Array:
            return b + 1e-20 * (a @ b)[:1]  # so that no product is optimised away

        return jax.lax.fori_loop(0, repeats, body, b)

    a, b = jnp.ones((rows, inner)), jnp.ones((inner, outer))

    def run(_: int) -> Any:
        return multiply(a, b).block_until_ready()

    run(0)
    work, best = 2e-9 * repeats * rows * inner * outer, 0.0
    for threads in range(1, task["cores"] + 1):  # XLA splits one product, or one per thread
        with ThreadPoolExecutor(threads) as pool:
            clock = time.perf_counter()
            list(pool.map(run, range(threads)))
            best = max(best, threads * work / (time.perf_counter() - clock))
    return {"gflops": best}


def cells(task: dict[str, Any]) -> dict[str, Any]:
    """CPU seconds of a sweep's own process: of a whole sweep, and of a look at a finished one.

    Nothing is trained: the process of each cell is replaced by a copy of one real run with another
    seed, and copying is not counted. What is left is what the sweep does for each cell: reading
    its directory, starting it, waiting for it, and reading its directory again.
    """
    from disc.study import sweep
    from disc.study.spec import Arm, Experiment

    name, steps = "InvertedPendulum-v5", {"InvertedPendulum-v5": 128}
    arm = Arm("PPO", "ppo", {"horizon": 64, "gradient_steps": 2})
    seeds = tuple(range(task["cells"] + 1))
    shape = (name, name, (arm,), (name,), seeds, steps, steps, {name: 0})
    pattern, *rest = Experiment(*shape).cells()
    with tempfile.TemporaryDirectory() as folder:
        source, root = Path(folder, "pattern"), Path(folder, "sweep")
        command = [sys.executable, "-m", "disc", *pattern.command(source)]
        subprocess.run(command, check=True, capture_output=True)
        copies = Copies(source / pattern.path)
        begun = time.process_time()
        board = sweep.run(root, sweep.look(root, rest), copies, 0, lambda board: None)
        driver = time.process_time() - begun - copies.seconds
        assert len(board.done) == task["cells"], board.failed
        scans = []
        for _ in range(3):
            begun = time.process_time()
            sweep.look(root, rest)
            scans.append(time.process_time() - begun)
    return {"least_seconds": {"sweep": driver, "look": min(scans)}}


class Copies:
    """A sweep's backend whose jobs are done at once: copies of a run, with the cells' seeds."""

    def __init__(self, source: Path) -> None:
        self.source, self.seconds = source, 0.0  # CPU seconds of copying

    def slots(self) -> int:
        return 20

    def start(self, root: Path, found: Any) -> Copies:
        begun = time.process_time()
        target = root / found.cell.path
        shutil.copytree(self.source, target)
        config = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps({**config, "seed": found.cell.seed}))
        self.seconds += time.process_time() - begun
        return self

    def poll(self) -> int:
        return 0

    def rows(self) -> list[Any]:
        return []

    def stop(self, now: bool = False) -> None:
        pass

    def last_output(self) -> str:
        return ""

    def close(self, root: Path) -> None:
        pass


def main() -> None:
    """Run the task in the first argument."""
    task = json.loads(sys.argv[1])
    kinds = {"train": train, "shares": shares, "acting": acting}
    kinds |= {"sampling": sampling, "product": product, "cells": cells}
    result = kinds[task["kind"]](task)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
