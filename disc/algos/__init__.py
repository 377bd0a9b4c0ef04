"""The algorithms, one module each, by the name that the command line knows them by."""

from __future__ import annotations

from disc.algos import acktr, ddpg, disc, ppo, ppo_amber, sac, sql, td3, trpo, trust_pcl
from disc.types import Algorithm

_modules: tuple[Algorithm, ...] = (
    disc, ppo, ppo_amber, trpo, acktr, trust_pcl, ddpg, td3, sac, sql
)  # fmt: skip
ALGORITHMS: dict[str, Algorithm] = {module.NAME: module for module in _modules}
