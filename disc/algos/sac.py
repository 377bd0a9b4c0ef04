"""SAC (Haarnoja et al., 2018): off-policy soft actor-critic with a target entropy.

The policy is a Gaussian squashed by tanh. It is trained towards exp(Q/α), where the temperature α
is adjusted to reach the target entropy. The form of the first paper, which the DISC paper compares
with, has a reward scale instead of α, and a separate network V.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp

from disc.equations import distributions
from disc.learning import device, networks, off_policy, optim
from disc.learning.config import OffPolicyConfig
from disc.learning.networks import MLP
from disc.learning.off_policy import ADAM_EPSILON, Batch, Means, OffPolicy, observe
from disc.learning.types import Scale
from disc.options import Checker
from disc.policy.policies import LOG_STD_RANGE, Squashed
from disc.types import Actor, Measured, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "sac"
AGENT = "SAC"


@dataclass(frozen=True)
class Config(OffPolicyConfig):
    """Options of SAC."""

    widths: tuple[int, ...] = (256, 256)
    """Hidden layer sizes of all networks (original)."""
    learning_rate: float = 3e-4
    """Adam's learning rate, for all networks and the temperature (original)."""
    tau: float = 0.005
    """τ: step size of the target networks towards the networks, per gradient step (original)."""
    form: Literal["automatic", "2018"] = "automatic"
    """automatic: the temperature is learned (second paper). 2018: the form of the first paper,
    with a network V and a fixed temperature of 1, which the DISC paper compares with."""
    target_entropy: float | None = None
    """Target entropy of the automatic form; −D by default (second paper)."""
    reward_scale: float | None = None
    """Rewards are multiplied by this. By default 1 in the automatic form; in the 2018 form 5, on
    Humanoid 20 and on HumanoidStandup 100 (DISC's comparison)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.rate("learning_rate")
        check.within(0, 1, "tau")
        if self.reward_scale is not None:
            check.above_zero("reward_scale")
        if self.target_entropy is not None:
            check.within(-1e6, 1e6, "target_entropy")

    def for_task(self, task: str) -> Self:
        """Fill in the reward scale too."""
        config = super().for_task(task)
        if config.reward_scale is not None:
            return config
        known = {"Humanoid-": 20.0, "HumanoidStandup-": 100.0}
        published = next((c for name, c in known.items() if task.startswith(name)), 5.0)
        return replace(config, reward_scale=published if self.form == "2018" else 1.0)


class Critics(NamedTuple):
    """The twin Q and, in the 2018 form, V."""

    q: tuple[MLP, MLP]  # S + D → 1
    v: MLP | None  # S → 1


class Learned(NamedTuple):
    """Everything a gradient step changes."""

    policy: optim.Learner  # of an MLP, S → 2D: mean and log σ before the tanh
    value: optim.Learner  # of Critics
    temperature: optim.Learner  # of log α, (); constant in the 2018 form
    target: Any  # of V in the 2018 form, else of the twin Q

    def at(self, policy: MLP, value: Critics, temperature: jax.Array) -> Learned:
        """This initial state with the parameters of another run, targets included."""
        return rest(policy, value, temperature)


def rest(policy: MLP, value: Critics, temperature: jax.Array) -> Learned:
    """Initial learners with these parameters."""
    target = value.q if value.v is None else value.v
    return Learned(optim.init(policy), optim.init(value), optim.init(temperature), target)


class State(OffPolicy):
    """Everything that changes during a run of SAC; its normaliser stays empty."""


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state; α = 1."""
    rng, s, d = off_policy.generator(seed), spec.observation_size, spec.action_size
    policy = networks.init_uniform(rng, (s, *config.widths, 2 * d))
    first, second = (networks.init_uniform(rng, (s + d, *config.widths, 1)) for _ in range(2))
    v = networks.init_uniform(rng, (s, *config.widths, 1)) if config.form == "2018" else None
    learned = rest(policy, Critics((first, second), v), device.zeros())
    return State(**off_policy.init(config, spec, num_envs, seed, learned))


def explore(config: Config, spec: Spec, state: State) -> Actor:
    """The behaviour policy of the next steps: random at first, then the current one."""
    return off_policy.explore(act, config, spec, state)


def update(config: Config, state: State, threads: int) -> tuple[State, Measured]:
    """All gradient steps of an update."""
    return off_policy.improve(config, state, learn)


def act(config: Config, spec: Spec, state: State) -> Squashed:
    """The current policy."""
    return Squashed(**off_policy.policy_fields(spec, state, state.policy.parameters))


def learn(
    config: Config, learned: Learned, batch: Batch, key: jax.Array, scale: Scale
) -> tuple[Learned, Means]:
    """One gradient step of the critics, the policy and the temperature, in this order."""
    first, second = jax.random.split(key)
    alpha = jnp.exp(learned.temperature.parameters)
    value, measured = move_critics(config, learned, batch, alpha, first)
    policy, cost, log_pi = move_policy(config, learned, value.parameters, batch, alpha, second)
    temperature = move_temperature(config, learned.temperature, log_pi, batch.action.shape[1])
    critics: Critics = value.parameters
    followed = critics.q if critics.v is None else critics.v
    target = off_policy.follow(learned.target, followed, config.tau)
    return Learned(policy, value, temperature, target), {
        "train/objective": -cost,
        **measured,
        "train/entropy": -log_pi,
        "train/temperature": alpha,
    }


def move_critics(
    config: Config, learned: Learned, batch: Batch, alpha: jax.Array, key: jax.Array
) -> tuple[optim.Learner, Means]:
    """One gradient step of Q towards c·r + γ V(s') and, in the 2018 form, of V.

    V(s') is min_i Q'_i(s', a') − α log π(a'|s'), or a network's output in the 2018 form.
    """
    policy: MLP = learned.policy.parameters
    assert config.reward_scale is not None, "config.for_task fills it in"
    if config.form == "2018":
        next_value = networks.forward(learned.target, batch.next_observation, jax.nn.relu)[:, 0]
    else:
        action, log_pi = sample(policy, batch.next_observation, key)
        next_value = off_policy.least(learned.target, batch.next_observation, action)
        next_value = next_value - alpha * log_pi
    y = off_policy.target(batch, next_value, config.gamma, config.reward_scale)

    def value_loss(critics: Critics) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        loss, mean_q = off_policy.value_loss(critics.q, batch.observation, batch.action, y)
        if critics.v is None:
            return loss, (loss, mean_q)
        action, log_pi = sample(policy, batch.observation, key)
        soft = off_policy.least(learned.value.parameters.q, batch.observation, action) - log_pi
        v = networks.forward(critics.v, batch.observation, jax.nn.relu)[:, 0]
        error = jnp.square(v - jax.lax.stop_gradient(soft))
        return loss + jnp.mean(error), (loss, mean_q)

    gradient, (loss, mean_q) = jax.grad(value_loss, has_aux=True)(learned.value.parameters)
    value = optim.step(learned.value, gradient, config.learning_rate, ADAM_EPSILON)
    return value, {"train/value_loss": loss, "train/q": mean_q}


def move_policy(
    config: Config,
    learned: Learned,
    critics: Critics,
    batch: Batch,
    alpha: jax.Array,
    key: jax.Array,
) -> tuple[optim.Learner, jax.Array, jax.Array]:
    """One gradient step on mean(α log π(a|s) − min_i Q_i(s, a)); also returns it and mean log π."""

    def policy_loss(policy: MLP) -> tuple[jax.Array, jax.Array]:
        action, log_pi = sample(policy, batch.observation, key)
        q = off_policy.least(critics.q, batch.observation, action)
        return jnp.mean(alpha * log_pi - q), jnp.mean(log_pi)

    policy: MLP = learned.policy.parameters
    (cost, log_pi), gradient = jax.value_and_grad(policy_loss, has_aux=True)(policy)
    return optim.step(learned.policy, gradient, config.learning_rate, ADAM_EPSILON), cost, log_pi


def move_temperature(
    config: Config, temperature: optim.Learner, log_pi: jax.Array, dimensions: int
) -> optim.Learner:
    """One gradient step of log α towards the target entropy; none in the 2018 form."""
    if config.form == "2018":
        return temperature
    goal = -dimensions if config.target_entropy is None else config.target_entropy
    gradient = temperature_gradient(log_pi, goal)
    return optim.step(temperature, gradient, config.learning_rate, ADAM_EPSILON)


def sample(policy: MLP, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """An action a = tanh(m(s) + σ(s)·noise) and log π(a|s): (M, D) and (M,)."""
    mean, log_std = jnp.split(networks.forward(policy, observation, jax.nn.relu), 2, axis=1)
    log_std = jnp.clip(log_std, *LOG_STD_RANGE)
    u = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
    return jnp.tanh(u), distributions.squashed_log_density(u, mean, log_std)


def temperature_gradient(log_pi: jax.Array, target_entropy: float) -> jax.Array:
    """Gradient of −log α · (mean log π + target entropy): α grows while the entropy is too low."""
    return -(log_pi + target_entropy)
