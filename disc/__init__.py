"""DISC and the algorithms it is compared with, for control with continuous or discrete actions.

    from disc import DISC

    agent = DISC("Humanoid-v5", seed=0)
    agent.learn(1_000_000)
    action, _ = agent.predict(observation)

`__all__` is the public interface; everything else may move. Names are imported when they are
first used: loading a policy and acting need only numpy, learning imports JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from disc._version import __version__

if TYPE_CHECKING:
    from disc import equations
    from disc.algos import register
    from disc.learning.algorithm import Algorithm
    from disc.policy.file import load
    from disc.policy.formats.export import export
    from disc.policy.policies import Policy
    from disc.run.agent import Agent
    from disc.run.agents import resume
    from disc.types import DiscError, Rollout, Spec

    ACKTR: type[Agent]
    DDPG: type[Agent]
    DISC: type[Agent]
    PPO: type[Agent]
    PPOAMBER: type[Agent]
    SAC: type[Agent]
    SQL: type[Agent]
    TD3: type[Agent]
    TRPO: type[Agent]
    TrustPCL: type[Agent]

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
    "Agent",
    "Algorithm",
    "DiscError",
    "Policy",
    "Rollout",
    "Spec",
    "TrustPCL",
    "__version__",
    "equations",
    "export",
    "load",
    "register",
    "resume",
]

_HOMES = {
    "Agent": "disc.run.agent",
    "Algorithm": "disc.learning.algorithm",
    "DiscError": "disc.types",
    "Policy": "disc.policy.policies",
    "Rollout": "disc.types",
    "Spec": "disc.types",
    "export": "disc.policy.formats.export",
    "load": "disc.policy.file",
    "register": "disc.algos",
    "resume": "disc.run.agents",
}


def __getattr__(name: str) -> Any:
    try:
        if name == "equations":
            return import_module("disc.equations")
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        agent = import_module("disc.run.agents").agent_named(name) if name[:1].isupper() else None
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("disc."):
            raise
        if name in __all__:  # this is disc-policy (robot/), which can only act
            message = f"disc.{name} needs the whole package: pip install disc-rl"
            raise ImportError(message, name="disc") from None
        agent = None
    if agent is not None:  # perhaps from another package
        return agent
    raise AttributeError(f"module 'disc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
