"""Trust-PCL (Nachum et al., 2018): off-policy path consistency learning with relative entropy.

The policy and the value network are trained together until every stored path of d steps is
consistent: the value at its start equals the rewards along it, minus λ times the divergence of the
policy from its lagging copy, plus the value at its end.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from disc.equations import path_consistency
from disc.learning import actor_critic, memory, networks, optim
from disc.learning import replay as replays
from disc.learning.actor_critic import Networks
from disc.learning.config import GaussianConfig
from disc.learning.distribution import Acting, GaussianPolicy
from disc.learning.networks import MLP
from disc.learning.types import ChunkReplay, Normalizer
from disc.options import Checker
from disc.types import Floats, Metrics, Rollout, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "trust-pcl"
AGENT = "TrustPCL"

ADAM_EPSILON = 2e-4  # published code
FIRST_LAMBDA = 500.0  # target of λ until 9 episodes have ended (published code)


@dataclass(frozen=True)
class Config(GaussianConfig):
    """Options of Trust-PCL."""

    normalizes_observations: ClassVar[bool] = False
    normalizes_rewards: ClassVar[bool] = False

    horizon: int = 1000
    """N: environment steps between updates, over all environments; the original uses 10, which
    needs one call per gradient step."""
    gamma: float = 0.995
    """Discount factor γ (published command)."""
    widths: tuple[int, ...] = (256, 256)
    """Hidden layer sizes of the policy and the value network (published command)."""
    path_length: int = 10
    """d: steps in a path (published: 1, 5 or 10 by task; 10 chosen by our runs on Hopper)."""
    path_stride: int | None = None
    """Steps between the starts of paths in a chunk: 1 in the published code. By default each path
    starts where the last one ended, which is faster (ours)."""
    chunk_length: int = 10
    """T: steps in a stored chunk (published command)."""
    replay_chunks: int = 5000
    """Chunks in the replay (published command)."""
    batch_chunks: int = 64
    """Chunks per gradient step; there is one gradient step per collected chunk (published
    command)."""
    recency: float = 1e-3
    """A chunk is drawn with probability ∝ exp(recency · its number) (published command)."""
    learning_rate: float = 1e-4
    """Adam's learning rate (published command)."""
    max_gradient_norm: float = 40.0
    """The joint gradient of both networks is clipped to this norm (published command)."""
    residual_clip: float = 1.0
    """C is clipped to ± this (published command)."""
    divergence: float = 1e-3
    """ε: λ is chosen so that the policy may change by this KL per step (published command; 5e-4
    and 2e-3 are also reported to work well)."""
    lambda_episodes: int = 20
    """Number of recent episodes whose returns determine λ (ours; the published code keeps 100)."""
    entropy_weight: float = 0.0
    """τ: weight of the entropy (published command)."""
    target_decay: float = 0.99
    """Decay of the target networks, and of λ, per gradient step (published command)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.at_least(1, "path_length", "chunk_length")
        check.at_least(1, "replay_chunks", "batch_chunks")
        check.at_least(2, "lambda_episodes")
        check.at_least(0, "recency", "entropy_weight")
        check.above_zero("divergence", "max_gradient_norm", "residual_clip")
        check.rate("learning_rate")
        check.within(0, 1, "target_decay")
        length = self.chunk_length
        check("path_length", self.path_length <= length, f"at most chunk_length, {length}")
        if self.path_stride is not None:
            check.within(1, self.path_length, "path_stride")
        check("horizon", self.horizon % length == 0, f"divisible by chunk_length, {length}")


class Pair(NamedTuple):
    """Both networks, or their targets, which are exponential averages."""

    policy: GaussianPolicy
    value: MLP


@dataclass(frozen=True)
class State(Networks):
    """Everything that changes during a run of Trust-PCL; its normaliser stays empty."""

    replay: ChunkReplay
    targets: Pair
    lam: float  # λ
    returns: Floats  # (K,) of the last episodes, the newest last; padded with NaN
    lengths: Floats  # (K,) and their lengths

    def start_from(self, parameters: dict[str, Any], normalizer: Normalizer) -> Self:
        """This initial state with the networks of another run, targets included."""
        state = super().start_from(parameters, normalizer)
        return dataclasses.replace(state, targets=Pair(**parameters))


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state; the value network's inputs are [1, s, s²]."""
    size = spec.observation_size
    memory.check_chunks(config, spec)
    policy, value = actor_critic.init_networks(config, spec, seed, 1 + 2 * size, value_gain=0.01)
    assert isinstance(policy, GaussianPolicy), "Training refuses discrete actions"
    return State(
        **actor_critic.init_fields(policy, value, spec, num_envs, seed),
        replay=replays.init_chunks(config.replay_chunks, config.chunk_length, spec),
        targets=Pair(policy, value),
        lam=0.0,
        returns=np.full(config.lambda_episodes, np.nan, np.float32),
        lengths=np.full(config.lambda_episodes, np.nan, np.float32),
    )


def explore(config: Config, spec: Spec, state: State) -> Acting:
    """The behaviour policy of the next rollout, which samples actions."""
    return act(config, spec, state)


def observe(config: Config, state: State, rollout: Rollout) -> State:
    """The state after a rollout, with its chunks and returns stored."""
    count = config.lambda_episodes
    return dataclasses.replace(
        state,
        replay=replays.push_chunks(state.replay, rollout),
        returns=np.concatenate([state.returns, rollout.returns])[-count:],
        lengths=np.concatenate([state.lengths, rollout.lengths])[-count:],
        step=state.step + len(rollout.reward),
    )


def update(config: Config, state: State, threads: int) -> tuple[State, Metrics]:
    """One gradient step per collected chunk, while λ moves towards its target."""
    clock = time.perf_counter()
    goal = lambda_goal(config, state.returns, state.lengths)
    drawn = replays.draw_recent(
        state.generator(),
        np.asarray(state.replay.number),
        config.recency,
        (config.horizon // config.chunk_length, config.batch_chunks),
    )
    carry = Carry(state.policy, state.value, state.targets, np.float32(state.lam))
    carry, measured = jax.block_until_ready(descend(config, carry, state.replay, drawn, goal))
    metrics = {
        **{name: float(np.mean(values)) for name, values in measured.items()},
        "train/lambda": float(carry.lam),
        "train/lambda_goal": goal,
        **carry.policy.parameters.describe(),
        "time/updating": time.perf_counter() - clock,
    }
    state = dataclasses.replace(
        state,
        policy=carry.policy,
        value=carry.value,
        targets=carry.targets,
        lam=float(carry.lam),
        iteration=state.iteration + 1,
    )
    return state, metrics


def act(config: Config, spec: Spec, state: State) -> Acting:
    """The current policy; observations are not normalised."""
    return dataclasses.replace(actor_critic.act(config, spec, state), observation_clip=None)


def lambda_goal(config: Config, returns: Floats, lengths: Floats) -> float:
    """The target of λ: the implied KL of the last episodes is ε times their mean length."""
    known = ~np.isnan(returns)
    if np.sum(known) < min(9, config.lambda_episodes):
        return FIRST_LAMBDA
    divergence = config.divergence * float(np.mean(lengths[known]))
    return path_consistency.solve_lambda(returns[known], divergence)


class Carry(NamedTuple):
    """The state passed from one gradient step to the next."""

    policy: optim.Learner
    value: optim.Learner
    targets: Pair
    lam: Any  # () λ


@partial(jax.jit, static_argnames="config")
def descend(
    config: Config, carry: Carry, replay: ChunkReplay, drawn: jax.Array, goal: float
) -> tuple[Carry, dict[str, jax.Array]]:
    """All gradient steps of an iteration; `drawn` has the slots of each, (steps, B)."""
    decay = config.target_decay

    def step(carry: Carry, slots: jax.Array) -> tuple[Carry, dict[str, jax.Array]]:
        lam = decay * carry.lam + (1.0 - decay) * goal
        chunks = jax.tree.map(lambda x: x[slots], replay)
        both = Pair(carry.policy.parameters, carry.value.parameters)
        gradient, measured = jax.grad(partial(loss, config), has_aux=True)(
            both, carry.targets, chunks, lam
        )
        norm = optim.norm(gradient)
        limited = jnp.minimum(1.0, config.max_gradient_norm / jnp.maximum(norm, 1e-30))
        gradient = jax.tree.map(lambda g: limited * g, gradient)
        rate = config.learning_rate
        policy = optim.step(carry.policy, gradient.policy, rate, ADAM_EPSILON)
        value = optim.step(carry.value, gradient.value, rate, ADAM_EPSILON)
        targets = jax.tree.map(
            lambda old, new: decay * old + (1.0 - decay) * new,
            carry.targets,
            Pair(policy.parameters, value.parameters),
        )
        measured = {**measured, "train/gradient_norm": norm}
        return Carry(policy, value, targets, lam), measured

    return jax.lax.scan(step, carry, drawn)


def loss(
    config: Config, both: Pair, targets: Pair, chunks: ChunkReplay, lam: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean over chunks of Σ_t −C_t Σ_i γ^i log π(a_{t+i}|s_{t+i}) − C_t V(s_t), C_t constant.

    Its gradient is that of ½ C_t² with C clipped, except that target networks are not
    differentiated and the policy's part lacks the factor τ + λ.
    """
    shape = chunks.reward.shape

    def flat(x: jax.Array) -> jax.Array:
        return x.reshape(-1, x.shape[-1])

    def log_density(policy: GaussianPolicy) -> tuple[jax.Array, jax.Array]:
        mean = policy.output(flat(chunks.observation))
        return policy.log_density(flat(chunks.action), mean).reshape(shape), mean

    log_pi, mean = log_density(both.policy)
    log_pi_target, target_mean = log_density(targets.policy)
    gamma, d = config.gamma, config.path_length
    ended = chunks.terminated | chunks.truncated
    end = (ended | chunks.border).at[:, -1].set(True)
    start = path_consistency.path_start(end, d, config.path_stride)
    real, start = start < shape[1], jnp.minimum(start, shape[1] - 1)
    last = jnp.take_along_axis(path_consistency.path_end(end, d), start, axis=1)

    def values_at(mlp: MLP, observation: jax.Array, step: jax.Array) -> jax.Array:
        found = jnp.take_along_axis(observation, step[:, :, None], axis=1)
        return values(mlp, flat(found)).reshape(step.shape)

    value = values_at(both.value, chunks.observation, start)
    final = chunks.terminated if config.bootstrap_time_limits else ended
    last_value = jnp.where(
        jnp.take_along_axis(final, last, axis=1),
        0.0,
        values_at(targets.value, chunks.next_observation, last),
    )
    penalty = config.entropy_weight * log_pi + lam * (log_pi - log_pi_target)
    residual = jax.lax.stop_gradient(
        path_consistency.residual(chunks.reward - penalty, value, last_value, start, end, gamma, d)
    )
    bound = config.residual_clip
    clipped = jnp.where(real, jnp.clip(residual, -bound, bound), 0.0)
    sum_log_pi = jnp.take_along_axis(
        path_consistency.path_sum(log_pi, end, gamma, d), start, axis=1
    )
    objective = clipped * (sum_log_pi + value)
    kl = both.policy.kl(mean, target_mean, targets.policy.log_std[None])

    def over(x: jax.Array) -> jax.Array:
        return jnp.mean(x, where=real)

    variance = jnp.var(value + residual, where=real)
    measured = {
        "train/objective": over(objective),
        "train/value_loss": 0.5 * over(jnp.square(residual)),
        "train/residual": over(jnp.abs(residual)),
        "train/residual_clipped": over((jnp.abs(residual) > bound).astype(jnp.float32)),
        "train/explained_variance": 1.0
        - jnp.var(residual, where=real) / jnp.maximum(variance, 1e-8),
        "is/kl": jnp.mean(kl),
    }
    return -jnp.mean(jnp.sum(objective, axis=1)), measured


def values(value: MLP, observation: jax.Array) -> jax.Array:
    """V(s) from the features [1, s, s²]: (M, S) → (M,)."""
    one = jnp.ones_like(observation[:, :1])
    features = jnp.concatenate([one, observation, jnp.square(observation)], axis=1)
    return networks.forward(value, features)[:, 0]
