"""The algorithms, one module each, by the name that the command line knows them by."""

from __future__ import annotations

from types import ModuleType

from disc.algos import disc, ppo, ppo_amber

ALGORITHMS: dict[str, ModuleType] = {module.NAME: module for module in (disc, ppo, ppo_amber)}
