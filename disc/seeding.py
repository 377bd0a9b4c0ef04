"""Random number generators, derived from the run's seed and counters.

A stream is identified by its purpose and its position in the run. So there is no generator state
to save, a resumed run draws the same numbers as an uninterrupted one, and evaluation does not
affect training.
"""

from __future__ import annotations

import numpy as np

NETWORKS, NOISE, MINIBATCHES, ENVIRONMENTS, EVALUATION, PARAMETERS, REEVALUATION = range(7)


def generator(seed: int, stream: int, *position: int) -> np.random.Generator:
    """The generator of a stream at a position of the run."""
    return np.random.default_rng([seed, stream, *position])


def environment_seed(seed: int, stream: int, *position: int) -> int:
    """A seed for `env.reset`, below 2³¹."""
    return int(generator(seed, stream, *position).integers(2**31))
