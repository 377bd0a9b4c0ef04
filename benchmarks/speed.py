"""`python -m benchmarks.speed`: training speed compared with other libraries.

Everything is measured in one run, each measurement in a separate process on one or two cores, one
after the other; compare ratios. Prints a table and writes a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
WORKERS = [sys.executable, "-m", "benchmarks.workers"]
TASKS = ("HalfCheetah-v5", "Humanoid-v5")
PEERS = ("torch==2.13.0", "stable-baselines3", "sb3-contrib", "sbx-rl", "gymnasium[mujoco]")
SIMULATORS = ("gymnasium", "mujoco")  # the peers get the versions that we have
ALL_INCLUDED: dict[str, Any] = {"epsilon_b": 1e9}
WIDTH = None if sys.stdout.isatty() else 150  # of tables; the terminal's, if there is one
console = Console(highlight=False, soft_wrap=True, width=WIDTH)

Results = dict[str, Any]


def pinned(command: list[str], cores: int, **environment: str) -> str:
    """Run a command on `cores` cores and return its output."""
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        command,
        cwd=HERE.parent,
        env={**os.environ, "OMP_NUM_THREADS": str(cores), **environment},
        preexec_fn=lambda: os.sched_setaffinity(0, chosen),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def run(command: list[str], cores: int, task: dict[str, Any], **environment: str) -> Results:
    """Run a task in a new process; the last line it prints is the result."""
    text = json.dumps({**task, "cores": cores})
    return json.loads(pinned([*command, text], cores, **environment).splitlines()[-1])


class Load:
    """How many cores other processes use while this object exists."""

    def __init__(self) -> None:
        self.clock, self.busy, self.own = time.monotonic(), busy(), children()

    def others(self) -> float | None:
        """The mean, without this process's children that have ended; None if unknown."""
        now, own = busy(), children() - self.own
        if now is None or self.busy is None:
            return None
        seconds = max(1e-9, time.monotonic() - self.clock)
        return round(max(0.0, now - self.busy - own) / seconds, 3)


def busy() -> float | None:
    """Seconds that all cores were busy since the machine started; None if unknown.

    Time that a hypervisor gave to other machines counts as busy.
    """
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, words[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def children() -> float:
    """CPU seconds of this process's children that have ended, and of theirs."""
    used = os.times()
    return used.children_user + used.children_system


def measure(kind: str, cores: int, **task: Any) -> Results:
    """Run one of our measurements."""
    return run(WORKERS, cores, {"kind": kind, **task})


def measure_peer(python: Path | None, cores: int, **task: Any) -> Results:
    """Train a peer."""
    assert python is not None
    limits = {"NPROC": "1"} if cores == 1 else {}
    return run([str(python), str(HERE / "peers.py")], cores, task, **limits)


def add_options(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options of benchmarks with peers."""
    left_out = "leave Stable-Baselines3 and SBX out"
    parser.add_argument("--no-peers", action="store_true", help=left_out)
    parser.add_argument("--peers", type=Path, help="a virtual environment to keep the peers in")
    parser.add_argument("--out", type=Path, default=Path(out))


@contextmanager
def peers(options: argparse.Namespace) -> Iterator[Path | None]:
    """The interpreter of the peers' virtual environment, unless they are left out."""
    with tempfile.TemporaryDirectory() as folder:
        kept = options.peers or Path(folder, "peers")
        yield None if options.no_peers else peers_python(kept)


def write(out: Path, **contents: Any) -> None:
    """Write results as JSON, with the software and the machine."""
    from disc import host

    about = {"versions": host.versions(), "commit": host.commit(), "machine": host.facts()}
    out.write_text(json.dumps({**about, **contents}, indent=1) + "\n")


def peers_python(folder: Path) -> Path:
    """The interpreter of the virtual environment with the peers; created if needed."""
    python = folder / "bin" / "python"
    if not python.exists():
        console.print(f"Installing {', '.join(PEERS)} into {folder} …")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        same = [f"{name}=={metadata.version(name)}" for name in SIMULATORS]
        # torch first, or a larger build of it is installed
        for names in (PEERS[:1], (*PEERS[1:], *same)):
            subprocess.run([str(python), "-m", "pip", "install", "-q", *names], check=True)
    return python


def versions_of(python: Path | None) -> dict[str, str]:
    """Package versions in the peers' virtual environment, if it is used."""
    if python is None:
        return {}
    command = [str(python), "-m", "pip", "list", "--format", "json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = ("torch", "stable_baselines3", "sb3_contrib", "sbx-rl", "gymnasium", "mujoco", "jax")
    return {p["name"]: p["version"] for p in json.loads(listed) if p["name"] in wanted}


def training(quick: bool, python: Path | None) -> Results:
    """Steps per second of training, ours and theirs."""
    results: Results = {}
    iterations = 4 if quick else 12
    ours: list[tuple[str, dict[str, Any]]] = [
        ("PPO", {"algorithm": "ppo"}),
        ("PPO-AMBER", {"algorithm": "ppo-amber"}),
        ("DISC, free", {"algorithm": "disc", "warm_up": 10 if quick else 60, "iterations": 15}),
        ("DISC, 1 included", {"algorithm": "disc", "options": {"epsilon_b": 0.0}}),
    ]
    ours += [
        (
            f"DISC, {n} included",
            {"algorithm": "disc", "held": True, "options": {**ALL_INCLUDED, "replay_length": n}},
        )
        for n in (10, 64)
    ]
    two = {"algorithm": "ppo", "num_envs": 2, "warm_up": 4}  # both ways of stepping are measured
    ours.append(("PPO, two environments", two))
    for env in TASKS:
        for cores in (2, 1):
            for name, task in ours:
                count = 3 if "64" in name else iterations
                found = measure("train", cores, env=env, **{"iterations": count, **task})
                results[f"{env} | {cores} | {name}"] = found
                say(f"{env}, {cores} cores, {name}: {found['steps_per_second']:,.0f} steps/s")
            for library in ("sb3", "sbx") if python else ():
                task = {"library": library, "env": env, "warm_up": 2 * 2048}
                found = measure_peer(python, cores, **task, steps=(iterations + 3) * 2048)
                results[f"{env} | {cores} | {library}"] = found
                say(f"{env}, {cores} cores, {library}: {found['steps_per_second']:,.0f} steps/s")
    return results


def floors() -> Results:
    """Lower bounds on time: the environment alone and the arithmetic alone."""
    results: Results = {}
    for env, size in zip(TASKS, (17, 348), strict=True):
        for num_envs in (1, 2):
            results[f"{env} | sampling | {num_envs}"] = measure(
                "sampling", 2, env=env, num_envs=num_envs, repeats=7
            )
        for cores in (1, 2):
            shapes = [[rows, k, 64] for rows in (128, 2048, 4096) for k in (size, 64)]
            peaks = [measure("product", cores, shape=shape)["gflops"] for shape in shapes]
            results[f"{env} | product | {cores}"] = {"gflops": max(peaks)}
            say(f"{env}, {cores} cores: matrix product {max(peaks):.0f} GFLOP/s")
    return results


def growth(quick: bool) -> Results:
    """Seconds per iteration by number of included batches, action dimension and width."""
    eight = {**ALL_INCLUDED, "replay_length": 8}
    tasks: dict[str, tuple[int, dict[str, Any]]] = {
        **{f"included batches | {n}": (8, {**eight, "replay_length": n}) for n in (1, 4, 16, 64)},
        **{f"action dimension | {d}": (d, eight) for d in (1, 4, 16, 64)},
        **{f"network width | {w}": (8, {**eight, "widths": [w, w]}) for w in (64, 128, 256, 512)},
    }
    results: Results = {}
    for name, (dimensions, options) in tasks.items():
        task = {"algorithm": "disc", "held": True, "iterations": 2 if quick else 4}
        results[name] = measure("train", 2, dimensions=dimensions, **task, options=options)
    say("growth: done")
    return results


def start_up() -> Results:
    """Seconds from `disc train` to the end of the first iteration, with cold and warm cache."""
    results: Results = {}
    with tempfile.TemporaryDirectory() as folder:
        for state in ("cold", "warm"):
            out = Path(folder, state)
            cli_args = f"train humanoid --steps 2048 --eval-every 0 --out {out}"
            clock = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "disc", *cli_args.split()],
                env={**os.environ, "XDG_CACHE_HOME": folder},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while process.poll() is None and not (out / "progress.csv").exists():
                time.sleep(0.01)
            first = time.perf_counter() - clock
            process.wait()
            results[f"start | {state}"] = {"seconds_to_first_iteration": first}
            say(f"disc train, cache {state}: first iteration done after {first:.1f} s")
        for state in ("cold", "warm"):
            task = {"kind": "train", "algorithm": "disc", "env": "Humanoid-v5", "iterations": 1}
            found = run(WORKERS, 2, task, XDG_CACHE_HOME=str(Path(folder, "compile")))
            results[f"compile | {state}"] = found
            say(
                f"compilation, cache {state}: {found['compile_seconds']:.1f} s for "
                f"{found['compilations']} programs, {found['compilations_later']} later"
            )
    unpinned = measure("train", 2, algorithm="disc", env=TASKS[0], iterations=10, threads=1)
    results["threads 1 | cores used"] = unpinned
    say(f"--threads 1 on two cores: {unpinned['cores_used']:.2f} cores used")
    return results


def say(text: str) -> None:
    """Print progress, as the benchmark takes long."""
    console.print(text)


def ratios(results: Results) -> list[tuple[str, str, float, str]]:
    """The main ratios: (what, task, value, aim)."""
    rows = []
    aims = {
        "HalfCheetah-v5": (8.0, None, 4.0, 40.0, 30.0),
        "Humanoid-v5": (2.5, 4.0, 1.3, 50.0, 40.0),
    }
    for env, (ppo, two, disc, share, above) in aims.items():

        def rate(name: str, env: str = env) -> float:
            return results.get(f"{env} | 2 | {name}", {}).get("steps_per_second", float("nan"))

        peer = max(rate("sb3"), rate("sbx"))
        rows.append(("PPO ÷ the faster peer", env, rate("PPO") / peer, f"≥ {ppo}"))
        if two:
            faster = rate("PPO, two environments") / peer
            rows.append(("PPO, two environments ÷ the faster peer", env, faster, f"≥ {two}"))
        rows.append(("DISC, free ÷ the faster peer", env, rate("DISC, free") / peer, f"≥ {disc}"))
        peak = results[f"{env} | product | 2"]["gflops"]
        learner = results[f"{env} | 2 | DISC, 64 included"]["gflops"]
        rows.append(
            ("learner at 64, % of the product's peak", env, 100 * learner / peak, f"≥ {share}")
        )
        sampled = results[f"{env} | sampling | 1"]
        rows.append(("sampling above the bare, µs/step", env, sampled["above"], f"≤ {above}"))
        gain = results[f"{env} | sampling | 2"]["steps_per_second"] / sampled["steps_per_second"]
        rows.append(("sampling, 2 environments ÷ 1", env, gain, "≥ 1.6" if two else ""))
        peak_memory = results[f"{env} | 2 | DISC, 64 included"]["peak_megabytes"]
        rows.append(("peak memory with L = 64, MB", env, peak_memory, "≤ 1500" if two else ""))
    return rows


def main() -> None:
    """Measure everything, print the tables, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.speed")
    parser.add_argument("--quick", action="store_true", help="fewer iterations, less precise")
    add_options(parser, "speed.json")
    options = parser.parse_args()
    with peers(options) as python:
        versions = versions_of(python)
        results = {
            **floors(),
            **training(options.quick, python),
            **growth(options.quick),
            **start_up(),
        }
    write(options.out, peers=versions, results=results)
    table = Table(title="Training, steps per second", title_justify="left")
    for column in ("environment | cores | what", "steps/s", "batches", "sample, read, update (s)"):
        table.add_column(column, justify="left" if "|" in column else "right")
    for name, found in results.items():
        if "steps_per_second" in found and "sampling |" not in name:
            seconds = ", ".join(f"{x:.3f}" for x in found.get("seconds", {}).values())
            batches = f"{found['batches']:.1f}" if "batches" in found else ""
            table.add_row(name, f"{found['steps_per_second']:,.0f}", batches, seconds)
    console.print(table)
    summary = Table(title="Summary", title_justify="left")
    for column in ("what", "task", "measured", "aim"):
        summary.add_column(column)
    for what, env, value, aim in ratios(results):
        summary.add_row(what, env, f"{value:.2f}", aim)
    console.print(summary)


if __name__ == "__main__":
    main()
