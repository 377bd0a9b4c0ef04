"""`disc check` as the command line calls it, with the options of all algorithms."""

from __future__ import annotations

from disc.algos import ALGORITHMS
from disc.envs import diagnose
from disc.envs.diagnose import Finding
from disc.envs.factory import Maker

CONFIGS = {name: algorithm.Config for name, algorithm in ALGORITHMS.items()}


def check(maker: Maker, steps: int) -> list[Finding]:
    return diagnose.check(maker, steps, 0, CONFIGS)


def glance(maker: Maker) -> list[Finding]:
    return diagnose.glance(maker, CONFIGS)
