"""`disc eval`, `disc watch`, `disc export` and `disc info`."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from disc.cli.display import err, out
from disc.cli.options import Eval, Export, Info, Watch, parse_values
from disc.envs import evaluate as evaluation
from disc.envs.factory import Maker
from disc.envs.spaces import describe, observation_layout
from disc.policy import file as policies
from disc.policy.formats.export import export
from disc.policy.policies import Categorical
from disc.run.config import read_config
from disc.types import Choices, DiscError, printable
from disc.video import record


def evaluate(command: Eval) -> None:
    """`disc eval`."""
    file, maker = _open(command.policy, command.env, command.best)
    with maker.borrowed() as env:
        _check_fit(file, env, maker)
        found = evaluation.evaluate(
            env,
            file.policy,
            command.episodes,
            command.seed,
            deterministic=not command.stochastic,
            name=maker.name,
            say=cache(err.print),
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
    file, maker = _open(command.policy, command.env, command.best)
    maker = Maker(maker.source, {**maker.kwargs, **parse_values(command.env_kwargs)})
    default = "best.mp4" if command.best else "video.mp4"
    if (name := policies.zoo_name(command.policy)) is not None:
        default = f"{name}.mp4"
    folder = command.policy if command.policy.is_dir() else command.policy.parent
    with maker.borrowed() as env:
        _check_fit(file, env, maker)

    file.policy.seed(command.seed)

    def act(observation: Any) -> Any:
        action, _ = file.policy.predict(observation, deterministic=not command.stochastic)
        return action

    recording = record.record(
        maker.make,
        act,
        command.out or folder / default,
        episodes=command.episodes,
        seed=command.seed,
        max_seconds=command.seconds,
        renderer=command.renderer,
    )
    returns = ", ".join(f"{total:,.1f}" for total in recording.returns)
    cut = " when the video ends" if recording.cut else ""
    out.print(
        f"{recording.path}: {recording.frames} frames, {recording.frames / recording.fps:.0f} s; "
        f"return {returns}{cut}",
        markup=False,
    )


def export_policy(command: Export) -> None:
    """`disc export`."""
    path = _policy_path(command.policy, command.best)
    export(path, command.to, stochastic=command.stochastic, overwrite=command.overwrite)
    out.print(f"{command.to}: {command.to.stat().st_size:,} bytes", markup=False)


def info(command: Info) -> None:
    """`disc info`."""
    path = _policy_path(command.policy)
    file = policies.read(path)
    header, acting = file.info, file.policy
    scores = _table(header.get("scores"))
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    rows = {
        "file": str(path),
        "contents": f"{header.get('algorithm')} policy for {header.get('env_name')}",
        "env_kwargs": ", ".join(f"{k}={v!r}" for k, v in _table(header.get("env_kwargs")).items()),
        "observations": f"shape {acting.observation_shape}",
        "entries": str(acting.layout or ""),
        "actions": f"shape {acting.action_shape}"
        + (f", {_kind(acting.choices)}" if isinstance(acting, Categorical) else ""),
        "network": " → ".join(str(w.shape[0]) for w in acting.weights)
        + f" → {acting.biases[-1].size}",
        "trained": f"{_number(header.get('step', 0), ',')} steps, seed {header.get('seed')}",
    }
    best = _best(command.policy) or _table(header.get("best")) or scores.get("best_evaluation")
    rows["last evaluation"] = _evaluation(scores.get("last_evaluation"))
    rows["best evaluation"] = _evaluation(best)
    rows["best (re-evaluated)"] = _evaluation(_table(best).get("reevaluated"))
    rows["zoo"] = _origin(_table(header.get("zoo")))
    with suppress(DiscError):  # a policy can be described without its run
        rows["run"] = _state(command.policy)
    rows["options"] = ", ".join(f"{k}={v}" for k, v in _table(header.get("config")).items())
    rows["versions"] = ", ".join(f"{k} {v}" for k, v in _table(header.get("versions")).items())
    for name, text in rows.items():
        if text:
            table.add_row(name, Text(printable(text)))
    out.print(table)


def _best(run: Path) -> dict[str, Any]:
    """The best evaluation of a run directory, as in its `best.disc`, if it has one."""
    if not (run / policies.BEST).is_file():
        return {}
    return _table(policies.read(run / policies.BEST).info.get("best"))


def _origin(zoo: dict[str, Any]) -> str:
    """How a policy of the zoo was chosen; empty for other policies."""
    if not zoo:
        return ""
    scores = ", ".join(
        f"{_number(score, ',.0f')} (seed {seed})"
        for seed, score in _table(zoo.get("last_ten_by_seed")).items()
    )
    mean, spread = (_number(zoo.get(x), ",.1f") for x in ("return", "return_std"))
    return (
        f"{mean} ± {spread} in {zoo.get('episodes')} episodes (disc eval, seed "
        f"{zoo.get('evaluation_seed')}); {zoo.get('chosen')}; mean of the last ten evaluations: "
        f"{scores}; commit {zoo.get('commit')}"
    )


def _state(run: Path) -> str:
    """Whether a run has ended, and why."""
    config = read_config(run)
    if "ended" not in config:
        return f"planned for {config['plan']['steps']:,} steps"
    ended = config["ended"]
    how = "stopped early" if ended["early"] else "finished"
    return f"{how} at step {ended['step']:,}: {ended['reason']}"


def _evaluation(found: Any) -> str:
    """A short description of an evaluation in a file; empty if there is none."""
    if not (known := _table(found)):
        return ""
    mean, spread = (_number(known.get(x), ",.1f") for x in ("return", "return_std"))
    parts = [f"{mean} ± {spread}"]
    if known.get("by") == "lower":
        parts.append("the highest lower bound,")
    if "step" in known:
        parts.append(f"at step {_number(known['step'], ',')}")
    else:
        parts.append(f"in {_number(known.get('episodes'), ',')} other episodes")
    return " ".join(parts)


def _table(value: Any) -> dict[str, Any]:
    """The value if it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}


def _number(value: Any, form: str) -> str:
    """A formatted number, or the value as text if it is not a number."""
    try:
        return format(value, form)
    except (ArithmeticError, TypeError, ValueError):
        return str(value)


def _policy_path(path: Path, best: bool = False) -> Path:
    file = policies.locate(path, best)
    if path.is_dir() and not file.exists():
        read_config(path)
        raise DiscError(f"{path}: no policy yet; this run will save one at its first checkpoint.")
    return file


def _open(path: Path, env: str | None, best: bool) -> tuple[policies.PolicyFile, Maker]:
    """A policy file and the maker of its environment."""
    file = policies.read(_policy_path(path, best))
    recipe, kwargs = file.info.get("env"), file.info.get("env_kwargs")
    if env is None:
        return file, Maker.from_file(path, recipe, kwargs, f"add `--env {recipe}`")
    return file, Maker(env, _table(kwargs) if Maker(env).name == recipe else {})


def _check_fit(file: policies.PolicyFile, env: Any, maker: Maker) -> None:
    spec, acting = describe(env, maker.name), file.policy
    if (spec.observation_shape, spec.action_shape) != (
        acting.observation_shape,
        acting.action_shape,
    ):
        raise DiscError(
            f"{maker.name}: has observations of shape {spec.observation_shape} and actions of "
            f"shape {spec.action_shape}, but the policy needs {acting.observation_shape} and "
            f"{acting.action_shape}."
        )
    wanted = acting.choices if isinstance(acting, Categorical) else None
    if not (wanted.equal(spec.choices) if wanted else spec.choices is None):
        raise DiscError(
            f"{maker.name}: has {_kind(spec.choices)} actions, but the policy gives "
            f"{_kind(wanted)} ones."
        )
    layout = observation_layout(env, maker.name)
    if (None if layout.plain else layout) != acting.layout:
        raise DiscError(
            f"{maker.name}: its observations have other entries than those the policy was trained "
            "with; `disc info` shows the policy's."
        )


def _kind(choices: Choices | None) -> str:
    """A short description of the kind of actions."""
    if choices is None:
        return "continuous"
    counts, starts, dtype = choices
    shown = ", ".join(map(str, counts[:10])) + (", …" if len(counts) > 10 else "")
    offset = f" from {', '.join(map(str, starts[:10]))}" if np.any(starts) else ""
    return f"discrete ({shown} choices{offset}, {dtype})"
