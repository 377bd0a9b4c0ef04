"""`disc eval`, `disc watch` and `disc info`: what can be done with a policy file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from disc import evaluate as evaluation
from disc import policy as policies
from disc import runs, video
from disc.envs import describe
from disc.options import Eval, Info, Watch
from disc.tasks import Maker
from disc.types import DiscError

out = Console(highlight=False, soft_wrap=True)


def evaluate(command: Eval) -> None:
    """`disc eval`."""
    file, maker = _open(command.policy, command.env)
    if command.episodes < 1:
        raise DiscError(f"--episodes must be at least 1, not {command.episodes}.")
    env = maker.make()
    _check_fit(file, env, maker)
    with closing(env):
        found = evaluation.evaluate(
            env, file.policy, command.episodes, command.seed, deterministic=not command.stochastic
        )
    sampled = command.stochastic or file.policy.sampled_only
    kind = "sampled" if sampled else "deterministic"
    out.print(
        f"{maker.name}, {command.episodes} episodes, {kind} actions: "
        f"{np.mean(found.returns):,.2f} ± {np.std(found.returns):,.2f}"
    )
    for i, (total, length) in enumerate(zip(found.returns, found.lengths, strict=True), 1):
        out.print(f"  episode {i}: {total:,.2f} in {length:,} steps")


def watch(command: Watch) -> None:
    """`disc watch`."""
    file, maker = _open(command.policy, command.env)
    default = command.policy if command.policy.is_dir() else command.policy.parent
    env = maker.make()
    _check_fit(file, env, maker)
    env.close()

    file.policy.seed(command.seed)

    def act(observation: Any) -> Any:
        action, _ = file.policy.predict(observation, deterministic=not command.stochastic)
        return action

    recording = video.record(
        maker.make,
        act,
        command.out or default / "video.mp4",
        episodes=command.episodes,
        seed=command.seed,
        max_seconds=command.seconds,
    )
    returns = ", ".join(f"{total:,.1f}" for total in recording.returns)
    cut = " when the video ends" if recording.cut else ""
    out.print(
        f"{recording.path}: {recording.frames} frames, {recording.frames / recording.fps:.0f} s; "
        f"return {returns}{cut}",
        markup=False,
    )


def info(command: Info) -> None:
    """`disc info`."""
    path = _policy_path(command.policy)
    file = policies.read(path)
    said, acting = file.info, file.policy
    scores = said.get("scores", {})
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    rows = {
        "file": str(path),
        "what": f"{said.get('algorithm')} policy for {said.get('env_name')}",
        "takes": f"observations of shape {acting.observation_shape}",
        "gives": f"actions of shape {acting.action_shape}",
        "network": " → ".join(str(w.shape[0]) for w in acting.weights)
        + f" → {acting.biases[-1].size}",
        "trained": f"{said.get('step', 0):,} steps, seed {said.get('seed')}",
    }
    for name in ("last_evaluation", "best_evaluation"):
        if name in scores:
            score = scores[name]
            rows[name.replace("_", " ")] = (
                f"{score['return']:,.1f} ± {score['return_std']:,.1f} at step {score['step']:,}"
            )
    rows["options"] = ", ".join(f"{k}={v}" for k, v in said.get("config", {}).items())
    rows["versions"] = ", ".join(f"{k} {v}" for k, v in said.get("versions", {}).items())
    for name, text in rows.items():
        table.add_row(name, Text(text))
    out.print(table)


def _policy_path(path: Path) -> Path:
    file = policies.locate(path)
    if path.is_dir() and not file.exists():
        runs.read_config(path)
        raise DiscError(
            f"{path}: this run has saved no policy yet; it will at its first checkpoint."
        )
    return file


def _open(path: Path, env: str | None) -> tuple[policies.PolicyFile, Maker]:
    """A policy file and what makes its environment."""
    file = policies.read(_policy_path(path))
    if env is not None:
        same = env == file.info.get("env")
        return file, Maker(env, file.info.get("env_kwargs", {}) if same else {})
    return file, Maker.from_file(path, file.info.get("env"), file.info.get("env_kwargs"))


def _check_fit(file: policies.PolicyFile, env: Any, maker: Maker) -> None:
    spec = describe(env, maker.name)
    acting = file.policy
    if (spec.observation_shape, spec.action_shape) != (
        acting.observation_shape,
        acting.action_shape,
    ):
        raise DiscError(
            f"{maker.name}: has observations {spec.observation_shape} and actions "
            f"{spec.action_shape}, and the policy is for {acting.observation_shape} and "
            f"{acting.action_shape}."
        )
