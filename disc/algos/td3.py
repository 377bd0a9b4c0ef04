"""TD3 (Fujimoto et al., 2018): DDPG with twin critics, delayed policy updates and smoothed targets.

All three reduce overestimation: targets use the smaller of two critics, the policy and the targets
are updated only at every second step of the critics, and noise on the target's action keeps the
policy from exploiting narrow peaks of the critic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from disc.learning import device, networks, off_policy, optim
from disc.learning.config import OffPolicyConfig
from disc.learning.networks import MLP
from disc.learning.off_policy import ADAM_EPSILON, Batch, Means, OffPolicy, Targets, observe
from disc.options import Checker
from disc.policy.policies import Deterministic
from disc.types import Actor, Measured, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "td3"
AGENT = "TD3"


@dataclass(frozen=True)
class Config(OffPolicyConfig):
    """Options of TD3."""

    widths: tuple[int, ...] = (400, 300)
    """Hidden layer sizes of all networks (original)."""
    batch_size: int = 100
    """Transitions per gradient step (original)."""
    learning_rate: float = 1e-3
    """Adam's learning rate, for all networks (original)."""
    tau: float = 0.005
    """τ: step size of the target networks towards the networks, per target update (original)."""
    exploration: float = 0.1
    """Standard deviation of the exploration noise, as a fraction of half the action range
    (original)."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions (original); 0 disables smoothing."""
    target_noise_clip: float = 0.5
    """The noise on target actions is clipped to ± this (original)."""
    policy_delay: int = 2
    """Gradient steps of the critics per update of the policy and the targets (original)."""
    twin: bool = True
    """Use the minimum of two critics (original) instead of one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.rate("learning_rate")
        check.within(0, 1, "tau")
        check.at_least(0, "exploration", "target_noise", "target_noise_clip")
        check.at_least(1, "policy_delay")


class Learned(NamedTuple):
    """Everything a gradient step changes."""

    policy: optim.Learner  # of an MLP, S → D
    value: optim.Learner  # of one or two MLPs, S + D → 1
    targets: Targets
    updates: jax.Array  # () int32, gradient steps of the critics

    def at(self, policy: MLP, value: tuple[MLP, ...]) -> Learned:
        """This initial state with the parameters of another run, targets included."""
        return Learned(*off_policy.rest(policy, value), device.zeros(dtype=np.int32))


class State(OffPolicy):
    """Everything that changes during a run of TD3; its normaliser stays empty."""


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state."""
    rng, s, d = off_policy.generator(seed), spec.observation_size, spec.action_size
    policy = networks.init_uniform(rng, (s, *config.widths, d))
    count = 2 if config.twin else 1
    critics = tuple(networks.init_uniform(rng, (s + d, *config.widths, 1)) for _ in range(count))
    learned = Learned(*off_policy.rest(policy, critics), device.zeros(dtype=np.int32))
    return State(**off_policy.init(config, spec, num_envs, seed, learned))


def explore(config: Config, spec: Spec, state: State) -> Actor:
    """The behaviour policy of the next steps: random at first, then the current one."""
    return off_policy.explore(act, config, spec, state)


def update(config: Config, state: State, threads: int) -> tuple[State, Measured]:
    """All gradient steps of an update; every `policy_delay`-th also updates the policy."""
    return off_policy.improve_delayed(config, state, move_critics, move_policy)


def act(config: Config, spec: Spec, state: State) -> Deterministic:
    """The current policy."""
    fields = off_policy.policy_fields(spec, state, state.policy.parameters)
    return Deterministic(**fields, exploration=config.exploration)


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
    """One gradient step of the policy on the first critic, then of all targets; mean Q(s, π)."""
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
