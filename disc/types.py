"""Records shared by all parts of the package, with the shape of every field.

S is the observation size, D the action dimension, P the numbers that describe the distribution of
an action, N the steps in a batch, L the replay length and E the number of environments.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, SupportsFloat

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Metrics = dict[str, float]
Measured = Mapping[str, SupportsFloat]  # metrics, some possibly still being computed


LONGEST = 2_000  # maximum characters of a message


def printable(text: str, most: int = LONGEST) -> str:
    """Text for a terminal: shortened if long, with control characters escaped."""
    if len(text) > most:
        text = f"{text[: most // 2]} … {text[-most // 2 :]}"
    if text.isprintable():
        return text
    shown = (x if x.isprintable() else x.encode("unicode_escape").decode() for x in text)
    return "".join(shown)


def joined(names: Iterable[str]) -> str:
    """Names in a sentence: "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


class DiscError(Exception):
    """A user error, described in one sentence; the command line exits with status 2."""

    def __str__(self) -> str:
        """The message, made printable as it may quote untrusted files."""
        return printable(super().__str__())


class NonFiniteAction(DiscError):
    """The policy produced an action that is NaN or infinite."""


MOST_CHOICES = 1_000_000


class Choices(NamedTuple):
    """Discrete actions: dimension d is one of K_d whole numbers, start_d, start_d + 1, …

    Policies and rollouts hold the index i_d of the choice, 0 ≤ i_d < K_d, in a float array.
    """

    counts: tuple[int, ...]  # K_d of each dimension, (D,)
    starts: NDArray[np.int64]  # (D,)
    dtype: str  # of the array that the environment takes; it takes an int if the shape is ()

    def actions(self, index: Floats, shape: tuple[int, ...]) -> Any:
        """The actions that environments take: indices (B, D) → (B, *shape).

        Raises:
            NonFiniteAction: an index is NaN because the outputs of the network were not finite.
        """
        if not math.isfinite(index.sum()):
            raise NonFiniteAction("the action is not finite: the policy or its observation is not.")
        chosen = index.astype(np.int64) + self.starts
        return chosen.astype(self.dtype, copy=False).reshape(-1, *shape)

    def action(self, index: Floats, shape: tuple[int, ...]) -> Any:
        """The action that an environment takes: an index (D,) → an array of `shape`, or an int."""
        action = self.actions(index, shape)[0]
        return action if shape else int(action)

    def few(self) -> bool:
        """Whether a table of all choices, (D, max K_d), is small enough to be used."""
        return len(self.counts) * max(self.counts) <= MOST_CHOICES

    def valid(self) -> Bools:
        """(D, max K_d): true where k < K_d."""
        return np.arange(max(self.counts)) < np.asarray(self.counts)[:, None]

    def contain(self, index: Floats) -> bool:
        """Whether every entry of indices (…, D) is a choice; False if one is NaN."""
        whole = np.floor(index) == index
        return bool(np.all(whole & (index >= 0) & (index < np.asarray(self.counts))))

    def equal(self, other: Choices | None) -> bool:
        """Whether the actions are the same."""
        return (
            other is not None
            and (self.counts, self.dtype) == (other.counts, other.dtype)
            and np.array_equal(self.starts, other.starts)
        )


class Spec(NamedTuple):
    """The properties of an environment that algorithms need."""

    observation_size: int  # S
    action_size: int  # D
    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_low: Floats  # (D,), −inf where unbounded; 0 if discrete
    action_high: Floats  # (D,), +inf where unbounded; K_d − 1 if discrete
    choices: Choices | None = None  # of discrete actions; None if they are continuous

    @property
    def outputs(self) -> int:
        """P: outputs of the policy network, a mean per dimension or Σ_d K_d logits."""
        return sum(self.choices.counts) if self.choices else self.action_size


class Rollout(NamedTuple):
    """N recorded steps. Only `mean` depends on a network.

    Rows are ordered by environment, then by time, so the axis of N steps holds E consecutive
    trajectories; `border` marks the last row of each.
    """

    observation: Floats  # (N, S) raw
    action: Floats  # (N, D) as sampled, never clipped; indices if discrete
    mean: Floats  # (N, P) of the behaviour policy; its logits if actions are discrete
    log_std: Floats  # (D,) of the behaviour policy, NaN if it is not a Gaussian
    reward: Floats  # (N,) raw
    next_observation: Floats  # (N, S) raw; at an episode's end, the true final observation
    terminated: Bools  # (N,)
    truncated: Bools  # (N,)
    border: Bools  # (N,) the batch ends here, but maybe not the episode
    returns: Floats  # (K,) undiscounted returns of the K episodes that ended
    lengths: Floats  # (K,) and their lengths


class Actor(Protocol):
    """The behaviour policy of one rollout: frozen, in numpy, one observation at a time."""

    @property
    def log_std(self) -> Floats:
        """(D,) of the behaviour policy."""
        ...

    def noise(self, rng: np.random.Generator, count: int) -> Floats:
        """The noise of `count` actions, one row each."""
        ...

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """(S,), one row of noise → action (D,), mean (P,)."""
        ...

    def episode(self, *name: int) -> Actor:
        """The actor of one episode; the numbers identify the episode, for actors that differ."""
        ...

    def bound(self, action: Floats) -> Any:
        """The action as passed to the environment."""
        ...
