"""Settings that hold for every test."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import settings

# (B,) − (B, 1) is a bug, not a matrix.
jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile("disc", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("disc")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
