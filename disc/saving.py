"""An agent's networks and statistics to a policy file, and back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from disc import logs, machine, normalize, policy
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
        return jnp.asarray(array)

    parameters = jax.tree_util.tree_map_with_path(place, state.parameters())
    statistics = info["statistics"]
    normalizer = normalize.Normalizer(
        normalize.Moments(
            statistics["observations"],
            tensors["normalizer/moments_mean"].astype(np.float64),
            tensors["normalizer/moments_variance"].astype(np.float64),
        ),
        normalize.Moments(
            statistics["returns"],
            np.asarray(statistics["return_mean"]),
            np.asarray(statistics["return_variance"]),
        ),
        state.normalizer.running,
    )
    return state.start_from(parameters, normalizer)
