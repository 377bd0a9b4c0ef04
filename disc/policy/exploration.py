"""Policies that only explore: they collect steps, and are never saved or deployed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from disc import seeding
from disc.policy.policies import Deterministic, Gaussian
from disc.types import Floats


@dataclass(frozen=True, kw_only=True)
class Perturbed(Deterministic):
    """A policy whose weights and biases are perturbed differently in every episode."""

    spread: float  # σ
    run_seed: int

    def episode(self, *name: int) -> Self:
        """The policy of one episode: θ + σ·noise, seeded by `name` (run and episode)."""
        rng = seeding.generator(self.run_seed, seeding.PARAMETERS, *name)

        def moved(array: Any) -> Any:
            return array + np.float32(self.spread) * rng.standard_normal(array.shape, np.float32)

        weights, biases = (tuple(map(moved, group)) for group in (self.weights, self.biases))
        return dataclasses.replace(self, weights=weights, biases=biases)


@dataclass(frozen=True, kw_only=True)
class Colored(Gaussian):
    """A Gaussian policy whose noise is correlated in time, with the power spectrum 1/f^β.

    Independent noise averages out over a few steps; low frequencies push a joint the same way for
    longer (Hollenstein et al., 2024). Each value by itself is still standard normal.
    """

    color: float  # β

    def noise(self, rng: np.random.Generator, count: int) -> Floats:
        """Correlated noise of unit variance, (count, D)."""
        return colored(super().noise(rng, count), self.color)


def colored(noise: Floats, color: float) -> Floats:
    """Filter white noise to the power spectrum 1/f^β, keeping its variance.

    The amplitude of the frequency k/T, 0 ≤ k ≤ T/2, is multiplied by max(k, 1)^(−β/2), divided by
    the root mean square of this factor over all frequencies.

    Args:
        noise: independent and standard normal, (T, D).
        color: β; 0 changes nothing.

    Returns:
        (T, D).
    """
    steps = len(noise)
    frequency = np.abs(np.fft.fftfreq(steps, 1.0 / steps))  # k
    gain = np.maximum(frequency, 1.0) ** (-0.5 * color)
    gain /= np.sqrt(np.mean(np.square(gain)))
    filtered = np.fft.ifft(np.fft.fft(noise, axis=0) * gain[:, None], axis=0)
    return filtered.real.astype(np.float32)
