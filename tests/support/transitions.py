"""Synthetic transitions and gradient steps on them, for tests of off-policy algorithms."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from disc.learning import normalize
from disc.learning.off_policy import Batch
from disc.types import Rollout
from tests.support.rollouts import rollout_of, spec

S, D, B = 3, 2, 10
SPEC = spec(S, D)
IDENTITY = normalize.scale(normalize.init(S, 1))
KEY = jax.random.PRNGKey(7)


def compiled(learn: Any) -> Any:
    """A gradient step compiled without optimisation, as small networks compile slowly."""
    options = {"xla_backend_optimization_level": 0}
    return jax.jit(learn, static_argnums=0, compiler_options=options)


def batch(seed: int = 0) -> Any:
    """Rows of which every third is final."""
    rng = np.random.default_rng(seed)
    here, there = rng.standard_normal((2, B, S))
    action, reward = rng.uniform(-0.95, 0.95, (B, D)), rng.standard_normal(B)
    columns = (np.float32(x) for x in (here, action, reward, there))
    return Batch(*columns, np.arange(B) % 3 == 1)


def rollout(steps: int, **columns: Any) -> Rollout:
    """Random steps, the third of which ends an episode."""
    rng = np.random.default_rng(0)
    x, following = rng.standard_normal((2, steps, S)).astype(np.float32)
    action = rng.uniform(-1.0, 1.0, (steps, D)).astype(np.float32)
    facts = {
        "observation": x,
        "action": action,
        "mean": action,
        "reward": rng.standard_normal(steps).astype(np.float32),
        "next_observation": following,
        "terminated": np.arange(steps) == 2,
        "truncated": np.zeros(steps, bool),
    }
    return rollout_of({**facts, **columns})
