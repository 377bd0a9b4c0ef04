"""DISC and the algorithms it is compared with, for continuous control.

    from disc import DISC

    agent = DISC("Humanoid-v5", seed=0)
    agent.learn(1_000_000)
    action, _ = agent.predict(observation)

Names are imported when they are first used: `disc.load` and acting need numpy only, learning
imports JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from disc._version import __version__

if TYPE_CHECKING:
    from disc.agent import (
        ACKTR,
        DDPG,
        DISC,
        PPO,
        PPOAMBER,
        SAC,
        SQL,
        TD3,
        TRPO,
        TrustPCL,
    )
    from disc.policies import Policy
    from disc.policy import load
    from disc.resuming import resume
    from disc.types import DiscError

__all__ = [
    "ACKTR",
    "DDPG",
    "DISC",
    "PPO",
    "PPOAMBER",
    "SAC",
    "SQL",
    "TD3",
    "TRPO",
    "DiscError",
    "Policy",
    "TrustPCL",
    "__version__",
    "load",
    "resume",
]

_HOMES = {
    **dict.fromkeys(__all__, "disc.agent"),
    "Policy": "disc.policies",
    "load": "disc.policy",
    "resume": "disc.resuming",
    "DiscError": "disc.types",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'disc' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
