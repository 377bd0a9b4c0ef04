"""Load: many runs in parallel, many in sequence, one for hours, and replays beyond memory."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from disc import DiscError, host
from disc.envs.factory import Maker
from disc.envs.spaces import describe
from disc.learning import replay as replays
from disc.run.agents import AGENTS
from faults import soak
from faults.outcome import PATIENCE, ROOT, Outcome, differences, run, start
from faults.short import OPTIONS, cli_args

AT_ONCE = 16

STEPS = 512
PLAN: dict[str, Any] = {"eval_every": 256, "eval_episodes": 2, "checkpoint_every": 256}


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """All parts; at full scale the soaks are written to `results/`."""
    yield at_once(scratch, max(2, math.ceil(scale * AT_ONCE)), int(rng.integers(1000)))
    results = ROOT / "results" if scale >= 1 else scratch
    samples: list[soak.Sample] = []
    for kind in soak.KINDS if scale >= 1 else ("short", "disc", "sac"):  # "different" needs many
        found, outcome = soaked(scratch, kind, scale)
        samples += found
        yield outcome
    if samples:
        soak.write(samples, results / "soak.csv")
        soak.draw(samples, results / "soak.png")
    yield refused()


def at_once(scratch: Path, count: int, seed: int) -> Outcome:
    """`count` parallel `disc train`, each compared with the same run alone."""
    names = list(AGENTS)
    runs = [(names[i % len(names)], seed + i) for i in range(count)]
    processes: list[subprocess.Popen[bytes]] = []
    for name, own_seed in runs:
        options = {"algo": name, "seed": own_seed, "steps": STEPS, "threads": 1}
        words = cli_args({**options, **OPTIONS[name], **PLAN, "out": f"at_once_{own_seed}"})
        processes.append(start(["train", "Hopper-v5", *words], scratch))
    wrong = []
    for (name, own_seed), process in zip(runs, processes, strict=True):
        status = process.wait(count * PATIENCE)
        wrong.append(f"{name} with seed {own_seed}: status {status}" if status else "")
    for i, (name, own_seed) in enumerate([] if any(wrong) else runs):
        alone = scratch / f"alone_{own_seed}"
        with AGENTS[name]("Hopper-v5", seed=own_seed, threads=1, **OPTIONS[name]) as agent:
            agent.learn(STEPS, out=alone, progress=False, **PLAN)
        if found := differences(alone, scratch / f"at_once_{own_seed}"):
            wrong[i] = f"{name} with seed {own_seed}: {', '.join(found[:3])}"
    promise = f"on {host.available_cores()} cores; equal bit for bit"
    return Outcome.of("load", f"{count} runs in parallel", wrong, promise)


def soaked(scratch: Path, kind: str, scale: float) -> tuple[list[soak.Sample], Outcome]:
    """A soak in a separate process, and whether memory stayed flat."""
    title, unit, whole = soak.KINDS[kind]
    count, file = max(10, math.ceil(scale * whole)), scratch / f"{kind}.csv"
    done = run([kind, str(count), file], scratch, module="faults.soak", timeout=6 * PATIENCE)
    what = f"{title}: {count:,} {unit}"
    if done.returncode:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        return [], Outcome("load", what, 1, 0, f"status {done.returncode}: {last}")
    samples = soak.read(file)
    found = soak.growth(samples)
    remark = (
        f"after a third, memory {found.memory:+.1%} of {samples[-1].memory:,.0f} MB, maps "
        f"{found.maps:+.1%}, open files {found.files:+d}, threads {found.threads:+d}"
    )
    return samples, Outcome("load", what, 1, int(found.flat), remark)


def refused() -> Outcome:
    """Replays that do not fit: an error with the sizes, and nothing is allocated."""
    maker = Maker("Hopper-v5")
    env = maker.make()
    steps = (host.available_memory() or 10**12) // replays.transition_bytes(
        1, describe(env, maker.name)
    )
    env.close()
    absurd: dict[str, dict[str, Any]] = {
        "disc": {"replay_length": 10**9},
        "ppo-amber": {"replay_length": 10**9},
        "ppo": {"horizon": 2**44},
        "trpo": {"horizon": 2**44},
        "acktr": {"horizon": 2**44},
        "trust-pcl": {"replay_chunks": 10**12},
        **{name: {"replay_size": 10**12} for name in ("ddpg", "td3", "sac", "sql")},
    }
    just: dict[str, dict[str, Any]] = {
        **{name: {"replay_length": steps // 2048} for name in ("disc", "ppo-amber")},
        "trust-pcl": {"replay_chunks": steps // 10},
        **{name: {"replay_size": steps} for name in ("ddpg", "td3", "sac", "sql")},
    }
    tried = [*absurd.items(), ("disc", {"horizon": 2**44}), *just.items()]
    wrong = ["" if _sums_up(x := _refusal(*each)) else f"{each}: {x}" for each in tried]
    return Outcome.of("load", "a replay beyond memory", wrong, _refusal("sac", absurd["sac"]))


def _refusal(name: str, options: dict[str, Any]) -> str:
    """The error message for an agent with such options."""
    before = soak.sample("", 0).memory
    try:
        AGENTS[name]("Hopper-v5", **options).close()
    except DiscError as error:
        grown = soak.sample("", 0).memory - before
        return str(error) if grown < 100 else f"{grown:,.0f} MB were allocated before the error"
    except Exception as error:
        return repr(error)
    return "no error"


def _sums_up(message: str) -> bool:
    """Whether a message has the needed and the free memory, and the option to lower."""
    return all(word in message for word in (" takes ", " free; lower "))
