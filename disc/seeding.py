"""All randomness, derived from the run's seed and counters.

A stream is named by what it is for and where in the run it is used, so nothing needs to be
carried along, a resumed run draws what the uninterrupted one would have drawn, and evaluation
can't disturb training.
"""

from __future__ import annotations

import numpy as np

NETWORKS, NOISE, MINIBATCHES, ENVIRONMENTS, EVALUATION, PARAMETERS = range(6)


def generator(seed: int, stream: int, *position: int) -> np.random.Generator:
    """The generator of a stream at a position of the run."""
    return np.random.default_rng([seed, stream, *position])


def environment_seed(seed: int, stream: int, *position: int) -> int:
    """A seed for `env.reset`, below 2³¹."""
    return int(generator(seed, stream, *position).integers(2**31))
