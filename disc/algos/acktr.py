"""ACKTR (Wu et al., 2017): natural gradients for policy and value, Kronecker-factored (K-FAC)."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from disc.algos.ppo import estimate
from disc.learning import actor_critic, kfac, minibatch, networks
from disc.learning.actor_critic import ActorCritic, act, explore, observe
from disc.learning.config import GaussianConfig
from disc.learning.distribution import GaussianPolicy
from disc.learning.networks import MLP
from disc.learning.optim import Learner
from disc.learning.types import Rows
from disc.options import Checker
from disc.types import Metrics, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "acktr"
AGENT = "ACKTR"

STEP_SIZES = (1e-8, 1.0)  # bounds of the policy's step size (published code)


@dataclass(frozen=True)
class Config(GaussianConfig):
    """Options of ACKTR."""

    horizon: int = 2500
    """N: environment steps in a batch, over all environments (published code)."""
    clip_actions: bool = False
    """Clip actions to their bounds before passing them to the environment (ours; the original
    maps [−1, 1] to the bounds and clips)."""
    lam: float = 0.97
    """λ of the advantage estimator (published code)."""
    step_size: float = 0.03
    """The policy's initial step size, which then adapts to the KL (published code)."""
    target_kl: float = 0.002
    """Target KL(π_old ‖ π) per step: the step size shrinks above twice this and grows below half
    (published code)."""
    kl_clip: float = 0.01
    """Trust region of the policy, which sets ν (published code)."""
    damping: float = 0.01
    """Added to the eigenvalues of the policy's Fisher matrix (published code)."""
    decay: float = 0.99
    """Decay of the running averages of the policy's factors (published code)."""
    value_steps: int = 25
    """Steps of the value network per batch (published code)."""
    value_learning_rate: float = 0.001
    """The value network's step size (published code)."""
    value_kl_clip: float = 0.3
    """Trust region of the value network (published code)."""
    value_damping: float = 0.1
    """Added to the eigenvalues of the value network's Fisher matrix (published code)."""
    value_decay: float = 0.95
    """Decay of the running averages of the value network's factors (published code)."""
    momentum: float = 0.9
    """Momentum of both networks (published code)."""
    decompose_every: int = 2
    """Steps between eigendecompositions of the factors (published code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.within(0, 1, "lam")
        check.below_one("decay", "value_decay", "momentum")
        check.at_least(1, "value_steps", "decompose_every")
        check.within(*STEP_SIZES, "step_size")
        check.rate("value_learning_rate")
        check.above_zero("target_kl", "kl_clip", "damping", "value_kl_clip", "value_damping")


@dataclass(frozen=True)
class State(ActorCritic):
    """Everything that changes during a run of ACKTR."""

    step_size: float


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state; the replay holds the newest batch only."""
    fields = actor_critic.init(config, 1, spec, num_envs, seed)
    policy, value = fields["policy"].parameters, fields["value"].parameters
    fields["policy"] = kfac.init(policy, policy.mean)
    fields["value"] = kfac.init(value, value)
    return State(**fields, step_size=config.step_size)


def update(config: Config, state: State, threads: int) -> tuple[State, Metrics]:
    """One iteration of ACKTR; then the step size adapts to the KL."""
    clock = time.perf_counter()
    table = actor_critic.read(config, state, partial(estimate, activation=jax.nn.elu))
    rows = minibatch.whole(table)
    was_read = time.perf_counter()
    noise = state.generator().standard_normal((config.value_steps, config.horizon), np.float32)
    (policy, measured), (value, value_measured) = minibatch.together(
        threads,
        lambda: policy_step(config, state.policy, rows, state.step_size),
        lambda: value_steps(config, state.value, rows, noise),
    )
    metrics = {
        **{name: float(x) for name, x in measured.items()},
        **{name: float(np.mean(x)) for name, x in value_measured.items()},
        **{name: float(x) for name, x in table.estimate.measured.items()},
        **policy.parameters.describe(),
        "train/step_size": state.step_size,
        "time/reading": was_read - clock,
        "time/updating": time.perf_counter() - was_read,
    }
    state = replace(
        state,
        policy=policy,
        value=value,
        step_size=adapt(state.step_size, metrics["is/kl"], config.target_kl),
        iteration=state.iteration + 1,
    )
    return state, metrics


def adapt(step_size: float, kl: float, target: float) -> float:
    """÷ 1.5 if KL > 2 · target, × 1.5 if KL < target / 2; kept within its bounds."""
    low, high = STEP_SIZES
    if kl > 2.0 * target:
        return max(low, step_size / 1.5)
    return min(high, step_size * 1.5) if kl < target / 2.0 else step_size


@partial(jax.jit, static_argnames="config")
def policy_step(
    config: Config, learner: Learner, rows: Rows, step_size: float
) -> tuple[Learner, dict[str, jax.Array]]:
    """One K-FAC step on −mean(Â log π(a|s)).

    The actions were sampled from this policy, so their log-density also gives the Fisher matrix.
    For log σ it is known exactly: 2 for every dimension.
    """
    policy: GaussianPolicy = learner.parameters

    def loss(policy: GaussianPolicy) -> jax.Array:
        log_pi = policy.log_density(rows.action, policy.output(rows.observation))
        return -jnp.mean(rows.advantage * log_pi)

    gradient = jax.grad(loss)(policy)
    measured = kfac.measure_factors(
        policy.mean,
        rows.observation,
        lambda mean: policy.log_density(rows.action, mean),
        jnp.tanh,
    )
    curvature = kfac.follow(learner.moments, measured, config.decay, config.decompose_every)
    natural = GaussianPolicy(
        kfac.precondition(curvature.bases, gradient.mean, config.damping),
        gradient.log_std / (2.0 + config.damping),
    )
    nu = kfac.trust_factor(natural, gradient, step_size, config.kl_clip)
    natural = jax.tree.map(lambda u: nu * u, natural)
    learner = kfac.step(Learner(policy, curvature), natural, step_size, config.momentum)
    return learner, {**actor_critic.measure_step(learner.parameters, rows), "train/nu": nu}


@partial(jax.jit, static_argnames="config")
def value_steps(
    config: Config, learner: Learner, rows: Rows, noise: jax.Array
) -> tuple[Learner, dict[str, jax.Array]]:
    """K-FAC steps on ½ mean (V − target)², each on the whole batch.

    The Fisher matrix is that of N(V, 1), so it is estimated with sampled targets V + noise.

    Args:
        config: the algorithm's options.
        learner: the value network and its optimiser.
        rows: the batch.
        noise: standard normal, (steps, N).
    """

    def step(learner: Learner, noise: jax.Array) -> tuple[Learner, dict[str, jax.Array]]:
        value: MLP = learner.parameters

        def loss(value: MLP) -> jax.Array:
            predicted = networks.forward(value, rows.observation, jax.nn.elu)[:, 0]
            return 0.5 * jnp.mean(jnp.square(predicted - rows.target))

        now, gradient = jax.value_and_grad(loss)(value)

        def log_likelihood(predicted: jax.Array) -> jax.Array:
            sampled = jax.lax.stop_gradient(predicted[:, 0]) + noise
            return -0.5 * jnp.square(predicted[:, 0] - sampled)

        measured = kfac.measure_factors(value, rows.observation, log_likelihood, jax.nn.elu)
        curvature = kfac.follow(
            learner.moments, measured, config.value_decay, config.decompose_every
        )
        natural = kfac.precondition(curvature.bases, gradient, config.value_damping)
        rate = config.value_learning_rate
        nu = kfac.trust_factor(natural, gradient, rate, config.value_kl_clip)
        natural = jax.tree.map(lambda u: nu * u, natural)
        learner = kfac.step(Learner(value, curvature), natural, rate, config.momentum)
        return learner, {"train/value_loss": now, "train/value_nu": nu}

    return jax.lax.scan(step, learner, noise)
