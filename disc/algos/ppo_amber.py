"""PPO-AMBER (Han and Sung, 2017): PPO that reuses old batches whose joint ratios are near 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from disc.algos.ppo import policy_loss
from disc.equations import advantages, importance
from disc.learning import actor_critic, snapshot
from disc.learning.actor_critic import ActorCritic, act, explore, observe
from disc.learning.config import BatchConfig
from disc.learning.distribution import Policy
from disc.learning.networks import MLP
from disc.learning.types import BatchReplay, Estimate, Scale
from disc.options import Checker
from disc.types import Metrics, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "ppo-amber"
AGENT = "PPOAMBER"


@dataclass(frozen=True)
class Config(BatchConfig):
    """Options of PPO-AMBER."""

    epsilon: float = 0.2
    """Clipping factor ε of the joint ratio ρ_t, and of the value (paper, Table A.1)."""
    epsilon_b: float = 0.1
    """Batch inclusion ε_b: a batch is reused if its mean |ρ_t − 1| is below this (paper, eq. 4;
    the paper runs 0.1 and 0.2)."""
    replay_length: int = 64
    """L: batches in the replay (paper, Table A.1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.below_one("epsilon")
        check.at_least(0, "epsilon_b")
        check.at_least(1, "replay_length")


@dataclass(frozen=True)
class State(ActorCritic):
    """Everything that changes during a run of PPO-AMBER."""


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state."""
    return State(**actor_critic.init(config, config.replay_length, spec, num_envs, seed))


def update(config: Config, state: State, threads: int) -> tuple[State, Metrics]:
    """One iteration of PPO-AMBER."""
    return actor_critic.improve(config, state, threads, estimate, policy_loss)


@partial(jax.jit, static_argnames="config")
def estimate(
    config: Config, policy: Policy, value: MLP, scale: Scale, replay: BatchReplay
) -> Estimate:
    """GAE, with the current value network, over all batches whose joint ratios are near 1."""
    ratios = snapshot.ratios(policy, scale, replay)
    included = importance.include(ratios.joint_deviation, replay.age, config.epsilon_b)
    steps = snapshot.steps(config, value, scale, replay, included)
    advantage, target = advantages.gae(*steps)
    weight = jnp.ones_like(ratios.log_rho)
    reference = snapshot.behaviour(replay)
    return snapshot.estimate(replay, ratios, included, steps, advantage, weight, target, reference)
