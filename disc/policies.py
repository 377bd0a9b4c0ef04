"""What acts: a network and how its output becomes an action, in numpy alone.

`bounded.py` has the kinds whose actions can't leave their bounds, `policy.py` reads and writes the
file of all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from disc.types import DiscError, Floats

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """A network with its normaliser, in numpy; subclasses say how its output becomes an action.

    As an `Actor` it is called with one observation and one draw of noise; users call `predict`.
    """

    weights: tuple[Floats, ...]  # (S, H), (H, H), (H, D)
    biases: tuple[Floats, ...]  # (H,), (H,), (D,)
    observation_mean: Floats  # (S,)
    observation_inverse_std: Floats  # (S,)
    observation_clip: float | None = None  # normalised observations are held within ± this
    observation_shape: tuple[int, ...]
    action_low: Floats  # (D,)
    action_high: Floats  # (D,)
    action_shape: tuple[int, ...]
    clip_actions: bool = False  # to their bounds, before the environment sees them
    rng: np.random.Generator | None = field(init=False, repr=False, default=None)

    kind: ClassVar[str]
    sampled_only: ClassVar[bool] = False  # True if there is no action without noise

    def seed(self, seed: int) -> None:
        """Make the samples of `predict(…, deterministic=False)` repeatable."""
        object.__setattr__(self, "rng", np.random.default_rng(seed))

    @abstractmethod
    def mean(self, observation: Floats) -> Floats:
        """The action without noise: (S,) → (D,) or (B, S) → (B, D)."""

    @abstractmethod
    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """The action for standard normal noise of its shape."""

    @abstractmethod
    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Action and mean for one observation (S,) and standard normal noise (D,)."""

    def episode(self, *name: int) -> Self:
        """The policy of one episode: itself."""
        return self

    def predict(
        self, observation: ArrayLike, deterministic: bool = True, clip: bool | None = None
    ) -> tuple[Floats, None]:
        """The action for one observation or a batch of them.

        Args:
            observation: of the environment's shape, or (B, *shape). Raw: the policy normalises.
            deterministic: the action without noise; else a sample. SQL's policy is always sampled.
            clip: hold the action within the environment's bounds; as in training if None.

        Returns:
            (action, None): action of the environment's shape, or (B, *shape). The None is where
            recurrent policies of other libraries return a state.
        """
        x = np.asarray(observation, np.float32)
        single = x.shape == self.observation_shape
        if not single and x.shape[1:] != self.observation_shape:
            raise DiscError(
                f"predict: observations of shape {x.shape} do not fit this policy, which takes "
                f"{self.observation_shape} or a batch of those."
            )
        x = x.reshape(-1, len(self.observation_mean))
        if deterministic and not self.sampled_only:
            action = self.mean(x)
        else:
            shape = (len(x), len(self.action_low))
            action = self.sample(x, self._generator().standard_normal(shape, np.float32))
        if self.clip_actions if clip is None else clip:
            action = self.clip(action)
        action = action.reshape(-1, *self.action_shape)
        return (action[0] if single else action), None

    def bound(self, action: Floats) -> Floats:
        """The action (D,) as the environment gets it: shaped, and clipped if training clipped."""
        return (self.clip(action) if self.clip_actions else action).reshape(self.action_shape)

    def clip(self, action: Floats) -> Floats:
        """The action held within its bounds."""
        return np.minimum(np.maximum(action, self.action_low), self.action_high)

    def tensors(self) -> dict[str, Floats]:
        """What acting needs beside the network, by the names in the file."""
        return {
            "normalizer/observation_mean": self.observation_mean,
            "normalizer/observation_inverse_std": self.observation_inverse_std,
            "action/low": self.action_low,
            "action/high": self.action_high,
        }

    def header(self) -> dict[str, Any]:
        """What acting needs and is no array."""
        return {
            "kind": self.kind,
            "observation_shape": self.observation_shape,
            "action_shape": self.action_shape,
            "observation_clip": self.observation_clip,
            "clip_actions": self.clip_actions,
        }

    @classmethod
    def fields(cls, tensors: dict[str, Floats], header: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the policy in a file."""
        depth = sum(name.startswith("policy/weight_") for name in tensors)
        return {
            "weights": tuple(tensors[f"policy/weight_{i}"] for i in range(depth)),
            "biases": tuple(tensors[f"policy/bias_{i}"] for i in range(depth)),
            "observation_mean": tensors["normalizer/observation_mean"],
            "observation_inverse_std": tensors["normalizer/observation_inverse_std"],
            "observation_clip": header.get("observation_clip", 10.0),
            "observation_shape": _shape(header["observation_shape"]),
            "action_low": tensors["action/low"],
            "action_high": tensors["action/high"],
            "action_shape": _shape(header["action_shape"]),
            "clip_actions": bool(header["clip_actions"]),
        }

    def check(self, inputs: int = 0, outputs: int = 1) -> None:
        """Refuse what a file may hold but can't act, before it fails in the middle of a product.

        Args:
            inputs: of the network for each action dimension, beside the observation.
            outputs: of the network for each action dimension.
        """
        for array in (*self.numbers(), self.action_low, self.action_high):
            if array.dtype != np.float32:
                raise ValueError(f"an array is of type {array.dtype}, not float32")
        if not all(np.isfinite(array).all() for array in self.numbers()):
            raise ValueError("a number is not finite")
        size, dimensions = len(self.observation_mean), math.prod(self.action_shape)
        if self.observation_mean.shape != (math.prod(self.observation_shape),):
            raise ValueError(f"{size} inputs do not make shape {self.observation_shape}")
        size += inputs * dimensions
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.ndim != 2 or weight.shape[0] != size or bias.shape != weight.shape[1:]:
                raise ValueError(f"a layer of shape {weight.shape} does not take {size} inputs")
            size = weight.shape[1]
        if not self.weights or size != outputs * dimensions:
            raise ValueError(f"{size} outputs do not make an action of shape {self.action_shape}")
        clip = self.observation_clip
        if not (clip is None or (isinstance(clip, int | float) and 0 < clip < LARGEST)):
            raise ValueError(f"observations can't be held within ±{clip!r}")
        if self.observation_inverse_std.shape != self.observation_mean.shape:
            raise ValueError("the normaliser's arrays differ in shape")
        for array in (self.action_low, self.action_high):
            if array.shape != (dimensions,):
                raise ValueError(f"an array of shape {array.shape} should have {dimensions}")
        if not np.all(self.action_low <= self.action_high):
            raise ValueError("an action's lower bound is above its upper one")

    def numbers(self) -> tuple[Floats, ...]:
        """All that must be finite."""
        normalizer = (self.observation_mean, self.observation_inverse_std)
        return (*self.weights, *self.biases, *normalizer)

    def _generator(self) -> np.random.Generator:
        """Seeded by the system when it is first needed, as most policies never are."""
        if self.rng is None:
            object.__setattr__(self, "rng", np.random.default_rng())
        assert self.rng is not None
        return self.rng

    def _normalize(self, observation: Floats) -> Floats:
        x: Floats = (observation - self.observation_mean) * self.observation_inverse_std
        if (clip := self.observation_clip) is not None:
            np.minimum(np.maximum(x, -clip, out=x), clip, out=x)
        return x

    def _head(self, x: Floats) -> Floats:
        x = x @ self.weights[-1]
        x += self.biases[-1]
        return x


def _shape(value: Any) -> tuple[int, ...]:
    """A shape in a file."""
    if not isinstance(value, list) or not all(type(n) is int and n > 0 for n in value):
        raise ValueError(f"{value!r} is no shape")
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Policy):
    """π(a|s) = N(u(s), diag σ²) with a tanh network u: DISC, PPO, TRPO, ACKTR, Trust-PCL."""

    log_std: Floats  # (D,)
    std: Floats = field(init=False)  # (D,)
    kind = "gaussian"

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):  # `check` refuses it
            object.__setattr__(self, "std", np.exp(self.log_std))

    def mean(self, observation: Floats) -> Floats:
        """u(s): (S,) → (D,) or (B, S) → (B, D)."""
        x = self._normalize(observation)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.tanh(x, out=x)
        return self._head(x)

    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """u(s) + σ·noise."""
        return self.mean(observation) + self.std * noise

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Action and mean for one observation (S,) and standard normal noise (D,)."""
        mean = self.mean(observation)
        return mean + self.std * noise, mean

    def check(self, inputs: int = 0, outputs: int = 1) -> None:
        """Refuse arrays that do not fit together."""
        super().check(inputs, outputs)
        if self.log_std.shape != self.action_low.shape:
            raise ValueError(f"log σ has shape {self.log_std.shape}")

    def numbers(self) -> tuple[Floats, ...]:
        """All that must be finite."""
        return (*super().numbers(), self.log_std, self.std)

    def tensors(self) -> dict[str, Floats]:
        """What acting needs beside the network, by the names in the file."""
        return {**super().tensors(), "policy/log_std": self.log_std}

    @classmethod
    def fields(cls, tensors: dict[str, Floats], header: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the policy in a file."""
        return {**super().fields(tensors, header), "log_std": tensors["policy/log_std"]}


@dataclass(frozen=True)
class Uniform:
    """Actions drawn uniformly within their bounds, whatever is seen: an `Actor`."""

    action_low: Floats  # (D,)
    action_high: Floats  # (D,)
    action_shape: tuple[int, ...]

    @property
    def log_std(self) -> Floats:
        """Has none."""
        return np.full_like(self.action_low, np.nan)

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """The normal noise (D,) by its distribution function, which makes it uniform."""
        share = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in noise.tolist()], np.float32)
        action = self.action_low + (self.action_high - self.action_low) * share
        action = np.minimum(action, self.action_high)  # a rounding error may lie beyond
        return action, action

    def episode(self, *name: int) -> Uniform:
        """The policy of one episode: itself."""
        return self

    def bound(self, action: Floats) -> Floats:
        """The action as the environment gets it."""
        return action.reshape(self.action_shape)
