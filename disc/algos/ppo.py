"""PPO (Schulman et al., 2017), as in the paper's baseline: one batch, the joint ratio clipped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from disc.equations import advantages, clipping, importance
from disc.learning import actor_critic, snapshot
from disc.learning.actor_critic import ActorCritic, act, explore, observe
from disc.learning.config import BatchConfig
from disc.learning.distribution import Policy
from disc.learning.networks import MLP, Activation
from disc.learning.types import BatchReplay, Estimate, Parts, Rows, Scale
from disc.options import Checker
from disc.types import Metrics, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "ppo"
AGENT = "PPO"


@dataclass(frozen=True)
class Config(BatchConfig):
    """Options of PPO."""

    epsilon: float = 0.2
    """Clipping factor ε of the joint ratio ρ_t, and of the value (paper, Table A.1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        Checker(self).below_one("epsilon")


@dataclass(frozen=True)
class State(ActorCritic):
    """Everything that changes during a run of PPO."""


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state; the replay holds the newest batch only."""
    return State(**actor_critic.init(config, 1, spec, num_envs, seed))


def update(config: Config, state: State, threads: int) -> tuple[State, Metrics]:
    """One iteration of PPO."""
    return actor_critic.improve(config, state, threads, estimate, policy_loss)


@partial(jax.jit, static_argnames=("config", "activation"))
def estimate(
    config: Any,
    policy: Policy,
    value: MLP,
    scale: Scale,
    replay: BatchReplay,
    activation: Activation = jnp.tanh,
) -> Estimate:
    """GAE over the newest batch."""
    ratios = snapshot.ratios(policy, scale, replay)
    included = replay.age == 0
    steps = snapshot.steps(config, value, scale, replay, included, activation)
    advantage, target = advantages.gae(*steps)
    weight = jnp.ones_like(ratios.log_rho)
    reference = snapshot.behaviour(replay)
    return snapshot.estimate(replay, ratios, included, steps, advantage, weight, target, reference)


def policy_loss(config: Config, policy: Policy, rows: Rows, _: Any) -> Parts:
    """−mean of min(ρÂ, clip_ε(ρ)Â) (paper, eq. 1)."""
    log_ratio, output = actor_critic.ratio_of(policy, rows)
    objective = clipping.joint_clip(log_ratio, rows.advantage, config.epsilon) * rows.advantage
    clipped = clipping.clipped(importance.joint(log_ratio), rows.advantage, config.epsilon)
    return Parts(
        numerator=-jnp.sum(objective),
        denominator=jnp.sum(rows.mask),
        penalty=0.0,
        measured=actor_critic.measure_ratio(
            policy, rows, output, log_ratio, objective, clipped[:, None]
        ),
    )
