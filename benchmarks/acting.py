"""`python -m benchmarks.acting [POLICY]`: time to compute an action, and to load a policy.

With POLICY, a policy file or a run directory: `predict`, and importing, loading and the first
action in a new process, the minimum of five. Without: one action of random policies of
HalfCheetah-v5's and Humanoid-v5's sizes by numpy, onnxruntime (both called from Python) and C (from
C), each on one thread. The fastest of many short blocks counts, as other processes interfere. Needs
onnxruntime and a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import disc
from disc import host
from disc.policy import file
from disc.policy.policies import Gaussian

LOAD = """
import time; start = time.perf_counter()
import sys, numpy, disc
policy = disc.load(sys.argv[1])
policy.predict(numpy.zeros(policy.observation_shape))
print(time.perf_counter() - start)
"""
TASKS = {"HalfCheetah-v5": (17, 6), "Humanoid-v5": (348, 17)}  # S, D
WIDTHS = (64, 256)  # of two hidden layers: the default of DISC, and of SAC
FLAGS = ("-std=c99", "-O3", "-march=native")
LOOP = """
#include "policy.h"
void repeat(int count, float *observation, float *action)
{
    for (int i = 0; i < count; ++i) {
        disc_act(observation, action);
        observation[0] = 0.1f * action[0];  /* so that no call can be left out */
    }
}
"""


def write_policy(path: Path, inputs: int, outputs: int, width: int) -> None:
    """Write a policy file with random weights."""
    rng, shapes = np.random.default_rng(0), list(pairwise((inputs, width, width, outputs)))
    one = np.ones(outputs, np.float32)
    policy = Gaussian(
        weights=tuple(0.1 * rng.standard_normal(shape, np.float32) for shape in shapes),
        biases=tuple(np.zeros(shape[1], np.float32) for shape in shapes),
        observation_mean=np.zeros(inputs, np.float32),
        observation_inverse_std=np.ones(inputs, np.float32),
        observation_clip=10.0,
        observation_shape=(inputs,),
        action_low=-one,
        action_high=one,
        action_shape=(outputs,),
        log_std=-one,
    )
    layers = {f"policy/weight_{i}": x for i, x in enumerate(policy.weights)}
    layers |= {f"policy/bias_{i}": x for i, x in enumerate(policy.biases)}
    file.write(path, {**policy.tensors(), **layers}, policy.header())


def fastest(block: Callable[[int], Any], calls: int, blocks: int) -> float:
    """Microseconds per call, in the fastest of several blocks of calls."""
    times = []
    for _ in range(blocks):
        clock = time.perf_counter()
        block(calls)
        times.append(time.perf_counter() - clock)
    return round(1e6 * min(times) / calls, 2)


def measure(inputs: int, outputs: int, width: int, blocks: int) -> dict[str, float]:
    """Microseconds per action of a random policy, in each format."""
    import onnxruntime

    observation = np.random.default_rng(1).standard_normal(inputs, np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_policy(folder / "policy.disc", inputs, outputs, width)
        for suffix in ("onnx", "h"):
            disc.export(folder / "policy.disc", folder / f"policy.{suffix}")
        (folder / "loop.c").write_text(LOOP)
        files = [str(folder / "loop.c"), "-o", str(folder / "loop.so"), "-lm"]
        subprocess.run(["cc", *FLAGS, "-shared", "-fPIC", *files], check=True)
        library = ctypes.CDLL(str(folder / "loop.so"))
        policy = disc.load(folder / "policy.disc")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / "policy.onnx"), options)
    feeds = {"observation": observation[None]}

    def numpy_block(calls: int) -> None:
        for _ in range(calls):
            policy.predict(observation, clip=True)

    def onnx_block(calls: int) -> None:
        for _ in range(calls):
            session.run(None, feeds)

    action = np.zeros(outputs, np.float32)
    arrays = [x.ctypes.data_as(ctypes.c_void_p) for x in (observation.copy(), action)]
    return {
        "numpy_us": fastest(numpy_block, 20, blocks),
        "onnxruntime_us": fastest(onnx_block, 20, blocks),
        "c_us": fastest(lambda calls: library.repeat(calls, *arrays), 100, blocks),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The table of docs/export.md."""
    lines = ["| sizes | network | numpy | onnxruntime | C |", "|---|---|---:|---:|---:|"]
    for row in rows:
        times = " | ".join(f"{row[x]:.1f} µs" for x in ("numpy_us", "onnxruntime_us", "c_us"))
        lines.append(f"| {row['task']} | {' → '.join(map(str, row['sizes']))} | {times} |")
    return "\n".join(lines) + "\n"


def measure_formats(out: Path, blocks: int) -> None:
    """Measure all sizes, print a table and write the JSON file."""
    rows = []
    for task, (inputs, outputs) in TASKS.items():
        for width in WIDTHS:
            found = measure(inputs, outputs, width, blocks)
            rows.append({"task": task, "sizes": [inputs, width, width, outputs], **found})
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    versions = {name: metadata.version(name) for name in ("onnx", "onnxruntime")}
    versions["cc"] = f"{compiler.stdout.splitlines()[0]}, {' '.join(FLAGS)}"
    about = {"versions": {**host.versions(), **versions}, "commit": host.commit()}
    about["machine"] = host.facts()
    out.write_text(json.dumps({**about, "results": rows}, indent=1) + "\n")
    sys.stdout.write(table(rows))


def measure_policy(path: str) -> None:
    """Measure one policy and print JSON."""
    loads = [
        float(subprocess.run([sys.executable, "-c", LOAD, path], capture_output=True,
                             text=True, check=True).stdout)
        for _ in range(5)
    ]  # fmt: skip
    policy, calls = disc.load(path), 20_000
    observation = np.zeros(policy.observation_shape, np.float32)
    clock = time.perf_counter()
    for _ in range(calls):
        policy.predict(observation)
    seconds = time.perf_counter() - clock
    result = {
        "import_load_and_first_action_ms": round(1e3 * min(loads), 1),
        "predict_us": round(1e6 * seconds / calls, 1),
        "observation_size": int(observation.size),
    }
    sys.stdout.write(json.dumps(result) + "\n")


def main() -> None:
    """Measure one policy, or the three formats."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.acting")
    parser.add_argument("policy", nargs="?", help="a policy file or a run directory")
    parser.add_argument("--blocks", type=int, default=3_000, help="blocks of calls to time")
    parser.add_argument("--out", type=Path, default=Path("acting.json"))
    options = parser.parse_args()
    if options.policy is not None:
        measure_policy(options.policy)
    else:
        measure_formats(options.out, options.blocks)


if __name__ == "__main__":
    main()
