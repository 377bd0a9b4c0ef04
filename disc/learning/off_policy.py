"""Shared parts of DDPG, TD3, SAC and SQL: state, random exploration, storing, updating.

Each algorithm supplies `learn`, one gradient step of all its networks on one batch; `improve`
compiles all gradient steps of an update into one call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple, Self, SupportsFloat, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from disc import seeding
from disc.learning import device, memory, networks, normalize, optim
from disc.learning import replay as replays
from disc.learning.config import OffPolicyConfig
from disc.learning.networks import Layers
from disc.learning.types import Normalizer, Scale, TransitionReplay
from disc.policy.policies import Uniform
from disc.types import Actor, DiscError, Measured, Rollout, Spec

ADAM_EPSILON = 1e-8  # all originals


class Bounds(NamedTuple):
    """Action bounds: center ± reach. Networks use actions scaled to ±1."""

    center: jax.Array  # (D,)
    reach: jax.Array  # (D,)


@dataclass(frozen=True)
class OffPolicy:
    """Everything that changes during a run, except the environments; and the action bounds."""

    learned: Any  # everything a gradient step changes: `Learned` of the algorithm
    normalizer: Normalizer
    replay: TransitionReplay
    bounds: Bounds
    key: jax.Array  # (2,) uint32: source of all noise in updates; split at each use
    seed: int  # all other randomness derives from the seed and these counters
    step: int  # environment steps taken
    iteration: int  # updates done
    loaded: bool  # the networks come from another run, so no random steps are needed

    @property
    def policy(self) -> optim.Learner:
        """The policy and its optimiser."""
        return self.learned.policy

    @property
    def value(self) -> optim.Learner:
        """The critics and their optimiser."""
        return self.learned.value

    def parameters(self) -> dict[str, Any]:
        """The networks stored in a policy file: all but the targets."""
        learners = self.learned._asdict().items()
        return {name: x.parameters for name, x in learners if isinstance(x, optim.Learner)}

    def start_from(self, parameters: dict[str, Any], normalizer: Normalizer) -> Self:
        """This initial state with the networks and statistics of another run."""
        learned = self.learned.at(**parameters)
        return replace(self, learned=learned, normalizer=normalizer, loaded=True)


State = TypeVar("State", bound=OffPolicy)


def init(
    config: OffPolicyConfig, spec: Spec, num_envs: int, seed: int, learned: Any
) -> dict[str, Any]:
    """The fields of an initial `OffPolicy`.

    Raises:
        DiscError: the actions are unbounded, or the replay does not fit into memory.
    """
    low, high = (x.astype(np.float64) for x in (spec.action_low, spec.action_high))
    reach = (high - low) / 2.0
    if not np.all((reach > 0.0) & (reach < 1e30)):
        raise DiscError(
            "this algorithm needs actions with bounds, but this environment has none; wrap it so "
            "that its action space is a Box with finite bounds and low below high."
        )
    memory.check_transitions(config, spec)
    key = jax.random.PRNGKey(seed % 2**32)
    if seed >= 2**32:  # seeds have up to 64 bits
        key = jax.random.fold_in(key, seed >> 32)
    return {
        "learned": learned,
        "normalizer": normalize.init(spec.observation_size, num_envs),
        "replay": replays.init_transitions(config.replay_size, spec),
        "bounds": Bounds(*(device.put(x, np.float32) for x in ((low + high) / 2.0, reach))),
        "key": key,
        "seed": seed,
        "step": 0,
        "iteration": 0,
        "loaded": False,
    }


def generator(seed: int) -> np.random.Generator:
    """The generator of the initial weights."""
    return seeding.generator(seed, seeding.NETWORKS)


def policy_fields(spec: Spec, state: OffPolicy, layers: Layers) -> dict[str, Any]:
    """The fields that the policies of all four algorithms share."""
    scale = normalize.scale(state.normalizer)
    return {
        "weights": tuple(np.asarray(layer.weight) for layer in layers),
        "biases": tuple(np.asarray(layer.bias) for layer in layers),
        "observation_mean": scale.mean,
        "observation_inverse_std": scale.inverse_std,
        "observation_shape": spec.observation_shape,
        "action_low": spec.action_low,
        "action_high": spec.action_high,
        "action_shape": spec.action_shape,
    }


def explore(
    act: Callable[[Any, Spec, Any], Actor], config: OffPolicyConfig, spec: Spec, state: OffPolicy
) -> Actor:
    """The behaviour policy of the next steps: uniformly random at first, then the current one."""
    if state.step < config.unlearned and not state.loaded:
        return Uniform(spec.action_low, spec.action_high, spec.action_shape)
    return act(config, spec, state)


def observe(config: OffPolicyConfig, state: State, rollout: Rollout) -> State:
    """The state after a rollout, with its steps stored."""
    return replace(
        state,
        replay=replays.push_transitions(state.replay, rollout),
        step=state.step + len(rollout.reward),
    )


class Batch(NamedTuple):
    """Stored steps, as passed to a loss."""

    observation: jax.Array  # (B, S)
    action: jax.Array  # (B, D) within ±1
    reward: jax.Array  # (B,)
    next_observation: jax.Array  # (B, S)
    final: jax.Array  # (B,) bool: no bootstrapping


def draw(
    key: jax.Array,
    replay: TransitionReplay,
    bounds: Bounds,
    size: int,
    bootstrap_time_limits: bool,
) -> Batch:
    """Draw `size` stored steps, uniformly and with replacement."""
    filled = jnp.minimum(replay.stored, len(replay.reward))
    row = jax.random.randint(key, (size,), 0, filled)
    terminated, truncated = replay.terminated[row], replay.truncated[row]
    return Batch(
        observation=replay.observation[row],
        action=(replay.action[row] - bounds.center[None]) / bounds.reach[None],
        reward=replay.reward[row],
        next_observation=replay.next_observation[row],
        final=terminated if bootstrap_time_limits else terminated | truncated,
    )


Means = dict[str, jax.Array]


Step = Callable[[Any, Any, Batch, jax.Array, Scale], tuple[Any, Means]]
"""(config, learned, batch, key, scale) → learned, measured. If K = 1, None means unchanged."""


def improve(config: Any, state: State, learn: Step, wait: bool = True) -> tuple[State, Measured]:
    """K gradient steps, each on a separate batch; none in the first `random_steps` steps.

    Args:
        config: the options.
        state: the current state.
        learn: one gradient step.
        wait: block until the update is done. If False, the next steps are sampled meanwhile, which
            requires that the update does not change the policy.

    Returns:
        The state after the update, and metrics, averaged over the gradient steps.
    """
    if state.step <= config.unlearned:
        return replace(state, iteration=state.iteration + 1), {}
    clock = time.perf_counter()
    scale = normalize.scale(state.normalizer)
    changed, key, measured = descend(
        learn, config, state.learned, state.key, state.replay, state.bounds, scale
    )
    kept = {name: new for name, new in changed._asdict().items() if new is not None}
    state = replace(
        state, learned=state.learned._replace(**kept), key=key, iteration=state.iteration + 1
    )
    metrics: dict[str, SupportsFloat] = {**measured}
    if wait:
        metrics = {name: float(value) for name, value in measured.items()}
    return state, {**metrics, "time/updating": time.perf_counter() - clock}


Critics = Callable[[Any, Any, Batch, jax.Array], tuple[Any, Means]]
"""(config, learned, batch, key) → learned, measured: updates the critics, counts `updates`."""
Policies = Callable[[Any, Batch, Any], tuple[Any, jax.Array]]
"""(config, batch, learned) → learned, objective: updates the policy and the targets."""


def improve_delayed(
    config: Any, state: State, critics: Critics, policy: Policies
) -> tuple[State, Measured]:
    """`improve` that updates the policy at every `config.policy_delay`-th gradient step only.

    With one gradient step per update, there are two programs, with and without the policy update.
    While the one without it runs, the next steps are sampled, as the policy does not change.
    """
    if config.updates > 1:
        return improve(config, state, _delayed(critics, policy, "if due"))
    due = (int(state.learned.updates) + 1) % config.policy_delay == 0
    learn = _delayed(critics, policy, "always" if due else "never")
    return improve(config, state, learn, wait=due)


@cache  # returns the same function, so that it is compiled once
def _delayed(
    critics: Critics, policy: Policies, when: Literal["always", "never", "if due"]
) -> Step:
    def learn(
        config: Any, learned: Any, batch: Batch, key: jax.Array, scale: Scale
    ) -> tuple[Any, Means]:
        learned, measured = critics(config, learned, batch, key)
        if when == "never":  # None means unchanged and avoids a copy
            return learned._replace(policy=None, targets=None), measured
        if when == "always":
            learned, objective = policy(config, batch, learned)
            return learned, {"train/objective": objective, **measured}
        due = learned.updates % config.policy_delay == 0
        move = partial(policy, config, batch)
        learned, objective = jax.lax.cond(due, move, lambda x: (x, jnp.zeros(())), learned)
        # makes the mean over a multiple of the delay correct
        return learned, {"train/objective": config.policy_delay * objective, **measured}

    return learn


@partial(jax.jit, static_argnames=("learn", "config"))
def descend(
    learn: Step,
    config: Any,
    learned: Any,
    key: jax.Array,
    replay: TransitionReplay,
    bounds: Bounds,
    scale: Scale,
) -> tuple[Any, jax.Array, Means]:
    """All gradient steps of an update."""

    def step(carry: tuple[Any, jax.Array], _: None) -> tuple[tuple[Any, jax.Array], Means]:
        learned, key = carry
        key, rows, noise = jax.random.split(key, 3)
        batch = draw(rows, replay, bounds, config.batch_size, config.bootstrap_time_limits)
        learned, measured = learn(config, learned, batch, noise, scale)
        return (learned, key), measured

    if config.updates == 1:
        (learned, key), measured = step((learned, key), None)
    else:
        (learned, key), measured = jax.lax.scan(step, (learned, key), length=config.updates)
        measured = jax.tree.map(jnp.mean, measured)
    return learned, key, measured


def target(
    batch: Batch, next_value: jax.Array, gamma: float, reward_scale: float = 1.0
) -> jax.Array:
    """The target c·r + γ V(s'), V = 0 where `final`, (B,); without gradient."""
    follows = jnp.where(batch.final, 0.0, next_value)
    return jax.lax.stop_gradient(reward_scale * batch.reward + gamma * follows)


def q_values(critics: Sequence[Layers], observation: jax.Array, action: jax.Array) -> jax.Array:
    """Q(s, a) of each critic, (C, M) or (C, M, K)."""
    return jnp.stack([networks.q_value(critic, observation, action) for critic in critics])


def least(critics: Sequence[Layers], observation: jax.Array, action: jax.Array) -> jax.Array:
    """min_i Q_i(s, a), (M,) or (M, K)."""
    return jnp.min(q_values(critics, observation, action), axis=0)


def value_loss(
    critics: Sequence[Layers], observation: jax.Array, action: jax.Array, y: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Σ_i mean (Q_i(s, a) − y)², and the mean Q of the critics."""
    found = q_values(critics, observation, action)
    return jnp.sum(jnp.mean(jnp.square(found - y[None]), axis=1)), jnp.mean(found)


def deterministic_action(policy: Layers, observation: jax.Array) -> jax.Array:
    """π(s) = tanh(network(s)): (M, S) → (M, D), within ±1."""
    return jnp.tanh(networks.forward(policy, observation, jax.nn.relu))


def policy_loss(policy: Layers, critic: Layers, observation: jax.Array) -> jax.Array:
    """−mean Q(s, π(s)), whose gradient is the deterministic policy gradient."""
    action = deterministic_action(policy, observation)
    return -jnp.mean(networks.q_value(critic, observation, action))


class Targets(NamedTuple):
    """Target networks of an algorithm with a deterministic policy."""

    policy: Any
    value: Any


def rest(policy: Any, value: Any) -> tuple[optim.Learner, optim.Learner, Targets]:
    """Initial learners of both networks, and targets with the same parameters."""
    return optim.init(policy), optim.init(value), Targets(policy, value)


def follow(targets: Any, parameters: Any, tau: float) -> Any:
    """Target networks (1 − τ) θ' + τ θ."""
    return jax.tree.map(lambda old, new: (1.0 - tau) * old + tau * new, targets, parameters)
