"""SQL (Haarnoja et al., 2017): soft Q-learning, with a network that samples from exp Q.

The policy is a sampler a = f(s, noise) without a density. Stein variational gradients train it
until its samples are distributed as exp Q(s, ·). It has no mean action, so evaluations sample too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from disc.equations import stein
from disc.learning import device, networks, off_policy, optim
from disc.learning.config import OffPolicyConfig
from disc.learning.networks import MLP
from disc.learning.off_policy import ADAM_EPSILON, Batch, Means, OffPolicy, observe
from disc.learning.types import Scale
from disc.options import Checker
from disc.policy.policies import Sampler
from disc.types import Actor, Measured, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "sql"
AGENT = "SQL"

REWARD_SCALES = {  # published
    "Ant-": 300.0,
    "HalfCheetah-": 30.0,
    "Hopper-": 30.0,
    "Humanoid-": 100.0,
    "Walker2d-": 10.0,
}


@dataclass(frozen=True)
class Config(OffPolicyConfig):
    """Options of SQL."""

    widths: tuple[int, ...] = (128, 128)
    """Hidden layer sizes of all networks (published code)."""
    batch_size: int = 128
    """Transitions per gradient step (published code)."""
    learning_rate: float = 3e-4
    """Adam's learning rate, for all networks (published code)."""
    reward_scale: float | None = None
    """Rewards are multiplied by this: the larger, the less random the policy. The defaults are the
    published ones: 30 on Hopper and HalfCheetah, 10 on Walker2d, 300 on Ant, 100 on Humanoid. On
    other tasks the default is 1 and should be tuned."""
    value_particles: int = 16
    """Uniform actions from which the soft value is estimated (published code)."""
    fixed_particles: int = 8
    """Actions of the policy at which Q is differentiated (published code: half of 16)."""
    moved_particles: int = 8
    """Actions of the policy that are updated (published code: half of 16)."""
    target_interval: int = 1000
    """Gradient steps between copies of the critics to their targets (published code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.rate("learning_rate")
        check.at_least(1, "value_particles", "moved_particles", "target_interval")
        check.at_least(2, "fixed_particles")
        if self.reward_scale is not None:
            check.above_zero("reward_scale")

    @property
    def rows(self) -> int:
        """Rows that a network processes in a gradient step, or pairs of actions compared."""
        pairs = self.fixed_particles * self.moved_particles
        return self.batch_size * max(self.value_particles, pairs)

    def for_task(self, task: str) -> Self:
        """Fill in the reward scale too."""
        config = super().for_task(task)
        if config.reward_scale is not None:
            return config
        published = (c for name, c in REWARD_SCALES.items() if task.startswith(name))
        return replace(config, reward_scale=next(published, 1.0))


class Learned(NamedTuple):
    """Everything a gradient step changes."""

    policy: optim.Learner  # of an MLP, S + D → D
    value: optim.Learner  # of two MLPs, S + D → 1
    target: tuple[MLP, MLP]
    updates: jax.Array  # () int32, gradient steps

    def at(self, policy: MLP, value: tuple[MLP, MLP]) -> Learned:
        """This initial state with the parameters of another run, targets included."""
        return rest(policy, value)


def rest(policy: MLP, value: tuple[MLP, MLP]) -> Learned:
    """Initial learners with these parameters."""
    return Learned(optim.init(policy), optim.init(value), value, device.zeros(dtype=np.int32))


class State(OffPolicy):
    """Everything that changes during a run of SQL; its normaliser stays empty."""


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state; the sampler's noise has as many dimensions as the action."""
    rng, s, d = off_policy.generator(seed), spec.observation_size, spec.action_size
    policy = networks.init_uniform(rng, (s + d, *config.widths, d))
    first, second = (networks.init_uniform(rng, (s + d, *config.widths, 1)) for _ in range(2))
    learned = rest(policy, (first, second))
    return State(**off_policy.init(config, spec, num_envs, seed, learned))


def explore(config: Config, spec: Spec, state: State) -> Actor:
    """The behaviour policy of the next steps: random at first, then the current one."""
    return off_policy.explore(act, config, spec, state)


def update(config: Config, state: State, threads: int) -> tuple[State, Measured]:
    """All gradient steps of an update."""
    return off_policy.improve(config, state, learn)


def act(config: Config, spec: Spec, state: State) -> Sampler:
    """The current policy; it always samples."""
    return Sampler(**off_policy.policy_fields(spec, state, state.policy.parameters))


def learn(
    config: Config, learned: Learned, batch: Batch, key: jax.Array, scale: Scale
) -> tuple[Learned, Means]:
    """One gradient step of critics and sampler."""
    uniform, normal = jax.random.split(key)
    size, dimensions = batch.action.shape
    assert config.reward_scale is not None, "config.for_task fills it in"

    shape = (size, config.value_particles, dimensions)
    actions = jax.random.uniform(uniform, shape, minval=-1.0, maxval=1.0)
    q = off_policy.least(learned.target, batch.next_observation, actions)
    next_value = stein.soft_value(q, dimensions)
    y = off_policy.target(batch, next_value, config.gamma, config.reward_scale)

    (loss, mean_q), gradient = jax.value_and_grad(off_policy.value_loss, has_aux=True)(
        learned.value.parameters, batch.observation, batch.action, y
    )
    value = optim.step(learned.value, gradient, config.learning_rate, ADAM_EPSILON)

    count = config.fixed_particles + config.moved_particles
    noise = jax.random.normal(normal, (size, count, dimensions))
    fixed_noise, moved_noise = (
        noise[:, : config.fixed_particles],
        noise[:, config.fixed_particles :],
    )
    fixed = sample(learned.policy.parameters, batch.observation, fixed_noise)
    score, objective = jax.grad(log_density, argnums=2, has_aux=True)(
        value.parameters, batch.observation, fixed
    )

    def policy_loss(policy: MLP) -> jax.Array:
        moved = sample(policy, batch.observation, moved_noise)
        direction = stein.stein_direction(fixed, jax.lax.stop_gradient(moved), score)
        return -jnp.mean(jnp.sum(moved * direction, axis=2))

    gradient = jax.grad(policy_loss)(learned.policy.parameters)
    policy = optim.step(learned.policy, gradient, config.learning_rate, ADAM_EPSILON)
    updates = learned.updates + 1
    due = updates % config.target_interval == 0
    target = jax.tree.map(
        lambda old, new: jnp.where(due, new, old), learned.target, value.parameters
    )
    measured = {
        "train/objective": objective,
        "train/value_loss": loss,
        "train/q": mean_q,
        "train/soft_value": jnp.mean(next_value),
        "train/action_spread": jnp.mean(jnp.std(fixed, axis=1)),
    }
    return Learned(policy, value, target, updates), measured


def sample(policy: MLP, observation: jax.Array, noise: jax.Array) -> jax.Array:
    """Actions tanh(f(s, ξ)) for K draws of noise: (M, S), (M, K, D) → (M, K, D)."""
    return jnp.tanh(networks.forward_pairs(policy, observation, noise))


def log_density(
    critics: tuple[MLP, MLP], observation: jax.Array, action: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Σ min Q(s, a) + Σ_d log(1 − a_d²) over all actions (M, K, D), and mean Q.

    Its gradient with respect to an action is the score of the density exp(Q)·∏ (1 − a_d²), as in
    the published code, which keeps samples away from the bounds.
    """
    q = off_policy.least(critics, observation, action)
    squash = jnp.log(1.0 - jnp.square(action) + 1e-6)
    return jnp.sum(q) + jnp.sum(squash), jnp.mean(q)
