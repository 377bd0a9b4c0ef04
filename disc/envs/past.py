"""The history of the episodes in progress, from which they can be restored."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from disc.types import Floats

LOOSE = 1000
"""Arrays of actions to keep before joining them: a one-step array needs ten times its data."""


@dataclass
class Past:
    """The last seeded reset and the actions since then."""

    seed: int = 0  # the run's
    step: int = 0  # of the run, at the reset
    actions: list[Floats] = field(default_factory=list)  # (E, T, D) each
    complete: bool = False  # there was a reset, and no action since is missing

    def reset(self, seed: int, step: int) -> None:
        """Begin again with a reset."""
        self.seed, self.step, self.actions, self.complete = seed, step, [], True

    def keep(self, actions: Floats) -> None:
        """Remember that these actions, (E, T, D), were taken."""
        self.actions.append(actions)
        if len(self.actions) > LOOSE:
            self.actions = [np.concatenate(self.actions, axis=1)]

    def forget(self) -> None:
        """Drop the actions."""
        if self.actions:
            self.actions.clear()
            self.complete = False

    @property
    def length(self) -> int:
        """T: steps of each environment."""
        return sum(actions.shape[1] for actions in self.actions)

    def of(self, indices: slice) -> Floats | None:
        """The actions of some environments, (·, T, D); None if there are none."""
        if not self.actions:
            return None
        return np.concatenate([actions[indices] for actions in self.actions], axis=1)
