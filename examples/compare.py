"""Compare two algorithms on the same seeds, and draw their learning curves.

python compare.py --task HalfCheetah-v5 --steps 200_000
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from disc import DISC, PPO


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="Hopper-v5")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    options = parser.parse_args()

    figure, axes = plt.subplots()
    for kind in (DISC, PPO):
        curves = []
        for seed in range(options.seeds):
            agent = kind(options.task, seed=seed, threads=1)
            out = options.out / f"{kind.__name__}_seed{seed}"
            agent.learn(options.steps, out=out, eval_every=options.steps // 10)
            evaluated = [row for row in agent.metrics if "eval/return" in row]
            curves.append([row["eval/return"] for row in evaluated])
        steps, mean = [row["step"] for row in evaluated], np.mean(curves, axis=0)
        axes.plot(steps, mean, label=f"{kind.__name__}, mean of {options.seeds} seeds")
        print(f"{kind.__name__}: {mean[-1]:,.0f} at the end ({[f'{x[-1]:,.0f}' for x in curves]})")
    axes.set(xlabel="environment steps", ylabel="evaluated return", title=options.task)
    axes.legend()
    figure.savefig(options.out / "curves.png", dpi=150)
    print(f"Wrote {options.out / 'curves.png'}. {options.seeds} seeds do not rank two algorithms.")


if __name__ == "__main__":
    main()
