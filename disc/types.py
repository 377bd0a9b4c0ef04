"""Records shared by all parts of the package, with the shape of every field.

S is the observation size, D the action dimension, N the steps in a batch, L the replay length
and E the number of environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, SupportsFloat

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


class DiscError(Exception):
    """A user error, described in one sentence; the command line exits with status 2."""

    def __str__(self) -> str:
        """The message, made printable as it may quote untrusted files."""
        return printable(super().__str__())


class Spec(NamedTuple):
    """The properties of an environment that algorithms need."""

    observation_size: int  # S
    action_size: int  # D
    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_low: Floats  # (D,), −inf where unbounded
    action_high: Floats  # (D,), +inf where unbounded


class Rollout(NamedTuple):
    """N recorded steps. Only μ depends on a network.

    Rows are ordered by environment, then by time, so the axis of N steps holds E consecutive
    trajectories; `border` marks the last row of each.
    """

    observation: Floats  # (N, S) raw
    action: Floats  # (N, D) as sampled, never clipped
    mean: Floats  # (N, D) of the behaviour policy
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

    def __call__(self, observation: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """(S,), (D,) standard normal → action (D,), mean (D,)."""
        ...

    def episode(self, *name: int) -> Actor:
        """The actor of one episode; the numbers identify the episode, for actors that differ."""
        ...

    def bound(self, action: Floats) -> Floats:
        """The action as passed to the environment."""
        ...
