"""Policies that only explore: they collect steps, and are never saved or deployed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from disc import seeding
from disc.policy.policies import Deterministic


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
