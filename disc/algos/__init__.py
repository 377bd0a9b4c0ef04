"""The algorithms by name: ten built-in ones, and those that other packages register."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib import metadata

from disc.algos import acktr, ddpg, disc, ppo, ppo_amber, sac, sql, td3, trpo, trust_pcl
from disc.learning.algorithm import Algorithm
from disc.types import DiscError, Spec, joined

ENTRY_POINTS = "disc.algorithms"
"""The entry-point group with which installed packages add algorithms."""
PARTS = ("NAME", "Config", "init", "explore", "observe", "update", "act")


class Registry(Mapping[str, Algorithm]):
    """Algorithms by name. Those of installed packages are imported at first use."""

    def __init__(self, *algorithms: Algorithm) -> None:
        self._known: dict[str, Algorithm] = {}
        self._complete = False
        for algorithm in algorithms:
            self.register(algorithm)

    def register(self, algorithm: Algorithm) -> None:
        """Register an algorithm for agents, the command line, sweeps and reports.

        Args:
            algorithm: a module, or any object with the parts of `Algorithm`.

        Raises:
            DiscError: a part is missing, or the name is already in use.
        """
        missing = [part for part in PARTS if not hasattr(algorithm, part)]
        if missing:
            raise DiscError(f"{algorithm!r} is not an algorithm: it lacks {', '.join(missing)}.")
        if self._known.setdefault(algorithm.NAME, algorithm) is not algorithm:
            raise DiscError(f"the algorithm name {algorithm.NAME!r} is already in use.")

    def _complete_with_installed(self) -> dict[str, Algorithm]:
        if not self._complete:
            self._complete = True
            for entry in metadata.entry_points(group=ENTRY_POINTS):
                try:
                    self.register(entry.load())
                except Exception as error:  # one broken package should not disable the others
                    warning = "Skipped the algorithm %s of %s, which failed to load (%s)."
                    logging.getLogger("disc").warning(warning, entry.name, entry.value, error)
        return self._known

    def __getitem__(self, name: str) -> Algorithm:
        known = self._complete_with_installed()
        if not isinstance(name, str) or name not in known:
            raise DiscError(f"there is no algorithm {name!r}; choose from {', '.join(known)}.")
        return known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._complete_with_installed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._complete_with_installed())

    def __len__(self) -> int:
        return len(self._complete_with_installed())


BUILT_IN = (disc, ppo, ppo_amber, trpo, acktr, trust_pcl, ddpg, td3, sac, sql)
ALGORITHMS = Registry(*BUILT_IN)
register = ALGORITHMS.register


def check_actions(algorithm: Algorithm, spec: Spec, env: str) -> None:
    """Check that an algorithm can learn the actions of an environment.

    Raises:
        DiscError: it can't; the message names the algorithms that can.
    """
    if spec.choices is None or algorithm.Config.discrete_actions:
        return
    able = joined(name for name, x in ALGORITHMS.items() if x.Config.discrete_actions)
    raise DiscError(
        f"{env}: has discrete actions, but {algorithm.NAME} needs continuous ones (a float Box); "
        f"{able} can learn discrete actions."
    )
