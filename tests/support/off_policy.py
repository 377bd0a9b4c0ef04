"""Numbered steps for tests of the code that off-policy algorithms share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disc.algos import sac
from disc.learning import off_policy
from disc.learning import replay as replays
from disc.learning.off_policy import Bounds
from disc.learning.types import TransitionReplay
from disc.types import Rollout, Spec
from tests.support.rollouts import rollout_of

S, D, SIZE = 2, 2, 5
LOW, HIGH = np.float32([-1.0, 2.0]), np.float32([3.0, 10.0])
SPEC = Spec(S, D, (S,), (D,), LOW, HIGH)
BOUNDS = Bounds(jnp.float32([1.0, 6.0]), jnp.float32([2.0, 4.0]))

draw = jax.jit(off_policy.draw, static_argnums=(3, 4))


def assert_close(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def numbered(first: int, count: int) -> Rollout:
    """Steps with their number in every field; flags are its last two bits."""
    step = np.arange(first, first + count)
    column = np.repeat(np.float32(step)[:, None], S, axis=1)
    columns = {
        "observation": column,
        "next_observation": column + np.float32(0.5),
        "action": LOW + (HIGH - LOW) * np.float32(step % 5 / 4)[:, None],
        "reward": np.float32(-step),
        "terminated": step % 2 == 1,
        "truncated": step // 2 % 2 == 1,
    }
    return rollout_of(columns)


def filled(count: int, size: int = SIZE) -> TransitionReplay:
    return replays.push_transitions(replays.init_transitions(size, SPEC), numbered(0, count))


def config(**options: Any) -> sac.Config:
    """Small, with a reward scale that does not depend on the task."""
    small: dict[str, Any] = {
        "widths": (4,),
        "batch_size": 3,
        "replay_size": 40,
        "random_steps": 10,
        "reward_scale": 1.0,
    }
    return sac.Config(**{**small, **options})
