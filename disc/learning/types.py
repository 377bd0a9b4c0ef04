"""Records that flow between the stages of learning, with the shape of every field.

M is the rows of a minibatch, C the slots of a replay and T the steps of a chunk; the other letters
are those of `disc.types`. The functions that make a record stand in the module of its stage.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from disc.types import Floats


class Moments(NamedTuple):
    """Count, mean and variance of all values so far."""

    samples: float
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


class Normalizer(NamedTuple):
    """Statistics of observations and of discounted returns."""

    observation: Moments  # of shape (S,)
    discounted: Moments  # of shape ()
    running: NDArray[np.float64]  # (E,) discounted return of each environment's current episode


class Scale(NamedTuple):
    """A snapshot of a normaliser, in single precision."""

    mean: Floats  # (S,)
    inverse_std: Floats  # (S,)
    reward: Floats  # ()


class BatchReplay(NamedTuple):
    """L rollouts of N steps each."""

    observation: jax.Array  # (L, N, S)
    next_observation: jax.Array  # (L, N, S)
    action: jax.Array  # (L, N, D)
    mean: jax.Array  # (L, N, P) of the behaviour policy; its logits if actions are discrete
    log_std: jax.Array  # (L, D)
    reward: jax.Array  # (L, N)
    terminated: jax.Array  # (L, N) bool
    truncated: jax.Array  # (L, N) bool
    border: jax.Array  # (L, N) bool
    age: jax.Array  # (L,) int32, iterations since collected: 0 is the newest, −1 is empty

    @property
    def length(self) -> int:
        """Return L."""
        return self.observation.shape[0]

    @property
    def horizon(self) -> int:
        """Return N."""
        return self.observation.shape[1]

    @property
    def filled(self) -> int:
        """Slots in use; the first ones."""
        return int(np.sum(np.asarray(self.age) >= 0))


class ChunkReplay(NamedTuple):
    """C chunks of T consecutive steps each; an episode may end within a chunk."""

    observation: jax.Array  # (C, T, S)
    next_observation: jax.Array  # (C, T, S)
    action: jax.Array  # (C, T, D)
    reward: jax.Array  # (C, T)
    terminated: jax.Array  # (C, T) bool
    truncated: jax.Array  # (C, T) bool
    border: jax.Array  # (C, T) bool
    number: jax.Array  # (C,) int32, counts chunks in order of arrival: −1 is empty

    @property
    def filled(self) -> int:
        """Slots in use; the first ones."""
        return int(np.sum(np.asarray(self.number) >= 0))


class TransitionReplay(NamedTuple):
    """C single steps."""

    observation: jax.Array  # (C, S)
    next_observation: jax.Array  # (C, S) at an episode's end its true final observation
    action: jax.Array  # (C, D)
    reward: jax.Array  # (C,)
    terminated: jax.Array  # (C,) bool
    truncated: jax.Array  # (C,) bool
    stored: jax.Array  # () int32, steps stored so far, overwritten ones included

    @property
    def filled(self) -> int:
        """Slots in use; the first ones."""
        return min(int(self.stored), len(self.reward))


class Ratios(NamedTuple):
    """Importance weights of every stored batch under the current policy; zero where empty."""

    log_rho: jax.Array  # (L, N) log ρ_t
    joint_deviation: jax.Array  # (L,) mean |ρ_t − 1|
    dimension_deviation: jax.Array  # (L,) mean |ρ_{t,d} − 1|
    output: jax.Array  # (L, N, P) of the current policy's network


class Steps(NamedTuple):
    """The inputs of `disc.equations.advantages`, with time along the first axis.

    Rows of batches that are not included have value 0 and must not be read.
    """

    reward: jax.Array  # (N, L) normalised
    discount: jax.Array  # (N, L)
    decay: jax.Array  # (N, L)
    value: jax.Array  # (N, L) V(s_t)
    next_value: jax.Array  # (N, L) V(s_{t+1}), at episode ends of the true final observation


class Reference(NamedTuple):
    """The policies that the ratios of an update are relative to."""

    mean: jax.Array  # (L, N, P) the output of their networks
    log_std: jax.Array  # (L, D) NaN if they are not Gaussian


class Estimate(NamedTuple):
    """Advantages and targets of the replay under the current networks."""

    included: jax.Array  # (L,) bool
    advantage: jax.Array  # (L, N) Â, not standardised
    weight: jax.Array  # (L, N) of samples at the start of the update: min(1, ρ_t), or 1
    target: jax.Array  # (L, N)
    value: jax.Array  # (L, N) V(s_t)
    reference: Reference
    measured: dict[str, jax.Array]  # scalars to log


class Table(NamedTuple):
    """The L·N samples that an iteration learns from; constant during the iteration."""

    replay: BatchReplay
    scale: Scale
    estimate: Estimate


class Rows(NamedTuple):
    """Rows of the table, as passed to a loss."""

    observation: jax.Array  # (M, S) normalised
    action: jax.Array  # (M, D)
    mean: jax.Array  # (M, P) of the policy that ratios are relative to: its network's output
    log_std: jax.Array  # (M, D) of the same, NaN if it is not a Gaussian
    advantage: jax.Array  # (M,) Â, standardised
    target: jax.Array  # (M,)
    value: jax.Array  # (M,) V(s_t) before the update
    weight: jax.Array  # (M,) `Estimate.weight`
    mask: jax.Array  # (M,) 1, or 0 for padding


class Parts(NamedTuple):
    """A loss over some rows: numerator / stop_gradient(denominator) + penalty."""

    numerator: jax.Array  # a sum over the rows
    denominator: jax.Array  # a sum over the rows
    penalty: jax.Array | float  # a mean, used for the newest rows only
    measured: dict[str, jax.Array]  # (M,) each, to be averaged and logged
