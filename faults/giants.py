"""Files that claim terabytes or never end, read by a process with limited memory."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from disc import report
from disc.policy import file as policy_file
from disc.report import plots
from disc.run.agents import AGENTS
from disc.run.config import read_config
from disc.study import spec
from faults import mutations
from faults.outcome import Outcome, Trial, copied, run

ROOM = 3 * 2**30  # additional bytes that the process may allocate
HUGE = 2**40  # divisible by all options that must divide it


def outcome(scratch: Path) -> Outcome:
    """Run this module in a separate process."""
    what = "claims of terabytes, pipes and devices, in 3 GB of memory"
    folder = scratch / "giants"
    folder.mkdir()
    result = run([folder], folder, module="faults.giants")
    if result.returncode:
        return Outcome("untrusted", what, 1, 0, result.stderr[-500:])
    return Outcome(*json.loads(result.stdout.splitlines()[-1]))._replace(what=what)


def main() -> None:
    """Run all trials in a folder, and print the outcome."""
    from faults import untrusted

    scratch = Path(sys.argv[1])
    names = ("disc", "acktr", "trust-pcl", "sac", "sql")
    saved = {name: untrusted.save(scratch, name) for name in names}
    trained = {name: untrusted.train(scratch, name) for name in ("disc", "trust-pcl", "sac")}
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def trials() -> Iterator[Trial]:
        for name, path in saved.items():
            yield from agents(name, path, AGENTS[name].load)
        for name, path in trained.items():
            yield from resumed(name, path, untrusted.go_on)
        yield from endless(scratch, saved["disc"], trained["disc"], untrusted.go_on)
        yield from multiplied(scratch)

    print(json.dumps(untrusted.tally("", trials())))


def claims(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options that exceed any machine's memory, one at a time."""
    for name, value in config.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield name, {**config, name: HUGE}
    for widths in ([10**9], [10**9, 10**9], [100_000] * 3, [8] * 10_000, [HUGE, 8]):
        yield f"widths {widths[:3]}", {**config, "widths": widths}


def agents(name: str, path: Path, load: Callable[[Path], Any]) -> Iterator[Trial]:
    """Policy files with too large options, loaded for continued training."""
    file, copy = policy_file.read(path), path.with_name("giant.disc")
    for option, config in claims(file.info["config"]):
        for envs in (1, HUGE):
            info = {**file.info, "config": config, "num_envs": envs}
            mutations.write(copy, file.tensors, info)
            yield f"{name}.load, {option}, {envs} environments", lambda: load(copy).close()


def resumed(name: str, path: Path, resume: Callable[[Path], None]) -> Iterator[Trial]:
    """Runs with too large options, resumed."""
    whole = read_config(path)
    changes: list[dict[str, Any]] = [{"config": config} for _, config in claims(whole["config"])]
    changes += [{name: HUGE} for name in ("num_envs", "threads", "seed")]
    for change in changes:
        copy = copied(path, "giant_run")
        (copy / "config.json").write_text(json.dumps({**whole, **change}))
        yield f"resume {name}, {change!s:.100}", partial(resume, copy)


def endless(
    scratch: Path, saved: Path, trained: Path, resume: Callable[[Path], None]
) -> Iterator[Trial]:
    """Pipes, devices, and sparse files of a terabyte, in place of files."""

    def hole(path: Path, head: bytes = b"") -> None:
        path.write_bytes(head)
        os.truncate(path, len(head) + HUGE)

    def claimed(path: Path) -> None:
        whole = {"dtype": "F32", "shape": [HUGE // 4], "data_offsets": [0, HUGE]}
        head = json.dumps({"policy/weight_0": whole, "__metadata__": {}}).encode()
        hole(path, len(head).to_bytes(8, "little") + head)

    def long(path: Path) -> None:
        path.write_bytes(HUGE.to_bytes(8, "little") + saved.read_bytes()[8:])

    makers: dict[str, Callable[[Path], None]] = {
        "a pipe": os.mkfifo,
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a folder": lambda path: path.mkdir(),
        "a hole": hole,
        "an array of a terabyte": claimed,
        "a header of a terabyte": long,
    }
    readers: dict[str, Callable[[Path], Any]] = {
        "policy.disc": lambda run: policy_file.load(run),
        "config.json": resume,
        "progress.csv": resume,
        "checkpoints/step_000000000128.safetensors": resume,
        "study.json": lambda run: report.write(run),
        "study.toml": lambda run: spec.read(run / "study.toml"),
    }
    for what, make in makers.items():
        for name, read in readers.items():
            folder = copied(trained, "endless")
            (folder / name).unlink(missing_ok=True)
            make(folder / name)
            yield f"{what} as {name}", partial(read, folder)
            if name == "progress.csv":
                yield f"report, {what}", partial(report.write, folder)
                yield f"plot, {what}", partial(plots.curves, [folder], scratch / "x.svg")


def multiplied(scratch: Path) -> Iterator[Trial]:
    """Small experiment files that define millions of runs."""
    path = scratch / "many.toml"
    axes = "".join(
        f"{name} = [{', '.join(map(str, range(1, 60)))}]\n"
        for name in ("epochs", "num_envs", "replay_length", "anneal_steps")
    )
    path.write_text(f'tasks = ["hopper"]\n[[arms]]\nalgo = "disc"\n{axes}')
    yield "many arms", lambda: spec.read(path)
    tasks = ", ".join(f'"t{i}"' for i in range(900))
    path.write_text(
        f"tasks = [{tasks}]\nseeds = {list(range(900))}\nsteps = 9\n[[arms]]\nalgo = 'disc'\n"
    )
    yield "many runs", lambda: spec.read(path)


if __name__ == "__main__":
    main()
