"""`python -m benchmarks.acting POLICY`: time to load a policy and to compute an action.

POLICY is a policy file or a run directory. Loading is measured in a new process, including
imports: the minimum of five.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

LOAD = """
import time; start = time.perf_counter()
import sys, numpy, disc
policy = disc.load(sys.argv[1])
policy.predict(numpy.zeros(policy.observation_shape))
print(time.perf_counter() - start)
"""


def main() -> None:
    """Measure and print JSON."""
    import numpy as np

    import disc

    path = sys.argv[1]
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


if __name__ == "__main__":
    main()
