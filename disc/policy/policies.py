"""Policies: a network and the mapping from its output to an action, in numpy only.

`file.py` reads and writes policy files.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from disc.policy.layout import Layout, LayoutError
from disc.types import Choices, DiscError, Floats

FLOAT_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """A network with its normaliser, in numpy; subclasses map its output to an action.

    As an `Actor` it is called with one observation and one noise vector; users call `predict`.
    """

    weights: tuple[Floats, ...]  # (S, H), (H, H), (H, P), P = D if not stated otherwise
    biases: tuple[Floats, ...]  # (H,), (H,), (P,)
    observation_mean: Floats  # (S,)
    observation_inverse_std: Floats  # (S,)
    observation_clip: float | None = None  # normalised observations are clipped to ± this
    observation_shape: tuple[int, ...]
    action_low: Floats  # (D,)
    action_high: Floats  # (D,)
    action_shape: tuple[int, ...]
    clip_actions: bool = False  # to their bounds, before passing them to the environment
    layout: Layout | None = None  # of nested observations; None for a Box of `observation_shape`
    rng: np.random.Generator | None = field(init=False, repr=False, default=None)

    kind: ClassVar[str]
    sampled_only: ClassVar[bool] = False  # True if there is no deterministic action

    def seed(self, seed: int) -> None:
        """Seed the samples of `predict(…, deterministic=False)`."""
        object.__setattr__(self, "rng", np.random.default_rng(seed))

    @abstractmethod
    def mean(self, observation: Floats) -> Floats:
        """The deterministic action: (S,) → (D,) or (B, S) → (B, D)."""

    def noise(self, rng: np.random.Generator, count: int) -> Floats:
        """The noise of `count` actions for `sample`: standard normal, (count, D)."""
        return rng.standard_normal((count, len(self.action_low)), np.float32)

    @abstractmethod
    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """The action for given noise: (S,) and one row, or (B, S) and B rows."""

    @abstractmethod
    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Action (D,) and mean (P,) for one observation (S,) and one row of noise."""

    def episode(self, *name: int) -> Self:
        """The policy for one episode: the same in all episodes."""
        return self

    def predict(
        self, observation: Any, deterministic: bool = True, clip: bool | None = None
    ) -> tuple[Any, None]:
        """The action for one observation or a batch of them.

        Args:
            observation: as the environment gives it, or a batch: (B, *shape). If that is nested
                (a dict, a tuple, or a category), also a batch of it with a leading axis in every
                array, a list of observations, or flat numbers, (S,) or (B, S). Not normalised: the
                policy does that.
            deterministic: return the action without noise instead of a sample. SQL always samples.
            clip: clip the action to the environment's bounds; as in training if None.

        Returns:
            (action, None): action of the environment's shape and type (an int for `Discrete`), or
            (B, *shape). The None stands for the state that recurrent policies of other libraries
            return.
        """
        x, single = self._rows(observation)
        if deterministic and not self.sampled_only:
            action = self.mean(x)
        else:
            action = self.sample(x, self.noise(self._generator(), len(x)))
        if self.clip_actions if clip is None else clip:
            action = self.clip(action)
        action = self._shaped(action)
        return (action[0] if single else action), None

    def _rows(self, observation: Any) -> tuple[Floats, bool]:
        """Observations as rows (B, S), and whether it was a single one."""
        if self.layout is not None:
            try:
                return self.layout.rows(observation)
            except LayoutError as error:
                raise DiscError(f"predict: {error}.") from error
        x = np.asarray(observation, np.float32)
        single = x.shape == self.observation_shape
        if not single and x.shape[1:] != self.observation_shape:
            raise DiscError(
                f"predict: observations of shape {x.shape} do not fit this policy, which takes "
                f"{self.observation_shape} or a batch of those."
            )
        return x.reshape(-1, len(self.observation_mean)), single

    def _shaped(self, action: Floats) -> Any:
        """Actions (B, D) as passed to environments, (B, *shape)."""
        return action.reshape(-1, *self.action_shape)

    def bound(self, action: Floats) -> Any:
        """The action (D,) as passed to the environment: reshaped, and clipped as in training."""
        return (self.clip(action) if self.clip_actions else action).reshape(self.action_shape)

    def clip(self, action: Floats) -> Floats:
        """The action clipped to its bounds."""
        return np.minimum(np.maximum(action, self.action_low), self.action_high)

    def tensors(self) -> dict[str, Floats]:
        """The arrays besides the network, by their names in the file."""
        return {
            "normalizer/observation_mean": self.observation_mean,
            "normalizer/observation_inverse_std": self.observation_inverse_std,
            "action/low": self.action_low,
            "action/high": self.action_high,
        }

    def header(self) -> dict[str, Any]:
        """The fields in the file's header, which are not arrays."""
        return {
            "kind": self.kind,
            "observation_shape": self.observation_shape,
            "observation_layout": self.layout and self.layout.to_json(),
            "action_shape": self.action_shape,
            "observation_clip": self.observation_clip,
            "clip_actions": self.clip_actions,
        }

    @classmethod
    def fields(cls, tensors: dict[str, Floats], header: dict[str, Any]) -> dict[str, Any]:
        """The constructor arguments, from the contents of a file."""
        depth = sum(name.startswith("policy/weight_") for name in tensors)
        return {
            "weights": tuple(tensors[f"policy/weight_{i}"] for i in range(depth)),
            "biases": tuple(tensors[f"policy/bias_{i}"] for i in range(depth)),
            "observation_mean": tensors["normalizer/observation_mean"],
            "observation_inverse_std": tensors["normalizer/observation_inverse_std"],
            "observation_clip": header.get("observation_clip", 10.0),
            "observation_shape": _shape(header["observation_shape"]),
            "layout": _layout(header),
            "action_low": tensors["action/low"],
            "action_high": tensors["action/high"],
            "action_shape": _shape(header["action_shape"]),
            "clip_actions": bool(header["clip_actions"]),
        }

    def outputs(self) -> int:
        """P: outputs of the network."""
        return math.prod(self.action_shape)

    def check(self, inputs: int = 0) -> None:
        """Raise a `ValueError` if the fields of a file are not a valid policy.

        Args:
            inputs: of the network per action dimension, in addition to the observation.
        """
        for array in (*self.numbers(), self.action_low, self.action_high):
            if array.dtype != np.float32:
                raise ValueError(f"an array has type {array.dtype}, not float32")
        if not all(np.isfinite(array).all() for array in self.numbers()):
            raise ValueError("a value is not finite")
        size, dimensions = len(self.observation_mean), math.prod(self.action_shape)
        if self.observation_mean.shape != (math.prod(self.observation_shape),):
            raise ValueError(f"{size} inputs do not fit the shape {self.observation_shape}")
        if self.layout is not None and (self.layout.plain or self.layout.shape != (size,)):
            raise ValueError(f"{size} inputs do not fit the observation layout")
        size += inputs * dimensions
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.ndim != 2 or weight.shape[0] != size or bias.shape != weight.shape[1:]:
                raise ValueError(f"a layer of shape {weight.shape} does not take {size} inputs")
            size = weight.shape[1]
        if not self.weights or size != self.outputs():
            raise ValueError(f"{size} outputs do not fit actions of shape {self.action_shape}")
        clip = self.observation_clip
        if not (clip is None or (isinstance(clip, int | float) and 0 < clip < FLOAT_MAX)):
            raise ValueError(f"observations can't be clipped to ±{clip!r}")
        if self.observation_inverse_std.shape != self.observation_mean.shape:
            raise ValueError("the normaliser's arrays differ in shape")
        for array in (self.action_low, self.action_high):
            if array.shape != (dimensions,):
                raise ValueError(f"an array has shape {array.shape} instead of {dimensions}")
        if not np.all(self.action_low <= self.action_high):
            raise ValueError("an action's lower bound is above its upper one")

    def numbers(self) -> tuple[Floats, ...]:
        """All arrays that must be finite."""
        normalizer = (self.observation_mean, self.observation_inverse_std)
        return (*self.weights, *self.biases, *normalizer)

    def _generator(self) -> np.random.Generator:
        """Created with a random seed at first use, as most policies never need it."""
        if self.rng is None:
            object.__setattr__(self, "rng", np.random.default_rng())
        assert self.rng is not None
        return self.rng

    def _normalize(self, observation: Floats) -> Floats:
        x: Floats = (observation - self.observation_mean) * self.observation_inverse_std
        if (clip := self.observation_clip) is not None:
            np.minimum(np.maximum(x, -clip, out=x), clip, out=x)
        return x

    def _tanh_network(self, observation: Floats) -> Floats:
        """Tanh layers and a linear head: (S,) → (P,) or (B, S) → (B, P)."""
        x = self._normalize(observation)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.tanh(x, out=x)
        return self._head(x)

    def _head(self, x: Floats) -> Floats:
        x = x @ self.weights[-1]
        x += self.biases[-1]
        return x


def _shape(value: Any) -> tuple[int, ...]:
    """Parse a shape."""
    if not isinstance(value, list) or not all(type(n) is int and n > 0 for n in value):
        raise ValueError(f"{value!r} is not a shape")
    return tuple(value)


def _layout(header: dict[str, Any]) -> Layout | None:
    """The layout of nested observations; files of version 1 have none."""
    if int(header["format_version"]) < 2 or (found := header["observation_layout"]) is None:
        return None
    return Layout.from_json(found)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Policy):
    """π(a|s) = N(u(s), diag σ²) with a tanh network u: DISC, PPO, TRPO, ACKTR, Trust-PCL."""

    log_std: Floats  # (D,)
    std: Floats = field(init=False)  # (D,)
    kind = "gaussian"

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):  # `check` reports it
            object.__setattr__(self, "std", np.exp(self.log_std))

    def mean(self, observation: Floats) -> Floats:
        """u(s): (S,) → (D,) or (B, S) → (B, D)."""
        return self._tanh_network(observation)

    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """u(s) + σ·noise."""
        return self.mean(observation) + self.std * noise

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Action and mean for one observation (S,) and standard normal noise (D,)."""
        mean = self._tanh_network(observation)
        return mean + self.std * noise, mean

    def check(self, inputs: int = 0) -> None:
        """Raise a `ValueError` if arrays do not fit together."""
        super().check(inputs)
        if self.log_std.shape != self.action_low.shape:
            raise ValueError(f"log σ has shape {self.log_std.shape}")

    def numbers(self) -> tuple[Floats, ...]:
        """All arrays that must be finite."""
        return (*super().numbers(), self.log_std, self.std)

    def tensors(self) -> dict[str, Floats]:
        """The arrays besides the network, by their names in the file."""
        return {**super().tensors(), "policy/log_std": self.log_std}

    @classmethod
    def fields(cls, tensors: dict[str, Floats], header: dict[str, Any]) -> dict[str, Any]:
        """The constructor arguments, from the contents of a file."""
        return {**super().fields(tensors, header), "log_std": tensors["policy/log_std"]}


INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
"""The types of discrete actions."""


@dataclass(frozen=True, kw_only=True)
class Categorical(Policy):
    """π(i|s) = ∏_d softmax(z_d(s))_{i_d} with a tanh network z: DISC, PPO and PPO-AMBER.

    The network's P = Σ_d K_d outputs are the logits of all dimensions, one dimension after the
    other. Actions are indices i, (D,); `bound` and `predict` give what the environment takes.
    """

    choices: Choices
    valid: NDArray[np.bool_] = field(init=False, repr=False)  # (D, max K_d): where i_d < K_d
    even: bool = field(init=False, repr=False)  # all K_d are equal
    kind = "categorical"

    def __post_init__(self) -> None:
        object.__setattr__(self, "valid", self.choices.valid())
        object.__setattr__(self, "even", bool(self.valid.all()))

    @property
    def log_std(self) -> Floats:
        """(D,) of NaN, as it is not a Gaussian."""
        return np.full_like(self.action_low, np.nan)

    def logits(self, observation: Floats) -> Floats:
        """z(s): (S,) → (P,) or (B, S) → (B, P)."""
        return self._tanh_network(observation)

    def mean(self, observation: Floats) -> Floats:
        """The most probable index: (S,) → (D,) or (B, S) → (B, D)."""
        return self._largest(self.logits(observation))

    def noise(self, rng: np.random.Generator, count: int) -> Floats:
        """Gumbel noise −log(−log u) with a uniform u for every logit, (count, P)."""
        noise = rng.standard_exponential((count, sum(self.choices.counts)))  # −log u
        np.negative(np.log(noise, out=noise), out=noise)
        return noise.astype(np.float32)

    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """argmax_k (z_{d,k} + noise_{d,k}), which has the probabilities softmax(z_d)."""
        return self._largest(self.logits(observation) + noise)

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Index (D,) and logits (P,) for one observation (S,) and noise (P,)."""
        logits = self.logits(observation)
        return self._largest(logits + noise), logits

    def _largest(self, values: Floats) -> Floats:
        """The index of each dimension's largest value, (…, P) → (…, D); NaN if one is NaN."""
        if self.even:
            table = values.reshape(*values.shape[:-1], *self.valid.shape)
        else:
            table = np.full((*values.shape[:-1], *self.valid.shape), -np.inf, np.float32)
            table[..., self.valid] = values
        index = table.argmax(axis=-1).astype(np.float32)
        if not math.isfinite(values.sum()):
            index[~np.isfinite(values).all(axis=-1)] = np.nan
        return index

    def predict(
        self, observation: Any, deterministic: bool = True, clip: bool | None = None
    ) -> tuple[Any, None]:
        """The action for one observation or a batch of them; see `Policy.predict`."""
        action, _ = super().predict(observation, deterministic, clip)
        return (action if np.ndim(action) else int(action)), None

    def _shaped(self, action: Floats) -> Any:
        """Indices (B, D) as the actions that environments take, (B, *shape)."""
        return self.choices.actions(action, self.action_shape)

    def bound(self, action: Floats) -> Any:
        """The index (D,) as the action that the environment takes."""
        return self.choices.action(action, self.action_shape)

    def outputs(self) -> int:
        """P = Σ_d K_d."""
        return sum(self.choices.counts)

    def check(self, inputs: int = 0) -> None:
        """Raise a `ValueError` if arrays do not fit together."""
        super().check(inputs)
        counts, starts, dtype = self.choices
        if len(counts) != len(self.action_low):
            raise ValueError(f"{len(counts)} dimensions of choices do not fit the action's shape")
        ends = [start + count - 1 for start, count in zip(starts.tolist(), counts, strict=True)]
        limits = np.iinfo(dtype)
        if not (limits.min <= starts.min() and max(ends) <= min(limits.max, 2**63 - 1)):
            raise ValueError(f"the choices do not fit the type {dtype}")

    def tensors(self) -> dict[str, Floats]:
        """The arrays besides the network, by their names in the file."""
        bounds = ("action/low", "action/high")
        return {name: x for name, x in super().tensors().items() if name not in bounds}

    def header(self) -> dict[str, Any]:
        """The fields in the file's header, which are not arrays."""
        counts, starts, dtype = self.choices
        own = {"choices": counts, "starts": starts.tolist(), "action_type": dtype}
        return {**super().header(), **own}

    @classmethod
    def fields(cls, tensors: dict[str, Floats], header: dict[str, Any]) -> dict[str, Any]:
        """The constructor arguments, from the contents of a file."""
        counts, starts, dtype = (header[name] for name in ("choices", "starts", "action_type"))
        if not isinstance(starts, list) or not all(
            type(n) is int and -(2**63) <= n < 2**63 for n in starts
        ):
            raise ValueError(f"{starts!r} are not the first choices")
        if dtype not in INTEGERS or len(starts) != len(_shape(counts)) or not starts:
            raise ValueError(f"{dtype!r} is not the type of the {len(starts)} choices")
        choices = Choices(_shape(counts), np.array(starts, np.int64), dtype)
        if not choices.few():  # before arrays of their size are made
            raise ValueError("there are too many choices")
        bounds = {"action/low": np.zeros(len(starts), np.float32)}
        bounds["action/high"] = np.asarray(choices.counts, np.float32) - np.float32(1.0)
        return {**super().fields({**tensors, **bounds}, header), "choices": choices}


def choices_of(policy: Policy) -> tuple[int, ...]:
    """K_d of a policy for discrete actions; empty for continuous ones."""
    return policy.choices.counts if isinstance(policy, Categorical) else ()


@dataclass(frozen=True)
class Uniform:
    """An `Actor` whose actions are uniform within their bounds."""

    action_low: Floats  # (D,)
    action_high: Floats  # (D,)
    action_shape: tuple[int, ...]

    @property
    def log_std(self) -> Floats:
        """NaN, as it is not a Gaussian."""
        return np.full_like(self.action_low, np.nan)

    def noise(self, rng: np.random.Generator, count: int) -> Floats:
        """Standard normal, as a policy's, (count, D)."""
        return rng.standard_normal((count, len(self.action_low)), np.float32)

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Map the normal noise (D,) to a uniform action by its distribution function."""
        share = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in noise.tolist()], np.float32)
        action = self.action_low + (self.action_high - self.action_low) * share
        action = np.minimum(action, self.action_high)  # rounding may exceed it
        return action, action

    def episode(self, *name: int) -> Uniform:
        """The policy for one episode: the same in all episodes."""
        return self

    def bound(self, action: Floats) -> Floats:
        """The action as passed to the environment."""
        return action.reshape(self.action_shape)


LOG_STD_RANGE = (-20.0, 2.0)  # of SAC's policy (original)
LAYER_NORM_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Bounded(Policy):
    """A ReLU network whose output goes through tanh and is scaled to the action bounds."""

    @property
    def log_std(self) -> Floats:
        """(D,) of NaN, as it is not a Gaussian."""
        return np.full_like(self.action_low, np.nan)

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """The action, also returned as the mean, for one observation (S,) and noise (D,)."""
        action = self.sample(observation, noise)
        return action, action

    def mean(self, observation: Floats) -> Floats:
        """Centre of the bounds + reach · tanh(network(s)), (S,) → (D,) or (B, S) → (B, D)."""
        return self.stretch(np.tanh(self.network(self._normalize(observation))))

    def network(self, x: Floats) -> Floats:
        """ReLU layers and a linear head."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.maximum(x, 0.0, out=x)
        return self._head(x)

    def stretch(self, squashed: Floats) -> Floats:
        """Scale an action within ±1 to the environment's bounds."""
        low, high = self.action_low, self.action_high
        return self.clip(0.5 * (low + high) + 0.5 * (high - low) * squashed)

    def numbers(self) -> tuple[Floats, ...]:
        """All arrays that must be finite, including the bounds."""
        return (*super().numbers(), self.action_low, self.action_high)


@dataclass(frozen=True, kw_only=True)
class Squashed(Bounded):
    """a = tanh(m(s) + σ(s)·noise), scaled to the bounds: SAC."""

    kind = "squashed"

    def mean(self, observation: Floats) -> Floats:
        """tanh(m(s)), scaled to the bounds."""
        both = self.network(self._normalize(observation))
        return self.stretch(np.tanh(both[..., : len(self.action_low)]))

    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """tanh(m(s) + σ(s)·noise), scaled to the bounds."""
        both, size = self.network(self._normalize(observation)), len(self.action_low)
        low, high = LOG_STD_RANGE
        std = np.exp(np.minimum(np.maximum(both[..., size:], low), high))
        return self.stretch(np.tanh(both[..., :size] + std * noise))

    def outputs(self) -> int:
        """2 D: m and log σ."""
        return 2 * super().outputs()


@dataclass(frozen=True, kw_only=True)
class Deterministic(Bounded):
    """a = tanh(network(s)), scaled to the bounds: TD3 and, with layer normalisation, DDPG."""

    exploration: float  # standard deviation of the noise, as a fraction of half the action range
    scales: tuple[Floats, ...] = ()  # (H,), (H,): of the layer normalisation, if used
    shifts: tuple[Floats, ...] = ()
    kind = "deterministic"

    def network(self, x: Floats) -> Floats:
        """ReLU layers, with or without layer normalisation, and a linear head."""
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
        """tanh(network(s)) + exploration·noise, clipped to ±1 and scaled to the bounds."""
        squashed = np.tanh(self.network(self._normalize(observation)))
        squashed += np.float32(self.exploration) * noise
        return self.stretch(squashed)

    def header(self) -> dict[str, Any]:
        """The fields in the file's header, which are not arrays."""
        return {**super().header(), "exploration": self.exploration}

    @classmethod
    def fields(cls, tensors: dict[str, Floats], header: dict[str, Any]) -> dict[str, Any]:
        """The constructor arguments, from the contents of a file."""
        depth = sum(name.startswith(("policy/scale_", "policy/shift_")) for name in tensors) // 2
        own = {
            "exploration": float(header["exploration"]),
            "scales": tuple(tensors[f"policy/scale_{i}"] for i in range(depth)),
            "shifts": tuple(tensors[f"policy/shift_{i}"] for i in range(depth)),
        }
        return {**super().fields(tensors, header), **own}

    def check(self, inputs: int = 0) -> None:
        """Raise a `ValueError` if arrays do not fit together."""
        super().check(inputs)
        if not 0.0 <= self.exploration < FLOAT_MAX:
            raise ValueError(f"the exploration {self.exploration} is invalid")
        hidden = [bias.shape for bias in self.biases[:-1]]
        if self.scales and not (
            hidden == [x.shape for x in self.scales] == [x.shape for x in self.shifts]
        ):
            raise ValueError("the layer normalisation does not fit the layers")

    def numbers(self) -> tuple[Floats, ...]:
        """All arrays that must be finite."""
        return (*super().numbers(), *self.scales, *self.shifts)


@dataclass(frozen=True, kw_only=True)
class Sampler(Bounded):
    """a = tanh(network(s, noise)), scaled to the bounds: SQL. It has no deterministic action."""

    kind = "sampler"
    sampled_only = True

    def mean(self, observation: Floats) -> Floats:
        """The action for noise 0, which is not the mean; the mean is unknown."""
        size = len(self.action_low)
        return self.sample(observation, np.zeros((*observation.shape[:-1], size), np.float32))

    def sample(self, observation: Floats, noise: Floats) -> Floats:
        """tanh(network(s, noise)), scaled to the bounds."""
        both = np.concatenate([self._normalize(observation), noise], axis=-1)
        return self.stretch(np.tanh(self.network(both)))

    def check(self, inputs: int = 1) -> None:
        """Raise a `ValueError` if arrays do not fit together."""
        super().check(inputs)
