"""Kills: SIGKILL, SIGTERM and Ctrl-C at random moments, resumed until the run is finished.

The results must equal those of the uninterrupted run, bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from disc import SAC, host
from disc.run import checkpoint, log
from faults.outcome import Outcome, differences, litter, run, start
from faults.victim import MOMENTS

KILLS = 60  # minimum per family
SAVES_WITHIN = 10.0  # seconds after SIGTERM
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)

COMMON = "--threads 1 --widths 16 16 --eval-episodes 2"
FAMILIES = {
    "batch replay (DISC)": "train Hopper-v5 --algo disc --steps 4096 --checkpoint-every 1024 "
    f"--eval-every 512 --horizon 256 --gradient-steps 4 --epochs 2 {COMMON}",
    "transition replay (SAC)": "train Hopper-v5 --algo sac --steps 1536 --checkpoint-every 384 "
    "--eval-every 256 --horizon 64 --random-steps 128 --replay-size 700 --batch-size 16 "
    f"{COMMON}",
}


class Kill(NamedTuple):
    """A signal that was delivered."""

    moment: str
    signal: int
    seconds: float  # until the process ended


def campaign(scratch: Path, rng: np.random.Generator, scale: float) -> Iterator[Outcome]:
    """Both families."""
    for i, (family, cli_args) in enumerate(FAMILIES.items()):
        folder = scratch / str(i)
        folder.mkdir()
        yield from kills(folder, rng, family, cli_args, max(3, math.ceil(scale * KILLS)))
    for algorithm in ("disc", "sac"):
        yield largest(scratch, rng, algorithm, math.ceil(4 * scale))
    if scale >= 1:  # needs 6 GB of memory and 3 GB of disk
        yield fullest(scratch, 4)


def kills(
    folder: Path, rng: np.random.Generator, family: str, cli_args: str, wanted: int
) -> Iterator[Outcome]:
    """Runs of one kind, each killed repeatedly, until enough signals were delivered."""
    measured = folder / "measured.json"
    _victim({"measured": str(measured)}, [*cli_args.split(), "--out", "whole"], folder)
    usual = json.loads(measured.read_text())
    landed: list[Kill] = []
    wrong: list[str] = []
    while len(landed) < wanted:
        name = f"killed{len(wrong)}"
        landed += chain(folder, rng, [*cli_args.split(), "--out", name], usual)
        found = [*differences(folder / "whole", folder / name), *litter(folder / name)]
        found += [f"process {pid} still runs" for pid in _left(folder)]
        wrong.append(f"{name}: {', '.join(found)}" if found else "")
    moments = Counter(kill.moment for kill in landed)
    how = ", ".join(f"{count} {moment}" for moment, count in sorted(moments.items()))
    what = f"{family}: {len(landed)} kills ({how})"
    promise = "equal to the uninterrupted run, bit for bit; no leftover files"
    yield Outcome.of("kills", what, wrong, promise)
    heard = [kill for kill in landed if kill.moment != "starting"]  # the run had begun
    asked = [kill.seconds for kill in heard if kill.signal == signal.SIGTERM]
    yield _timed(f"{family}: SIGTERM saves within ten seconds", asked)


def _timed(what: str, seconds: list[float]) -> Outcome:
    """Count the saves that were fast enough."""
    held = sum(x <= SAVES_WITHIN for x in seconds)
    slowest = f"the slowest took {max(seconds, default=0.0):.1f} s"
    return Outcome("kills", what, len(seconds), held, slowest)


def largest(scratch: Path, rng: np.random.Generator, algorithm: str, tries: int) -> Outcome:
    """SIGTERM to training the largest task with default options, after some iterations."""
    asked = []
    for i in range(tries):
        out = scratch / f"{algorithm}{i}"
        cli_args = ["train", "humanoid", "--algo", algorithm, "--threads", "1", "--out", str(out)]
        cli_args += ["--random-steps", "1000"] if algorithm == "sac" else []
        process = start(cli_args, scratch)
        while len(log.tail(out / "progress.csv")) < 8:  # five with random actions and three others
            time.sleep(0.1)
            if process.poll() is not None:
                raise RuntimeError(f"{algorithm} failed without a signal")
        time.sleep(float(rng.uniform(0.0, 5.0)))
        clock = time.monotonic()
        process.terminate()
        process.wait()
        seconds = time.monotonic() - clock
        saved = f"step_{log.tail(out / 'progress.csv')[-1]['step']:012.0f}.safetensors"
        asked.append(seconds if (out / "checkpoints" / saved).exists() else math.inf)
    return _timed(f"{algorithm} on Humanoid: SIGTERM saves within ten seconds", asked)


def fullest(scratch: Path, tries: int) -> Outcome:
    """Saving the largest replay, a full one of SAC on Humanoid, to the disk."""
    with SAC("humanoid") as agent:
        size, replay = agent.config.replay_size, agent.state.replay
        rng = np.random.default_rng(0)
        drawn = {
            name: jnp.asarray(rng.standard_normal(getattr(replay, name).shape, np.float32))
            for name in ("observation", "action", "reward")
        }
        following = jnp.roll(drawn["observation"], -1, axis=0)
        full = replay._replace(**drawn, next_observation=following, stored=jnp.int32(size))
        del replay, drawn, following
        seconds = []
        for i in range(tries):
            agent.training.state = dataclasses.replace(agent.state, replay=full, step=size + i)
            taken = np.zeros((1, 0, agent.env.spec.action_size), np.float32)
            where = np.zeros((1, agent.env.spec.observation_size), np.float32)
            clock = time.monotonic()
            contents = checkpoint.Checkpoint(agent.state, taken, where, {"elapsed": 0.0})
            file = checkpoint.save(scratch / "full", contents)
            seconds.append(time.monotonic() - clock)
        written = host.size(file.stat().st_size)
    shutil.rmtree(scratch / "full")
    return _timed(f"SAC on Humanoid: a full replay ({written} in a file) is saved", seconds)


def chain(
    folder: Path, rng: np.random.Generator, cli_args: list[str], usual: dict[str, Any]
) -> list[Kill]:
    """One run to its end: killed, resumed, killed, resumed, …"""
    out, landed = cli_args[-1], list[Kill]()
    while True:
        made = (folder / out / "config.json").exists()
        struck = folder / "struck"
        struck.unlink(missing_ok=True)
        moment = str(rng.choice(MOMENTS))
        calls, seconds = usual[moment]["calls"], usual[moment]["seconds"]
        delay = 3.0 if moment == "starting" else 1.2 * seconds / max(calls, 1)
        task: dict[str, Any] = {
            "moment": moment,
            "call": int(rng.integers(1, max(2, calls // 2 + 1))),
            "delay": float(rng.uniform(0.0, delay)),
            "signal": int(rng.choice(SIGNALS)),
            "struck": str(struck),
        }
        command = ["resume", out, "--threads", "1"] if made else cli_args
        if (folder / out).exists() and not made:
            (folder / out).rmdir()  # killed before anything was written
        status, ended = _victim(task, command, folder)
        if status == 0:
            return landed
        if not struck.exists():
            if _at_end(folder / out, cli_args):
                return landed
            raise RuntimeError(f"a process failed without a signal, status {status}: {task}")
        after = ended - float(struck.read_text() or ended)
        landed.append(Kill(moment, task["signal"], after))


def _at_end(out: Path, cli_args: list[str]) -> bool:
    """Whether the run was saved at its last step, so there is nothing to resume."""
    steps = int(cli_args[cli_args.index("--steps") + 1])
    return (out / "checkpoints" / f"step_{steps:012d}.safetensors").exists()


def _victim(task: dict[str, Any], cli_args: list[str], folder: Path) -> tuple[int, float]:
    found = run([json.dumps(task), *cli_args], folder, module="faults.victim")
    return found.returncode, time.time()


def _left(folder: Path) -> list[str]:
    """Processes that still use a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in process.read_bytes():
                found.append(process.parent.name)
        except OSError:
            continue  # it just ended
    return found
