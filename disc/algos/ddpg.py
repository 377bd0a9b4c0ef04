"""DDPG (Lillicrap et al., 2016): a critic, and a deterministic actor trained on it.

It explores with noise on the policy's parameters (Plappert et al., 2018), redrawn for every episode
and scaled to change the actions by a given distance; networks have layer normalisation.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from disc.learning import device, networks, normalize, off_policy, optim
from disc.learning.config import OffPolicyConfig
from disc.learning.networks import Layers, Linear, NormalizedLinear
from disc.learning.off_policy import ADAM_EPSILON, Batch, Bounds, Means, OffPolicy, Targets
from disc.learning.types import Scale, TransitionReplay
from disc.options import Checker
from disc.policy.exploration import Perturbed
from disc.policy.policies import Deterministic
from disc.types import Actor, Measured, Rollout, Spec

NAME = "ddpg"
AGENT = "DDPG"

CLIP = 5.0  # normalised observations are clipped to ± this (published code)
HEAD_BOUND = 3e-3  # of the last layers' initial weights (original)


@dataclass(frozen=True)
class Config(OffPolicyConfig):
    """Options of DDPG."""

    normalizes_observations: ClassVar[bool] = True

    widths: tuple[int, ...] = (64, 64)
    """Hidden layer sizes of both networks (published code)."""
    steps_per_update: int = 100
    """Environment steps collected before each update, over all environments (published code)."""
    updates_per_step: float = 0.5
    """Gradient steps per environment step (published code)."""
    random_steps: int | None = 0
    """Initial steps with uniformly random actions and no updates (published code: none)."""
    batch_size: int = 64
    """Transitions per gradient step (original)."""
    policy_learning_rate: float = 1e-4
    """Adam's learning rate for the policy (original)."""
    value_learning_rate: float = 1e-3
    """Adam's learning rate for the critic (original)."""
    value_decay: float = 1e-2
    """Coefficient of L2 regularisation of the critic's weights (original), except its head, as in
    the last version of the published code."""
    tau: float = 0.01
    """τ: step size of the target networks towards the networks, per gradient step (published
    code)."""
    parameter_noise: float = 0.2
    """Target distance by which parameter noise changes the actions, scaled to bounds of ±1
    (published code); 0 disables exploration."""
    bootstrap_time_limits: bool = True
    """Bootstrap from the final observation if a time limit ended the episode; the original treats
    it as terminal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.rate("policy_learning_rate", "value_learning_rate")
        check.within(0, 1, "tau")
        check(
            "widths", len(self.widths) >= 2, "two layers or more, as the action enters the second"
        )
        check.at_least(0, "value_decay", "parameter_noise")


class Learned(NamedTuple):
    """Everything a gradient step changes."""

    policy: optim.Learner  # of layers, S → D
    value: optim.Learner  # of a tuple of one critic: S → H, H + D → 1
    targets: Targets

    def at(self, policy: Layers, value: tuple[Layers, ...]) -> Learned:
        """This initial state with the parameters of another run, targets included."""
        return Learned(*off_policy.rest(policy, value))


@dataclass(frozen=True)
class State(OffPolicy):
    """Everything that changes during a run of DDPG."""

    spread: float  # σ of the noise on the parameters


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state; the action enters the critic's second layer."""
    rng, s, d = off_policy.generator(seed), spec.observation_size, spec.action_size
    first, *others = config.widths
    policy = networks.init_uniform(rng, (s, *config.widths, d), HEAD_BOUND)
    entry = networks.init_uniform(rng, (s, first))
    critic = networks.init_uniform(rng, (first + d, *others, 1), HEAD_BOUND)
    learned = Learned(*off_policy.rest(normalized(policy), (normalized((*entry, *critic)),)))
    fields = off_policy.init(config, spec, num_envs, seed, learned)
    return State(**fields, spread=config.parameter_noise)


def normalized(layers: tuple[Linear, ...]) -> Layers:
    """Add layer normalisation to all layers but the last."""
    hidden = (
        NormalizedLinear(
            *layer, device.put(np.ones_like(layer.bias)), device.zeros_like(layer.bias)
        )
        for layer in layers[:-1]
    )
    return (*hidden, layers[-1])


def explore(config: Config, spec: Spec, state: State) -> Actor:
    """The behaviour policy of the next steps: random at first, then with parameter noise."""
    return off_policy.explore(_perturbed, config, spec, state)


def _perturbed(config: Config, spec: Spec, state: State) -> Perturbed:
    return Perturbed(**_policy_fields(spec, state), spread=state.spread, run_seed=state.seed)


def _policy_fields(spec: Spec, state: State) -> dict[str, Any]:
    layers = state.policy.parameters
    return {
        **off_policy.policy_fields(spec, state, layers),
        "observation_clip": CLIP,
        "exploration": 0.0,
        "scales": tuple(np.asarray(layer.scale) for layer in layers[:-1]),
        "shifts": tuple(np.asarray(layer.shift) for layer in layers[:-1]),
    }


def observe(config: Config, state: State, rollout: Rollout) -> State:
    """The state after a rollout, with updated statistics and its steps stored."""
    normalizer = normalize.update(state.normalizer, rollout, config.gamma)
    return dataclasses.replace(off_policy.observe(config, state, rollout), normalizer=normalizer)


def update(config: Config, state: State, threads: int) -> tuple[State, Measured]:
    """All gradient steps of an update; then the noise is measured and adapted."""
    state, metrics = off_policy.improve(config, state, learn)
    if not metrics or not config.parameter_noise:
        return state, metrics
    scale, policy = normalize.scale(state.normalizer), state.policy.parameters
    key, distance = measure_noise(
        config, policy, state.spread, state.key, state.replay, state.bounds, scale
    )
    spread = adapt(state.spread, float(distance), config.parameter_noise)
    noise = {"train/parameter_noise": state.spread, "train/noise_distance": float(distance)}
    return dataclasses.replace(state, key=key, spread=spread), {**metrics, **noise}


def act(config: Config, spec: Spec, state: State) -> Deterministic:
    """The current policy, without noise."""
    return Deterministic(**_policy_fields(spec, state))


def learn(
    config: Config, learned: Learned, batch: Batch, key: jax.Array, scale: Scale
) -> tuple[Learned, Means]:
    """One gradient step of critic, policy and targets."""
    here, there = (
        normalize.observations(scale, x, CLIP) for x in (batch.observation, batch.next_observation)
    )
    action = off_policy.deterministic_action(learned.targets.policy, there)
    next_value = off_policy.least(learned.targets.value, there, action)
    y = off_policy.target(batch, next_value, config.gamma)

    def value_loss(critics: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        loss, mean_q = off_policy.value_loss(critics, here, batch.action, y)
        squares = sum(jnp.sum(jnp.square(layer.weight)) for layer in critics[0][:-1])
        return loss + config.value_decay * 0.5 * squares, (loss, mean_q)

    gradient, (loss, mean_q) = jax.grad(value_loss, has_aux=True)(learned.value.parameters)
    value = optim.step(learned.value, gradient, config.value_learning_rate, ADAM_EPSILON)
    cost, gradient = jax.value_and_grad(off_policy.policy_loss)(
        learned.policy.parameters, value.parameters[0], here
    )
    policy = optim.step(learned.policy, gradient, config.policy_learning_rate, ADAM_EPSILON)
    networks = Targets(policy.parameters, value.parameters)
    targets = off_policy.follow(learned.targets, networks, config.tau)
    measured = {"train/objective": -cost, "train/value_loss": loss, "train/q": mean_q}
    return Learned(policy, value, targets), measured


@partial(jax.jit, static_argnames="config")
def measure_noise(
    config: Config,
    policy: Layers,
    spread: float,
    key: jax.Array,
    replay: TransitionReplay,
    bounds: Bounds,
    scale: Scale,
) -> tuple[jax.Array, jax.Array]:
    """A new key, and √mean (π(s) − π̃(s))² over a batch, where π̃ has freshly drawn noise."""
    key, rows, noise = jax.random.split(key, 3)
    batch = off_policy.draw(rows, replay, bounds, config.batch_size, True)
    x = normalize.observations(scale, batch.observation, CLIP)
    moved = []
    for i, layer in enumerate(policy):
        first, second = jax.random.split(jax.random.fold_in(noise, i))
        weight = layer.weight + spread * jax.random.normal(first, layer.weight.shape)
        bias = layer.bias + spread * jax.random.normal(second, layer.bias.shape)
        moved.append(layer._replace(weight=weight, bias=bias))
    apart = off_policy.deterministic_action(policy, x) - off_policy.deterministic_action(moved, x)
    return key, jnp.sqrt(jnp.mean(jnp.square(apart)))


def adapt(spread: float, distance: float, goal: float) -> float:
    """σ·1.01 if the noise changes actions by less than the goal, else σ/1.01."""
    return spread * 1.01 if distance < goal else spread / 1.01
