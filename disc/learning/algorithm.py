"""The interface of an algorithm: any module or object with these names implements it."""

from __future__ import annotations

from typing import Any, Protocol, Self

from disc.learning.types import Normalizer
from disc.policy.policies import Policy
from disc.types import Actor, Measured, Rollout, Spec


class State(Protocol):
    """Everything that changes during a run: a frozen dataclass whose fields JAX can flatten.

    A checkpoint stores all fields by name; those of the replay are packed.
    """

    @property
    def seed(self) -> int:
        """The run's seed: all randomness derives from it."""
        ...

    @property
    def step(self) -> int:
        """Environment steps so far."""
        ...

    @property
    def iteration(self) -> int:
        """Updates so far."""
        ...

    @property
    def replay(self) -> Any:
        """A `BatchReplay`, `ChunkReplay` or `TransitionReplay`."""
        ...

    @property
    def normalizer(self) -> Normalizer:
        """Statistics of observations and returns."""
        ...

    def parameters(self) -> dict[str, Any]:
        """The networks by name, as a policy file stores them: `policy`, `value` and others."""
        ...

    def start_from(self, parameters: dict[str, Any], normalizer: Normalizer) -> Self:
        """An initial state with these networks and statistics."""
        ...


class Algorithm(Protocol):
    """The parts of an algorithm. The training loop calls the functions in this order."""

    @property
    def NAME(self) -> str:
        """The name used by `--algo` and in files."""
        ...

    @property
    def Config(self) -> type[Any]:
        """Its options: a frozen dataclass, a subclass of `CommonConfig`."""
        ...

    def init(self, config: Any, spec: Spec, num_envs: int, seed: int, /) -> Any:
        """The initial state."""
        ...

    def explore(self, config: Any, spec: Spec, state: Any, /) -> Actor:
        """The behaviour policy that collects the next steps."""
        ...

    def observe(self, config: Any, state: Any, rollout: Rollout, /) -> Any:
        """The state after a rollout, with its steps counted and stored."""
        ...

    def update(self, config: Any, state: Any, threads: int, /) -> tuple[Any, Measured]:
        """The state after learning from the stored steps, and metrics."""
        ...

    def act(self, config: Any, spec: Spec, state: Any, /) -> Policy:
        """The current policy, for evaluation and for the policy file."""
        ...
