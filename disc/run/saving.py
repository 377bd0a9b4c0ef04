"""Writes networks and statistics of a run to a policy file, and reads them back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from disc import host, storage
from disc.envs.factory import Maker, Source
from disc.learning.algorithm import Algorithm
from disc.learning.config import OLD_PRESET, make_config, stored_options
from disc.learning.types import Moments, Normalizer
from disc.policy import file as policy_file
from disc.policy.file import PolicyFile
from disc.policy.policies import Policy, choices_of
from disc.run import log
from disc.run.training import Best, Training
from disc.types import DiscError


def write_policy(training: Training, path: Path) -> None:
    """Write the policy file of a run."""
    policy_file.write(path, *contents(training))


def write_best(best: Best, path: Path) -> None:
    """Write the policy file of the best evaluation."""
    policy_file.write(path, best.tensors, best.info)


def contents(training: Training) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the header of the policy file of a run."""
    acting = training.policy
    moments = training.state.normalizer
    tensors = {
        **_named(training.state.parameters()),
        **acting.tensors(),
        "normalizer/moments_mean": moments.observation.mean,
        "normalizer/moments_variance": moments.observation.variance,
    }
    info = {
        "algorithm": training.algorithm.NAME,
        "env": training.maker.recipe,
        "env_name": training.maker.name,
        "env_kwargs": dict(training.maker.kwargs),
        "seed": training.seed,
        "num_envs": training.num_envs,
        "step": training.state.step,
        **acting.header(),
        "preset": training.preset,
        "config": dataclasses.asdict(training.config),
        "statistics": {
            "observations": moments.observation.samples,
            "returns": moments.discounted.samples,
            "return_mean": float(moments.discounted.mean),
            "return_variance": float(moments.discounted.variance),
        },
        "versions": host.versions(),
        "scores": log.scores(training.rows),
    }
    return tensors, info


def check_fit(training: Training, best: Best) -> None:
    """Raise a `DiscError` unless the best policy could be the run's own."""

    def form(policy: Policy, tensors: dict[str, Any]) -> Any:
        shapes = {name: (np.shape(x), np.asarray(x).dtype) for name, x in tensors.items()}
        sizes = (policy.observation_shape, policy.action_shape)
        return shapes, sizes, policy.layout, choices_of(policy)

    if form(best.policy, best.tensors) != form(training.policy, contents(training)[0]):
        raise DiscError("the best policy in the checkpoint does not fit this run's options.")


def _named(parameters: dict[str, Any]) -> dict[str, Any]:
    """Networks as arrays by name: `policy/weight_0`, `policy/log_std`, `value/1/bias_2`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(parameters)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def _name(path: tuple[Any, ...]) -> str:
    """A layer's number follows the name of its array; `mean` and `logits` are left out."""
    keys = [jax.tree_util.keystr((key,), simple=True) for key in path]
    keys = [key for key in keys if key not in ("mean", "logits")]
    if len(keys) > 2 and keys[-2].isdigit():
        keys[-2:] = [f"{keys[-1]}_{keys[-2]}"]
    return "/".join(keys)


def read_policy(
    algorithm: Algorithm, path: str | Path, env: Source | None, options: dict[str, Any]
) -> tuple[PolicyFile, Source, dict[str, Any]]:
    """A policy file, the environment to train it in, and the options of the agent.

    Args:
        algorithm: must be the file's.
        path: a policy file, a run directory, or `zoo:NAME`.
        env: the environment; the file's if None.
        options: override those in the file.

    Raises:
        DiscError: the file is incomplete, of another algorithm, or does not fit the options.
    """
    file = policy_file.read(policy_file.locate(path))
    info = file.info
    if info.get("algorithm") != algorithm.NAME:
        raise DiscError(f"{path}: a policy of {info.get('algorithm')}, not of {algorithm.NAME}.")
    if env is None:
        env = Maker.from_file(path, info.get("env"), info.get("env_kwargs")).source
        options = {"num_envs": info.get("num_envs", 1), **options}
    maker, kwargs = Maker(env), info.get("env_kwargs")
    if maker.name == info.get("env_name") and not maker.single and isinstance(kwargs, dict):
        options = {"env_kwargs": kwargs, **options}
    known = {field.name for field in dataclasses.fields(algorithm.Config)}
    try:
        stored = stored_options(algorithm, info["config"])
        saved = {name: value for name, value in stored.items() if name in known}
        preset = info.get("preset", OLD_PRESET)
        options = {"seed": info["seed"], "preset": preset, **saved, **options}
    except storage.MALFORMED as error:
        raise DiscError(f"{path}: this policy file is not complete ({error}).") from error
    chosen = {name: value for name, value in options.items() if name in known}
    config = make_config(algorithm, chosen, options["preset"])
    if config.widths != tuple(map(len, file.policy.biases[:-1])):  # before they are made
        raise DiscError(f"{path}: its networks do not have the widths {config.widths}.")
    return file, env, options


def read_networks(state: Any, acting: Policy, file: PolicyFile) -> Any:
    """A fresh state with the networks and statistics of a policy file.

    Args:
        state: an initial state.
        acting: its policy.
        file: the policy file.

    Raises:
        DiscError: the networks do not fit the state, or are not all finite.
    """
    tensors, info = file.tensors, file.info
    if choices_of(acting) != choices_of(file.policy):
        raise DiscError("the policy file's networks do not fit this environment and options.")

    def place(path: Any, blank: jax.Array) -> jax.Array:
        array = tensors.get(_name(path))
        if array is None or array.shape != blank.shape:
            raise DiscError("the policy file's networks do not fit this environment and options.")
        if array.dtype != blank.dtype or not np.isfinite(array).all():
            raise DiscError(f"the policy file's {_name(path)} is not all finite {blank.dtype}.")
        return jax.device_put(np.array(array))

    parameters = jax.tree_util.tree_map_with_path(place, state.parameters())
    try:
        stored, fresh = info["statistics"], state.normalizer
        seen = [tensors[f"normalizer/moments_{name}"] for name in ("mean", "variance")]
        observation = _moments(stored["observations"], seen, fresh.observation)
        returns = [np.float64(stored[f"return_{name}"]) for name in ("mean", "variance")]
        discounted = _moments(stored["returns"], returns, fresh.discounted)
    except storage.MALFORMED as error:
        raise DiscError(f"the policy file's statistics are not complete ({error}).") from error
    normalizer = Normalizer(observation, discounted, fresh.running)
    return state.start_from(parameters, normalizer)


def _moments(samples: Any, found: Sequence[Any], fresh: Moments) -> Moments:
    """Statistics from a file; raises if they are invalid."""
    for values in found:
        if values.shape != fresh.mean.shape or values.dtype.kind != "f":
            raise ValueError(f"{values.dtype} of shape {values.shape}")
    mean, variance = (np.asarray(values, np.float64) for values in found)
    known = np.isfinite([mean, variance]).all() and (variance >= 0.0).all()
    if not known or not 0.0 <= float(samples) < np.inf:
        raise ValueError("a non-finite value")
    return Moments(float(samples), mean, variance)
