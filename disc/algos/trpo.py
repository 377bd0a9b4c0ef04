"""TRPO (Schulman et al., 2015): one natural-gradient step per batch, limited by the KL."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from disc.algos.ppo import estimate
from disc.equations import clipping
from disc.learning import actor_critic, minibatch, networks, optim
from disc.learning.actor_critic import ActorCritic, act, explore, observe
from disc.learning.config import GaussianConfig
from disc.learning.distribution import GaussianPolicy
from disc.learning.networks import MLP
from disc.learning.types import Parts, Rows
from disc.options import Checker
from disc.types import Metrics, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "trpo"
AGENT = "TRPO"

KL_SLACK = 1.5  # a step is accepted up to this many times the limit (published code)


@dataclass(frozen=True)
class Config(GaussianConfig):
    """Options of TRPO."""

    horizon: int = 1024
    """N: environment steps in a batch, over all environments (published code)."""
    widths: tuple[int, ...] = (32, 32)
    """Hidden layer sizes of the policy and the value network (published code)."""
    lam: float = 0.98
    """λ of the advantage estimator (published code)."""
    max_kl: float = 0.01
    """Limit on the mean KL(π_old ‖ π) of a step (published code)."""
    cg_iterations: int = 10
    """Iterations of conjugate gradients (published code)."""
    cg_damping: float = 0.1
    """Added to the Fisher matrix's diagonal (published code)."""
    fisher_stride: int = 5
    """The Fisher matrix is estimated from every n-th sample (published code)."""
    line_search_steps: int = 10
    """Step lengths that the line search tries, each half the last (published code)."""
    value_epochs: int = 5
    """Passes of the value network over the batch (published code)."""
    value_minibatch: int = 64
    """Samples per gradient step of the value network (published code)."""
    value_learning_rate: float = 1e-3
    """Adam's learning rate for the value network (published code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.within(0, 1, "lam")
        check.at_least(1, "cg_iterations", "fisher_stride", "line_search_steps")
        check.at_least(1, "value_epochs", "value_minibatch")
        check.above_zero("max_kl", "cg_damping")
        check.rate("value_learning_rate")
        size = self.value_minibatch
        check("horizon", self.horizon % size == 0, f"divisible by value_minibatch, {size}")


@dataclass(frozen=True)
class State(ActorCritic):
    """Everything that changes during a run of TRPO; its policy has no optimiser."""


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state; the replay holds the newest batch only."""
    state = State(**actor_critic.init(config, 1, spec, num_envs, seed))
    return replace(state, policy=state.policy._replace(moments=()))


def update(config: Config, state: State, threads: int) -> tuple[State, Metrics]:
    """One iteration of TRPO."""
    clock = time.perf_counter()
    table = actor_critic.read(config, state, estimate)
    was_read = time.perf_counter()
    steps = config.horizon // config.value_minibatch
    drawn = minibatch.draw(
        state.generator(),
        np.asarray(state.replay.age),
        np.asarray(table.estimate.included),
        config.horizon,
        config.value_epochs,
        steps,
    )
    (policy, measured), (value, value_measured) = minibatch.together(
        threads,
        lambda: natural_step(config, state.policy.parameters, minibatch.whole(table)),
        lambda: minibatch.descend(
            value_loss,
            config,
            config.value_minibatch,
            state.value,
            table,
            drawn,
            config.value_learning_rate,
            (),
        ),
    )
    metrics = {
        **{name: float(x) for name, x in measured.items()},
        "train/value_loss": float(np.mean(value_measured["value_loss"])),
        **{name: float(x) for name, x in table.estimate.measured.items()},
        **policy.describe(),
        "time/reading": was_read - clock,
        "time/updating": time.perf_counter() - was_read,
    }
    state = replace(
        state,
        policy=state.policy._replace(parameters=policy),
        value=value,
        iteration=state.iteration + 1,
    )
    return state, metrics


@partial(jax.jit, static_argnames="config")
def natural_step(
    config: Config, policy: GaussianPolicy, rows: Rows
) -> tuple[GaussianPolicy, dict[str, jax.Array]]:
    """θ + fraction · x √(2 max_kl / xᵀFx), with F x = ∇ mean(ρÂ)."""
    theta, unravel = ravel_pytree(policy)

    def objective(theta: jax.Array) -> jax.Array:
        return actor_critic.measure_step(unravel(theta), rows)["train/objective"]

    def fisher(v: jax.Array) -> jax.Array:
        some = rows.observation[:: config.fisher_stride]
        return fisher_product(unravel, theta, some, v) + config.cg_damping * v

    x = optim.conjugate_gradient(fisher, jax.grad(objective)(theta), config.cg_iterations)
    full = x * jnp.sqrt(2.0 * config.max_kl / jnp.vdot(x, fisher(x)))

    def judge(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        measured = actor_critic.measure_step(unravel(theta), rows)
        return measured["train/objective"], measured["is/kl"]

    found, fraction = line_search(
        judge, theta, full, KL_SLACK * config.max_kl, config.line_search_steps
    )
    measured = actor_critic.measure_step(unravel(found), rows)
    gained = measured["train/objective"] - objective(theta)
    return unravel(found), {
        **measured,
        "train/step_fraction": fraction,
        "train/improvement": gained,
    }


def fisher_product(
    unravel: Callable[[jax.Array], GaussianPolicy], theta: jax.Array, x: jax.Array, v: jax.Array
) -> jax.Array:
    """F v, where F is the Hessian of mean KL(π_θ ‖ π_θ') in θ' at θ; forward-over-reverse mode.

    Args:
        unravel: parameters (P,) → policy.
        theta: θ, (P,).
        x: observations, (M, S).
        v: (P,).
    """
    here = unravel(theta)
    mean = here.output(x)

    def kl(theta: jax.Array) -> jax.Array:
        there = unravel(theta)
        return jnp.mean(there.kl(there.output(x), mean, here.log_std[None]))

    return jax.jvp(jax.grad(kl), (theta,), (v,))[1]


def line_search(
    judge: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    theta: jax.Array,
    full: jax.Array,
    kl_limit: float,
    steps: int,
) -> tuple[jax.Array, jax.Array]:
    """The longest of full, full/2, full/4, … that does not lower the objective or exceed the limit.

    Args:
        judge: θ ↦ (objective to maximise, KL).
        theta: where to start, (P,).
        full: the longest step, (P,).
        kl_limit: the maximum KL.
        steps: number of lengths to try.

    Returns:
        The new θ and the fraction of `full` taken; the old θ and 0 if no length is acceptable.
    """
    start, _ = judge(theta)

    def searching(carry: tuple[Any, Any]) -> jax.Array:
        i, accepted = carry
        return (i < steps) & ~accepted

    def attempt(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        i, _ = carry
        objective, kl = judge(theta + 0.5**i * full)
        good = jnp.isfinite(objective) & (objective >= start) & (kl <= kl_limit)
        return jnp.where(good, i, i + 1), good

    i, accepted = jax.lax.while_loop(searching, attempt, (0, jnp.bool_(False)))
    fraction = jnp.where(accepted, 0.5**i, 0.0)
    return jnp.where(accepted, theta + fraction * full, theta), fraction


def value_loss(config: Config, value: MLP, rows: Rows, _: Any) -> Parts:
    """½ mean (V − target)²."""
    predicted = networks.forward(value, rows.observation)[:, 0]
    loss = clipping.clipped_value_loss(predicted, rows.target, rows.value, None)
    return Parts(jnp.sum(rows.mask * loss), jnp.sum(rows.mask), 0.0, {"value_loss": loss})
