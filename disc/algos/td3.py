"""TD3 (Fujimoto et al., 2018): DDPG with twin critics, a late policy and smoothed targets.

Each of the three is there against values that are too high: the smaller of two critics is believed,
the policy and the targets move only at every second step of the critics, and the target's action is
blurred, so that the policy can't sit on a narrow peak of the critic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from disc.learning import networks, off_policy, optim
from disc.learning.config import Checker, OffPolicyConfig
from disc.learning.networks import MLP
from disc.learning.off_policy import ADAM_EPSILON, Batch, Means, OffPolicy, Targets, observe
from disc.policy.policies import Deterministic
from disc.types import Actor, Measured, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "td3"
AGENT = "TD3"


@dataclass(frozen=True)
class Config(OffPolicyConfig):
    """Options of TD3."""

    widths: tuple[int, ...] = (400, 300)
    """Hidden layers of all networks (original)."""
    batch_size: int = 100
    """Transitions in a gradient step (original)."""
    learning_rate: float = 1e-3
    """Adam's step size, for all networks (original)."""
    tau: float = 0.005
    """τ: how far the targets move towards their networks each time (original)."""
    exploration: float = 0.1
    """Standard deviation of the noise on collected actions, as a share of their reach
    (original)."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target's actions (original); 0 smooths nothing."""
    target_noise_clip: float = 0.5
    """That noise is held within ± this (original)."""
    policy_delay: int = 2
    """Gradient steps of the critics for one of the policy and of the targets (original)."""
    twin: bool = True
    """Two critics, of which the smaller is believed (original); else one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.rate("learning_rate")
        check.within(0, 1, "tau")
        check.at_least(0, "exploration", "target_noise", "target_noise_clip")
        check.at_least(1, "policy_delay")


class Learned(NamedTuple):
    """What a gradient step changes."""

    policy: optim.Learner  # of an MLP, S → D
    value: optim.Learner  # of one or two MLPs, S + D → 1
    targets: Targets
    updates: jax.Array  # () int32, gradient steps of the critics

    def at(self, policy: MLP, value: tuple[MLP, ...]) -> Learned:
        """At rest, with these parameters of another run and targets at the same place."""
        return Learned(*off_policy.rest(policy, value), jnp.int32(0))


class State(OffPolicy):
    """Everything that changes during a run of TD3; its normaliser stays empty."""


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """A fresh state."""
    rng, s, d = off_policy.generator(seed), spec.observation_size, spec.action_size
    policy = networks.init_uniform(rng, (s, *config.widths, d))
    count = 2 if config.twin else 1
    critics = tuple(networks.init_uniform(rng, (s + d, *config.widths, 1)) for _ in range(count))
    learned = Learned(*off_policy.rest(policy, critics), jnp.int32(0))
    return State(**off_policy.init(config, spec, num_envs, seed, learned))


def act(config: Config, spec: Spec, state: State) -> Deterministic:
    """The current policy."""
    fields = off_policy.policy_fields(spec, state, state.policy.parameters)
    return Deterministic(**fields, exploration=config.exploration)


def explore(config: Config, spec: Spec, state: State) -> Actor:
    """The behaviour policy of the next steps: the current one, after random steps."""
    return off_policy.explore(act, config, spec, state)


def update(config: Config, state: State, threads: int) -> tuple[State, Measured]:
    """As many gradient steps as an update has; every `policy_delay`-th moves the policy too."""
    return off_policy.improve_delayed(config, state, move_critics, move_policy)


def move_critics(
    config: Config, learned: Learned, batch: Batch, key: jax.Array
) -> tuple[Learned, Means]:
    """One gradient step of the critics towards r + γ min_i Q'_i(s', π'(s') + noise)."""
    action = off_policy.deterministic_action(learned.targets.policy, batch.next_observation)
    action = smooth(config, action, key)
    next_value = off_policy.least(learned.targets.value, batch.next_observation, action)
    y = off_policy.target(batch, next_value, config.gamma)
    (loss, mean_q), gradient = jax.value_and_grad(off_policy.value_loss, has_aux=True)(
        learned.value.parameters, batch.observation, batch.action, y
    )
    value = optim.step(learned.value, gradient, config.learning_rate, ADAM_EPSILON)
    measured = {"train/value_loss": loss, "train/q": mean_q}
    return learned._replace(value=value, updates=learned.updates + 1), measured


def move_policy(config: Config, batch: Batch, learned: Learned) -> tuple[Learned, jax.Array]:
    """One gradient step of the policy up the first critic, all targets after it; mean Q(s, π)."""
    critics = learned.value.parameters
    cost, gradient = jax.value_and_grad(off_policy.policy_loss)(
        learned.policy.parameters, critics[0], batch.observation
    )
    policy = optim.step(learned.policy, gradient, config.learning_rate, ADAM_EPSILON)
    networks = Targets(policy.parameters, critics)
    targets = off_policy.follow(learned.targets, networks, config.tau)
    return learned._replace(policy=policy, targets=targets), -cost


def smooth(config: Config, action: jax.Array, key: jax.Array) -> jax.Array:
    """clip(a + clip(σ·noise, ±c), ±1): (M, D) → (M, D)."""
    noise = config.target_noise * jax.random.normal(key, action.shape)
    noise = jnp.clip(noise, -config.target_noise_clip, config.target_noise_clip)
    return jnp.clip(action + noise, -1.0, 1.0)
