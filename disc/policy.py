"""The deployed policy: a file and numpy, nothing else.

Importing this module does not import JAX, so a controller that only acts starts in a fraction
of a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from disc import files
from disc.types import DiscError, Floats

FORMAT = "disc-policy"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Policy:
    """A Gaussian policy π(a|s) = N(u(s), diag σ²) with its normaliser, in numpy.

    As an `Actor` it is called with one observation and one draw of noise; users call `predict`.
    """

    weights: tuple[Floats, ...]  # (S, H), (H, H), (H, D)
    biases: tuple[Floats, ...]  # (H,), (H,), (D,)
    log_std: Floats  # (D,)
    observation_mean: Floats  # (S,)
    observation_inverse_std: Floats  # (S,)
    observation_clip: float | None  # normalised observations are held within ± this
    observation_shape: tuple[int, ...]
    action_low: Floats  # (D,)
    action_high: Floats  # (D,)
    action_shape: tuple[int, ...]
    clip_actions: bool
    std: Floats = field(init=False)  # (D,)
    rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", np.exp(self.log_std))
        object.__setattr__(self, "rng", np.random.default_rng())

    def seed(self, seed: int) -> None:
        """Make the samples of `predict(…, deterministic=False)` repeatable."""
        object.__setattr__(self, "rng", np.random.default_rng(seed))

    def mean(self, observation: Floats) -> Floats:
        """u(s): (S,) → (D,) or (B, S) → (B, D)."""
        x: Floats = (observation - self.observation_mean) * self.observation_inverse_std
        if (clip := self.observation_clip) is not None:
            np.minimum(np.maximum(x, -clip, out=x), clip, out=x)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ weight
            x += bias
            np.tanh(x, out=x)
        x = x @ self.weights[-1]
        x += self.biases[-1]
        return x

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Action and mean for one observation (S,) and standard normal noise (D,)."""
        mean = self.mean(observation)
        return mean + self.std * noise, mean

    def predict(
        self, observation: ArrayLike, deterministic: bool = True, clip: bool | None = None
    ) -> tuple[Floats, None]:
        """The action for one observation or a batch of them.

        Args:
            observation: of the environment's shape, or (B, *shape). Raw: the policy normalises.
            deterministic: the mean u(s); else a sample.
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
        action = self.mean(x.reshape(-1, len(self.observation_mean)))
        if not deterministic:
            noise = self.rng.standard_normal(action.shape, np.float32)
            action = action + self.std * noise
        if self.clip_actions if clip is None else clip:
            action = np.clip(action, self.action_low, self.action_high)
        action = action.reshape(-1, *self.action_shape)
        return (action[0] if single else action), None

    def bound(self, action: Floats) -> Floats:
        """The action as the environment gets it: shaped, and clipped if training clipped."""
        if self.clip_actions:
            action = np.minimum(np.maximum(action, self.action_low), self.action_high)
        return action.reshape(self.action_shape)


@dataclass(frozen=True)
class PolicyFile:
    """A policy, all weights it was saved with, and what the file says about it."""

    policy: Policy
    tensors: dict[str, Floats]
    info: dict[str, Any]


def write(path: str | Path, tensors: dict[str, Any], info: dict[str, Any]) -> None:
    """Write a policy file: `tensors` named as `read` wants them, `info` JSON."""
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, **info}
    files.write_tensors(Path(path), tensors, header)


def read(path: str | Path) -> PolicyFile:
    """Read a policy file.

    Raises:
        DiscError: it is missing, damaged, or of another kind or version.
    """
    path = Path(path)
    tensors, header = files.read_tensors(path, FORMAT, FORMAT_VERSION)
    try:
        depth = sum(name.startswith("policy/weight_") for name in tensors)
        policy = Policy(
            weights=tuple(tensors[f"policy/weight_{i}"] for i in range(depth)),
            biases=tuple(tensors[f"policy/bias_{i}"] for i in range(depth)),
            log_std=tensors["policy/log_std"],
            observation_mean=tensors["normalizer/observation_mean"],
            observation_inverse_std=tensors["normalizer/observation_inverse_std"],
            observation_clip=header.get("observation_clip", 10.0),
            observation_shape=tuple(int(n) for n in header["observation_shape"]),
            action_low=tensors["action/low"],
            action_high=tensors["action/high"],
            action_shape=tuple(int(n) for n in header["action_shape"]),
            clip_actions=bool(header["clip_actions"]),
        )
        _check(policy)
    except (KeyError, TypeError, ValueError) as error:
        raise DiscError(f"{path}: this policy file is not complete ({error}).") from None
    return PolicyFile(policy, tensors, header)


def load(path: str | Path) -> Policy:
    """Load a policy to act with: needs numpy only.

    Args:
        path: a policy file, or a run directory.
    """
    return read(locate(path)).policy


def locate(path: str | Path) -> Path:
    """The policy file itself, given it or its run directory."""
    path = Path(path)
    return path / "policy.disc" if path.is_dir() else path


def _check(policy: Policy) -> None:
    """Refuse tensors that do not fit together, before they fail in the middle of a product."""
    size = len(policy.observation_mean)
    if size != int(np.prod(policy.observation_shape)):
        raise ValueError(f"{size} inputs do not make shape {policy.observation_shape}")
    for weight, bias in zip(policy.weights, policy.biases, strict=True):
        if weight.ndim != 2 or weight.shape[0] != size or bias.shape != weight.shape[1:]:
            raise ValueError(f"a layer of shape {weight.shape} does not take {size} inputs")
        size = weight.shape[1]
    if not policy.weights or size != int(np.prod(policy.action_shape)):
        raise ValueError(f"{size} outputs do not make an action of shape {policy.action_shape}")
    clip = policy.observation_clip
    if not (clip is None or (isinstance(clip, int | float) and clip > 0)):
        raise ValueError(f"observations can't be held within ±{clip!r}")
    if policy.observation_inverse_std.shape != policy.observation_mean.shape:
        raise ValueError("the normaliser's arrays differ in shape")
    for array in (policy.log_std, policy.action_low, policy.action_high):
        if array.shape != (size,):
            raise ValueError(f"an array of shape {array.shape} should have {size} entries")
