"""`python -m faults.soak KIND COUNT FILE`: resources of a process during long training.

Many short runs, or one with the iterations of eight hours; memory, open files, threads and memory
maps are recorded along the way.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import disc
from disc.report import plots
from disc.run.agent import Agent
from disc.run.agents import AGENTS
from disc.types import Metrics
from faults.broken import Sound

SAMPLES = 100  # per soak
WARM_UP = 1 / 3  # fraction in which programs are compiled and the replay fills
GROWTH = 0.05  # of memory and maps after that, up to which they count as flat

TINY: dict[str, dict[str, Any]] = {
    "disc": {"horizon": 16, "gradient_steps": 2, "epochs": 1, "widths": (8, 8)},
    "sac": {
        "horizon": 16,
        "steps_per_update": 16,
        "updates_per_step": 0.125,
        "random_steps": 32,
        "replay_size": 1000,
        "batch_size": 8,
        "widths": (8, 8),
    },
}
BETWEEN = {"disc": 49, "sac": 500}  # iterations in 100,000 steps, after which runs are saved


class Kind(NamedTuple):
    """A soak."""

    title: str
    unit: str
    whole: int  # of units, at scale 1


KINDS = {
    "short": Kind("many short runs", "runs", 200),
    "different": Kind("many different agents", "agents", 60),
    "disc": Kind("one long run of DISC", "iterations", 11_000),
    "sac": Kind("one long run of SAC", "iterations", 20_000),
}
"""DISC runs at some 800 steps of Hopper-v5 per second, which in eight hours are 11,000 batches of
2,048; SAC at 140, which are 20,000 iterations of 200."""


class Sample(NamedTuple):
    """Resources of a process."""

    kind: str
    at: int  # runs or iterations done
    memory: float  # private, resident, MB
    files: int  # open
    threads: int
    maps: int  # of memory


def sample(kind: str, at: int) -> Sample:
    """Current resources of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return Sample(
        kind,
        at,
        round(int(status["RssAnon"].split()[0]) * 1024 / 1e6, 3),
        len(os.listdir("/proc/self/fd")) - 1,  # without the one used for listing
        int(status["Threads"]),
        Path("/proc/self/maps").read_bytes().count(b"\n"),
    )


def soak(kind: str, count: int, folder: Path) -> Iterator[Sample]:
    """Train, and sample along the way; the folder is empty afterwards."""
    every = max(1, count // SAMPLES)
    if kind in ("disc", "sac"):
        yield from _long(kind, count, every, folder)
        return
    for i in range(count):
        (_short if kind == "short" else _different)(i, folder / "run")
        if (i + 1) % every == 0:
            yield sample(kind, i + 1)


def _short(i: int, run: Path) -> None:
    """Make, train, save, load, run, resume, plot and close an agent; of each family in turn."""
    name = ("disc", "sac")[i % 2]
    plan: dict[str, Any] = {"eval_every": 32, "eval_episodes": 1, "progress": False}
    with AGENTS[name]("Hopper-v5", seed=i, threads=1, **TINY[name]) as agent:
        agent.learn(48, out=run, checkpoint_every=32, **plan)
        agent.save(run / "copy.disc")
        observation = agent.env.lanes[0].observation
        wanted, _ = agent.predict(observation)
    np.testing.assert_array_equal(disc.load(run / "copy.disc").predict(observation)[0], wanted)
    with AGENTS[name].load(run / "copy.disc") as loaded:
        loaded.learn(16, **plan)
    disc.resume(run, 64, progress=False).close()
    if i % 20 == 0:
        plots.curves([run], run / "curve.png")
    shutil.rmtree(run)


def _different(i: int, run: Path) -> None:
    """Train an agent with unique options, which need new compiled programs."""
    name = ("disc", "sac")[i % 2]
    options = {**TINY[name], "gamma": 0.99 - i / 10_000}
    with AGENTS[name](Sound, seed=i, threads=1, **options) as agent:
        agent.learn(48, eval_every=0, progress=False)


def _long(kind: str, count: int, every: int, folder: Path) -> Iterator[Sample]:
    """One run with all its files, saved and evaluated as often as usual."""
    samples: list[Sample] = []

    def note(agent: Agent, row: Metrics) -> None:
        if len(agent.metrics) % every == 0:
            samples.append(sample(kind, len(agent.metrics)))

    every_so_often = 16 * BETWEEN[kind]
    with AGENTS[kind](Sound, threads=1, **TINY[kind]) as agent:
        agent.learn(
            16 * count,
            out=folder / "run",
            eval_every=every_so_often,
            checkpoint_every=every_so_often,
            callbacks=[note],
            progress=False,
        )
    shutil.rmtree(folder / "run")
    yield from samples


class Growth(NamedTuple):
    """Growth of a soak after its warm-up; negative if it shrank."""

    memory: float  # as a fraction
    maps: float  # as a fraction
    files: int
    threads: int

    @property
    def flat(self) -> bool:
        """Whether the growth is negligible."""
        return max(self.memory, self.maps) < GROWTH and max(self.files, self.threads) <= 0


def growth(samples: Sequence[Sample]) -> Growth:
    """Growth after the warm-up: twice the increase of the peak from its first to second half."""
    rest = [x for x in samples if x.at > WARM_UP * samples[-1].at]
    halves = rest[: len(rest) // 2], rest[len(rest) // 2 :]

    def peaks(name: str) -> tuple[Any, Any]:
        before, after = (max(getattr(x, name) for x in half) for half in halves)
        return before, after - before

    memory, more_memory = peaks("memory")
    maps, more_maps = peaks("maps")
    return Growth(
        2.0 * more_memory / memory, 2.0 * more_maps / maps, peaks("files")[1], peaks("threads")[1]
    )


def write(samples: Sequence[Sample], out: Path) -> None:
    """Write the samples as CSV."""
    with open(out, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([Sample._fields, *samples])


def read(path: Path) -> list[Sample]:
    """Read the output of `write`."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return [Sample(row[0], int(row[1]), float(row[2]), *map(int, row[3:])) for row in rows]


PANELS = {
    "private memory, MB": {"memory": "memory"},
    "count": {"threads": "threads", "files": "open files"},
    "memory maps": {"maps": "maps"},
}


def draw(samples: Sequence[Sample], out: Path) -> None:
    """Plot the resources of each soak over its progress, on the same scales."""
    soaks = {k: list(group) for k, group in itertools.groupby(samples, lambda x: x.kind)}
    figure, grid = plots.panels(len(soaks), 3.2 * len(soaks), len(PANELS))
    panels = iter(grid)
    for row, (label, lines) in enumerate(PANELS.items()):
        top = 1.15 * max(getattr(x, name) for x in samples for name in lines)
        for column, ((kind, found), axes) in enumerate(zip(soaks.items(), panels, strict=False)):
            for color, (name, called) in zip(plots.COLORS, lines.items(), strict=False):
                values = [getattr(x, name) for x in found]
                axes.plot([x.at for x in found], values, color=color, label=called)
            plots.dress(axes, "" if row else KINDS[kind].title, "" if column else label)
            axes.set_xlabel(KINDS[kind].unit)
            axes.set_xlim(left=0)
            axes.set_ylim(0, top)
            axes.yaxis.get_major_locator().set_params(integer=True)
            axes.get_legend().remove()
            if len(lines) > 1:
                axes.legend(loc="center right", frameon=False, fontsize="small")
    plots.save(figure, out)


def main() -> None:
    """Soak, and write the samples."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m faults.soak")
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("count", type=int)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(list(soak(options.kind, options.count, Path(folder))), options.file)


if __name__ == "__main__":
    main()
