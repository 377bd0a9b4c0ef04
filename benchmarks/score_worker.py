"""One run of `benchmarks.time_to_score`: reads a JSON task, prints a JSON result.

`python -m benchmarks.score_worker '{"library": "disc", "env": …}'`, in our environment or, for a
peer, in the peers'; so only the standard library and numpy are imported before the clock is used.
Clock, evaluation and limits are the same code for everyone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

EPISODES = 10

Act = Callable[[Any], Any]


class Watch:
    """A run's clock and curve.

    The clock starts when the parent process launches this one, and stands still during evaluations.
    """

    def __init__(self, task: dict[str, Any], act: Act) -> None:
        self.task, self.act, self.parent = task, act, os.getppid()
        self.env: Any = None
        self.curve: list[list[float]] = []  # step, seconds, mean return
        self.step, self.evaluating = 0, 0.0
        self.ended = "steps"  # or the time or the score, whatever is reached first

    def clock(self) -> float:
        """Seconds since the launch, without evaluations."""
        return time.monotonic() - self.task["launched"] - self.evaluating

    def goes_on(self) -> bool:
        """Whether the run should continue: it has time left, and has not reached the score."""
        if os.getppid() != self.parent:  # it was killed; don't slow down what is measured next
            raise SystemExit("The benchmark has ended.")
        if self.ended == "steps" and self.clock() > self.task["seconds"]:
            self.ended = "time"
        return self.ended == "steps"

    def updated(self, step: int) -> bool:
        """Call after an update; evaluates if a multiple of `every` was passed since the last call.

        Returns:
            Whether to continue.
        """
        every, before = self.task["every"], self.step
        self.step = step
        if self.goes_on() and step // every > before // every:
            seconds, begun = self.clock(), time.monotonic()
            value = self.evaluate(step // every)
            self.evaluating += time.monotonic() - begun
            self.curve.append([step, round(seconds, 2), round(value, 1)])
            if value >= self.task["score"]:
                self.ended = "score"
        return self.goes_on()

    def evaluate(self, number: int) -> float:
        """Mean return of ten episodes without exploration, in a raw environment of their own.

        Their seeds derive from the run's and the evaluation's number: the same for all contenders.
        """
        import gymnasium as gym

        if self.env is None:
            self.env = gym.make(self.task["env"])
        returns = np.zeros(EPISODES)
        for i in range(EPISODES):
            sequence = np.random.SeedSequence([self.task["seed"], number, i])
            observation, _ = self.env.reset(seed=int(sequence.generate_state(1)[0]))
            over = False
            while not over:
                step = self.env.step(self.act(observation))
                observation, reward, terminated, truncated, _ = step
                returns[i] += float(reward)
                over = terminated or truncated
        return float(np.mean(returns))

    def result(self, settings: dict[str, Any], start: float | None) -> dict[str, Any]:
        """What the parent records; `start` is the clock at the first environment step."""
        return {
            "settings": settings,
            "start_seconds": None if start is None else round(start, 2),
            "curve": self.curve,
            "ended": self.ended,
            "last_step": self.step,
            "seconds": round(self.clock(), 2),
            "evaluating_seconds": round(self.evaluating, 1),
        }


def ours(task: dict[str, Any]) -> dict[str, Any]:
    """Train an algorithm of this package, with a run directory and its default checkpoints."""
    from disc.run.agents import AGENTS

    preset = {"preset": task["preset"]} if "preset" in task else {}
    kind = AGENTS[task["algorithm"]]
    start: list[float] = []
    with kind(task["env"], seed=task["seed"], threads=task["cores"], **preset) as agent:
        watch = Watch(task, lambda observation: agent.policy.predict(observation)[0])

        def callback(_: Any, row: dict[str, float]) -> bool:
            if not start:
                start.append(watch.clock() - row["time/elapsed"])
            return watch.updated(int(row["step"]))

        agent.learn(
            task["steps"], out=task["out"], eval_every=0, callbacks=[callback], progress=False
        )
        settings = {"preset": agent.preset, **dataclasses.asdict(agent.config)}
    return watch.result(settings, start[0] if start else None)


def theirs(task: dict[str, Any]) -> dict[str, Any]:
    """Train a peer; it writes nothing."""
    import torch

    from benchmarks import peers

    begun = time.monotonic()
    threads = peers.faster_threads(task)
    torch.set_num_threads(threads)
    task["launched"] += time.monotonic() - begun  # no user would wait for this trial
    model = peers.make(task)
    from stable_baselines3.common.callbacks import BaseCallback

    statistics, start = model.get_vec_normalize_env(), []

    def act(observation: Any) -> Any:
        if statistics is not None:
            observation = statistics.normalize_obs(observation)
        return model.predict(observation, deterministic=True)[0]

    watch = Watch(task, act)

    class Callback(BaseCallback):  # type: ignore[misc]
        """Evaluates between an update and the next rollout, which may be a single step."""

        def _on_training_start(self) -> None:
            start.append(watch.clock())

        def _on_rollout_start(self) -> None:
            watch.updated(self.num_timesteps)

        def _on_training_end(self) -> None:
            watch.updated(self.num_timesteps)

        def _on_step(self) -> bool:
            return watch.goes_on()

    model.learn(task["steps"], callback=Callback())
    return {**watch.result(task["settings"], start[0]), "torch_threads": threads}


def main() -> None:
    """Run the task in the first argument."""
    task = json.loads(sys.argv[1])
    result = ours(task) if task["library"] == "disc" else theirs(task)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
