"""Train the authors' DISC: `python -m benchmarks.authors SOURCE --env Walker2d-v5 --out RUN`.

SOURCE is a checkout of https://github.com/seungyulhan/disc at commit 5730869, which is used as it
is; none of it is part of this repository. Needs
`pip install tensorflow-cpu joblib scipy 'numpy<2.4'`.

Evaluation is ours, ten episodes after the update, on the schedule and the seeds of `disc train`:
the networks are copied into our numpy policy. Their own evaluation, before every update, would
take longer than training and is left out. Otherwise a run is theirs: options, random numbers,
minibatches and the end of an episode at its time limit.

RUN gets `config.json` and `progress.csv`, one row per iteration with the names of our columns;
`python -m tools.scores RUN` prints its scores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.authors import stand_ins
from disc import host
from disc.envs.evaluate import evaluate
from disc.policy.policies import Gaussian
from disc.run.log import ProgressFile

COMMIT = "5730869092bc0a1fa33cc9c2a85cb24bbbd47b2b"
NEEDED = "tensorflow-cpu joblib scipy 'numpy<2.4'"
COLUMNS = {  # theirs: ours
    "total_timesteps": "step",
    "eprewmean": "train/return",
    "eplenmean": "train/length",
    "ISloss": "is/j_is",
    "KLloss": "is/kl",
    "adaptive IS loss factor": "is/alpha",
    "value_loss": "train/value_loss",
    "policy_entropy": "train/entropy",
    "learning rate": "train/learning_rate",
}


class One:
    """One Gymnasium environment with the interface that the authors' code expects."""

    num_envs = 1

    def __init__(self, name: str, seed: int) -> None:
        self.env = gym.make(name)
        self.observation_space, self.action_space = (
            self.env.observation_space,
            self.env.action_space,
        )
        self.seed: int | None = seed
        self.total, self.length = 0.0, 0

    def reset(self) -> Any:
        """The first observation, (1, S)."""
        observation, _ = self.env.reset(seed=self.seed)
        self.seed, self.total, self.length = None, 0.0, 0  # the next episodes follow from the first
        return observation[None]

    def step(self, actions: Any) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Step, and reset at the end of an episode; everything has a first axis of 1."""
        observation, reward, terminated, truncated, _ = self.env.step(actions[0])
        self.total, self.length = self.total + float(reward), self.length + 1
        ended, info = terminated or truncated, {}
        if ended:
            info = {"episode": {"r": self.total, "l": self.length}}
            observation = self.reset()[0]
        return observation[None], np.array([reward]), np.array([ended]), [info]


class Recorder:
    """Takes the place of their logger: evaluates, and writes one row per iteration."""

    def __init__(self, task: argparse.Namespace, tf: Any) -> None:
        self.task, self.tf, self.file = task, tf, ProgressFile(task.out / "progress.csv")
        self.row: dict[str, float] = {}
        self.runner: Any = None
        self.step, self.evaluating, self.begun = 0, 0.0, time.perf_counter()

    def logkv(self, name: str, value: Any) -> None:
        """Take a value of the current row."""
        if name in COLUMNS:
            self.row[COLUMNS[name]] = float(value)

    def dumpkvs(self) -> None:
        """End a row."""
        before, self.step = self.step, int(self.row["step"])
        row = {"step": self.step, "time/elapsed": 0.0, "eval/return": np.nan, **self.row}
        if self.step // self.task.eval_every > before // self.task.eval_every:
            row |= self.evaluate()
            print(f"{self.step:,} steps: {row['eval/return']:,.0f}", file=sys.stderr, flush=True)
        row["time/elapsed"] = time.perf_counter() - self.begun
        self.file.append({**row, "time/evaluating": self.evaluating})
        self.row, self.evaluating = {}, 0.0

    def evaluate(self) -> dict[str, float]:
        """Ten episodes of the current policy."""
        start = time.perf_counter()
        env = gym.make(self.task.env)
        found = evaluate(env, self.policy(), 10, self.task.seed, self.step, name=self.task.env)
        env.close()
        self.evaluating = time.perf_counter() - start
        return {
            "eval/return": float(np.mean(found.returns)),
            "eval/return_std": float(np.std(found.returns)),
            "eval/length": float(np.mean(found.lengths)),
        }

    def policy(self) -> Gaussian:
        """Their policy in numpy."""
        variables = self.tf.trainable_variables("ppo2_model/pi")
        found = zip(variables, self.tf.get_default_session().run(variables), strict=True)
        arrays = {variable.name.split("/", 1)[1].removesuffix(":0"): x for variable, x in found}
        layers = ("pi/mlp_fc0", "pi/mlp_fc1", "pi")
        means = self.runner.ob_rms
        space = self.runner.env.action_space
        copied = Gaussian(
            weights=tuple(arrays[f"{name}/w"] for name in layers),
            biases=tuple(arrays[f"{name}/b"].reshape(-1) for name in layers),
            log_std=arrays["pi/logstd"].reshape(-1),
            observation_mean=means.mean.astype(np.float32),
            observation_inverse_std=(means.var + self.runner.eps).astype(np.float32) ** -0.5,
            observation_clip=self.runner.clipob,
            observation_shape=self.runner.env.observation_space.shape,
            action_low=space.low,
            action_high=space.high,
            action_shape=space.shape,
        )
        seen = self.runner.obs
        theirs, _ = self.runner.model.meanlogstd(self.runner.obfilt(seen))
        np.testing.assert_allclose(copied.mean(seen), theirs, rtol=1e-3, atol=1e-4)
        return copied


def check(source: Path) -> str | None:
    """What is wrong, unless it is a checkout of the commit that was tried."""
    if not (source / "baselines" / "DISC" / "DISC.py").exists():
        return f"{source}: is not a checkout of the authors' code."
    command = ["git", "-C", str(source), "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if found and found != COMMIT:
        return f"{source}: is at commit {found[:7]}, not {COMMIT[:7]}."
    return None


def _portable(argument: str) -> str:
    """An argument without folders that only this machine has."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def main() -> None:
    """Train with the paper's settings, and write the run."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m benchmarks.authors",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", type=Path, help="a checkout of the authors' code")
    parser.add_argument("--env", default="Walker2d-v5", help="a Gymnasium id")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eval-every", type=int, default=20_000)
    parser.add_argument("--out", type=Path, required=True, help="the run's new directory")
    task = parser.parse_args()
    if wrong := check(task.source):
        parser.error(wrong)
    if task.out.exists():
        parser.error(f"{task.out}: already exists.")
    if min(task.steps, task.eval_every) < 1 or task.seed < 0:
        parser.error("--steps and --eval-every must be at least 1, and --seed at least 0.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.path.insert(0, str(task.source.resolve()))
    try:
        tf = stand_ins.install()
        from baselines import logger
        from baselines.DISC import DISC
    except ImportError as error:
        parser.error(f"{error}; pip install {NEEDED}.")

    task.out.mkdir(parents=True)
    about = {
        "algorithm": "the authors' DISC",
        "commit_of_authors": COMMIT,
        "env": task.env,
        "seed": task.seed,
        "plan": {"steps": task.steps, "eval_every": task.eval_every, "eval_episodes": 10},
        "versions": {**host.versions(), "tensorflow": tf.__version__},
        "commit": host.commit(),
        "machine": host.facts(),
        "command": ["python", "-m", "benchmarks.authors", *map(_portable, sys.argv[1:])],
    }
    (task.out / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")

    recorder = Recorder(task, tf)
    logger.logkv, logger.dumpkvs = recorder.logkv, recorder.dumpkvs

    class Runner(DISC.Runner):  # type: ignore[misc]
        """Theirs, known to the recorder for its observation statistics."""

        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            recorder.runner = self

    DISC.Runner = Runner
    one = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    tf.InteractiveSession(config=one)
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):  # it prints a lot
        DISC.learn(
            network="mlp",
            value_network="copy",
            env=One(task.env, task.seed),
            total_timesteps=task.steps,
            lr=lambda fraction: 3e-4 * fraction,
            seed=task.seed,
        )


if __name__ == "__main__":
    main()
