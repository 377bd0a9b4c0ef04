"""Six batches, some of them included, for tests of minibatches."""

from __future__ import annotations

from typing import Any

import numpy as np

from disc.learning import minibatch
from disc.learning.minibatch import Draw

L, N, STEPS, S, D = 6, 32, 4, 3, 2
ROWS = N // STEPS
AGES = np.int32([2, 1, 0, 5, 4, 3])
NEWEST = 2


def include(n: int) -> Any:
    """The newest batch and n − 1 others."""
    included = np.zeros(L, bool)
    included[[NEWEST, 4, 0, 3, 5, 1][:n]] = True
    return included


def draw(n: int, epochs: int = 1, seed: int = 0, most: int | None = None) -> Draw:
    return minibatch.draw(np.random.default_rng(seed), AGES, include(n), N, epochs, STEPS, most)
