"""An agent's networks and statistics to a policy file, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from disc import logs, machine, normalize, policy, untrusted
from disc.policy import PolicyFile
from disc.types import DiscError

if TYPE_CHECKING:
    from disc.agent import Agent


def write_policy(agent: Agent, path: Path) -> None:
    """Write an agent's policy file."""
    acting = agent.policy
    moments = agent.state.normalizer
    tensors = {
        **_named(agent.state.parameters()),
        **acting.tensors(),
        "normalizer/moments_mean": moments.observation.mean,
        "normalizer/moments_variance": moments.observation.variance,
    }
    info = {
        "algorithm": agent.algorithm.NAME,
        "env": agent.maker.recipe,
        "env_name": agent.maker.name,
        "env_kwargs": dict(agent.maker.kwargs),
        "seed": agent.seed,
        "num_envs": agent.num_envs,
        "step": agent.state.step,
        **acting.header(),
        "preset": agent.preset,
        "config": dataclasses.asdict(agent.config),
        "statistics": {
            "observations": moments.observation.samples,
            "returns": moments.discounted.samples,
            "return_mean": float(moments.discounted.mean),
            "return_variance": float(moments.discounted.variance),
        },
        "versions": machine.versions(),
        "scores": logs.scores(agent.metrics),
    }
    policy.write(path, tensors, info)


def _named(parameters: dict[str, Any]) -> dict[str, Any]:
    """Networks as arrays by name: `policy/weight_0`, `policy/log_std`, `value/1/bias_2`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(parameters)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def _name(path: tuple[Any, ...]) -> str:
    """A layer's number stands behind the name of its array; the word `mean` is left out."""
    words = [jax.tree_util.keystr((key,), simple=True) for key in path]
    words = [word for word in words if word != "mean"]
    if len(words) > 2 and words[-2].isdigit():
        words[-2:] = [f"{words[-1]}_{words[-2]}"]
    return "/".join(words)


def read_networks(state: Any, file: PolicyFile) -> Any:
    """A fresh state with the networks and statistics of a policy file."""
    tensors, info = file.tensors, file.info

    def place(path: Any, blank: jax.Array) -> jax.Array:
        array = tensors.get(_name(path))
        if array is None or array.shape != blank.shape:
            raise DiscError("the policy file's networks do not fit this environment and options.")
        if array.dtype != blank.dtype or not np.isfinite(array).all():
            raise DiscError(f"the policy file's {_name(path)} is not all finite {blank.dtype}.")
        return jnp.asarray(array)

    parameters = jax.tree_util.tree_map_with_path(place, state.parameters())
    try:
        said, fresh = info["statistics"], state.normalizer
        seen = [tensors[f"normalizer/moments_{name}"] for name in ("mean", "variance")]
        observation = _moments(said["observations"], seen, fresh.observation)
        returns = [np.float64(said[f"return_{name}"]) for name in ("mean", "variance")]
        discounted = _moments(said["returns"], returns, fresh.discounted)
    except untrusted.MALFORMED as error:
        raise DiscError(f"the policy file's statistics are not complete ({error}).") from error
    normalizer = normalize.Normalizer(observation, discounted, fresh.running)
    return state.start_from(parameters, normalizer)


def _moments(samples: Any, found: Sequence[Any], fresh: normalize.Moments) -> normalize.Moments:
    """Statistics from a file, if they can be such."""
    for values in found:
        if values.shape != fresh.mean.shape or values.dtype.kind != "f":
            raise ValueError(f"{values.dtype} of shape {values.shape}")
    mean, variance = (np.asarray(values, np.float64) for values in found)
    known = np.isfinite([mean, variance]).all() and (variance >= 0.0).all()
    if not known or not 0.0 <= float(samples) < np.inf:
        raise ValueError("a number that is none")
    return normalize.Moments(float(samples), mean, variance)
