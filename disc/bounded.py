"""Policies whose actions can't leave their bounds: those of DDPG, TD3, SAC and SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from disc.policies import LARGEST, Policy
from disc.types import Floats

LOG_STD_RANGE = (-20.0, 2.0)  # of SAC's policy (original)
LAYER_NORM_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Bounded(Policy):
    """A ReLU network whose output goes through tanh and is stretched to the actions' bounds."""

    @property
    def log_std(self) -> Floats:
        """It is no Gaussian: (D,) of NaN."""
        return np.full_like(self.action_low, np.nan)

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """The action, in place of a mean again, for one observation (S,) and noise (D,)."""
        action = self.sample(observation, noise)
        return action, action

    def mean(self, observation: Floats) -> Floats:
        """The bounds' middle + reach · tanh(network(s)), (S,) → (D,) or (B, S) → (B, D)."""
        return self.stretch(np.tanh(self.network(self._normalize(observation))))

    def network(self, x: Floats) -> Floats:
        """ReLU layers and a linear head."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.maximum(x, 0.0, out=x)
        return self._head(x)

    def stretch(self, squashed: Floats) -> Floats:
        """An action within ±1 in the environment's units."""
        low, high = self.action_low, self.action_high
        return self.clip(0.5 * (low + high) + 0.5 * (high - low) * squashed)

    def numbers(self) -> tuple[Floats, ...]:
        """All that must be finite: the bounds too."""
        return (*super().numbers(), self.action_low, self.action_high)


@dataclass(frozen=True, kw_only=True)
class Squashed(Bounded):
    """a = tanh(m(s) + σ(s)·noise), stretched: SAC."""

    kind = "squashed"

    def mean(self, observation: Floats) -> Floats:
        """tanh(m(s)), stretched."""
        both = self.network(self._normalize(observation))
        return self.stretch(np.tanh(both[..., : len(self.action_low)]))

    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """tanh(m(s) + σ(s)·noise), stretched."""
        both, size = self.network(self._normalize(observation)), len(self.action_low)
        low, high = LOG_STD_RANGE
        std = np.exp(np.minimum(np.maximum(both[..., size:], low), high))
        return self.stretch(np.tanh(both[..., :size] + std * noise))

    def check(self, inputs: int = 0, outputs: int = 2) -> None:
        """Refuse arrays that do not fit together."""
        super().check(inputs, outputs)


@dataclass(frozen=True, kw_only=True)
class Deterministic(Bounded):
    """a = tanh(network(s)), stretched: TD3 and, with layer normalisation, DDPG."""

    exploration: float  # standard deviation of the noise on actions, as a share of their reach
    scales: tuple[Floats, ...] = ()  # (H,), (H,): of the layer normalisation, if there is one
    shifts: tuple[Floats, ...] = ()
    kind = "deterministic"

    def network(self, x: Floats) -> Floats:
        """ReLU layers, normalised or not, and a linear head."""
        if not self.scales:
            return super().network(x)
        layers = zip(self.weights[:-1], self.biases[:-1], self.scales, self.shifts, strict=True)
        for weight, bias, scale, shift in layers:
            x = x @ weight
            x += bias
            x = x - x.mean(axis=-1, keepdims=True)
            x *= 1.0 / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + LAYER_NORM_EPSILON)
            x *= scale
            x += shift
            np.maximum(x, 0.0, out=x)
        return self._head(x)

    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """tanh(network(s)) + exploration·noise, held within ±1 and stretched."""
        squashed = np.tanh(self.network(self._normalize(observation)))
        squashed += np.float32(self.exploration) * noise
        return self.stretch(squashed)

    def header(self) -> dict[str, Any]:
        """What acting needs and is no array."""
        return {**super().header(), "exploration": self.exploration}

    @classmethod
    def fields(cls, tensors: dict[str, Floats], header: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the policy in a file."""
        depth = sum(name.startswith(("policy/scale_", "policy/shift_")) for name in tensors) // 2
        own = {
            "exploration": float(header["exploration"]),
            "scales": tuple(tensors[f"policy/scale_{i}"] for i in range(depth)),
            "shifts": tuple(tensors[f"policy/shift_{i}"] for i in range(depth)),
        }
        return {**super().fields(tensors, header), **own}

    def check(self, inputs: int = 0, outputs: int = 1) -> None:
        """Refuse arrays that do not fit together."""
        super().check(inputs, outputs)
        if not 0.0 <= self.exploration < LARGEST:
            raise ValueError(f"exploration can't be {self.exploration}")
        hidden = [bias.shape for bias in self.biases[:-1]]
        if self.scales and not (
            hidden == [x.shape for x in self.scales] == [x.shape for x in self.shifts]
        ):
            raise ValueError("the layer normalisation does not fit the layers")

    def numbers(self) -> tuple[Floats, ...]:
        """All that must be finite."""
        return (*super().numbers(), *self.scales, *self.shifts)


@dataclass(frozen=True, kw_only=True)
class Sampler(Bounded):
    """a = tanh(network(s, noise)), stretched: SQL. It has no action without noise."""

    kind = "sampler"
    sampled_only = True

    def mean(self, observation: Floats) -> Floats:
        """Not the mean, which this policy does not know: the action for noise 0."""
        size = len(self.action_low)
        return self.sample(observation, np.zeros((*observation.shape[:-1], size), np.float32))

    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """tanh(network(s, noise)), stretched."""
        both = np.concatenate([self._normalize(observation), noise], axis=-1)
        return self.stretch(np.tanh(self.network(both)))

    def check(self, inputs: int = 1, outputs: int = 1) -> None:
        """Refuse arrays that do not fit together."""
        super().check(inputs, outputs)
