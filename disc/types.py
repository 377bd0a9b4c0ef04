"""The records that flow between the stages. A shape stands beside every field.

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
Measured = Mapping[str, SupportsFloat]  # metrics, some of which may still be on their way


LONGEST = 2_000  # characters of a message


def printable(text: str, most: int = LONGEST) -> str:
    """Text for a terminal: cut if it is long, and what a terminal would obey is escaped."""
    if len(text) > most:
        text = f"{text[: most // 2]} … {text[-most // 2 :]}"
    if text.isprintable():
        return text
    shown = (x if x.isprintable() else x.encode("unicode_escape").decode() for x in text)
    return "".join(shown)


class DiscError(Exception):
    """A mistake of the user's, told in one sentence; the command line exits with status 2."""

    def __str__(self) -> str:
        """The sentence; what it quotes may be from a stranger's file."""
        return printable(super().__str__())


class Spec(NamedTuple):
    """What an algorithm needs to know about an environment."""

    observation_size: int  # S
    action_size: int  # D
    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_low: Floats  # (D,), −inf where unbounded
    action_high: Floats  # (D,), +inf where unbounded


class Rollout(NamedTuple):
    """N steps as they happened. Facts only: nothing here depends on a network but μ.

    Rows are ordered by environment, then by time, so a flat axis of N steps holds E whole
    trajectories one after the other; `border` marks the last row of each.
    """

    observation: Floats  # (N, S) raw
    action: Floats  # (N, D) as sampled, never clipped
    mean: Floats  # (N, D) of the behaviour policy
    log_std: Floats  # (D,) of the behaviour policy, NaN if it is no Gaussian
    reward: Floats  # (N,) raw
    next_observation: Floats  # (N, S) raw; at an episode's end its true final observation
    terminated: Bools  # (N,)
    truncated: Bools  # (N,)
    border: Bools  # (N,) the batch stops here, the episode may not
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
        """What acts in one episode; the numbers name it, for one that draws itself anew."""
        ...

    def bound(self, action: Floats) -> Floats:
        """The action as the environment gets it."""
        ...
