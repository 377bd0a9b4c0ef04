"""Shared parts of the policy-gradient algorithms: state, acting, reading the replay, metrics.

`improve` is one iteration of PPO, PPO-AMBER and DISC. Each of them supplies two functions:
`estimate`, which reads the replay and selects the batches to learn from, and `policy_loss`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from disc import seeding
from disc.equations import clipping, importance
from disc.learning import distribution, memory, minibatch, networks, normalize, optim
from disc.learning import replay as replays
from disc.learning.distribution import FEW_DIMENSIONS, Acting, Policy
from disc.learning.minibatch import Draw
from disc.learning.networks import MLP
from disc.learning.types import BatchReplay, Estimate, Normalizer, Parts, Rows, Scale, Table
from disc.types import Metrics, Rollout, Spec


@dataclass(frozen=True)
class Networks:
    """Everything that changes during a run, except the replay and the environments."""

    policy: optim.Learner  # of a `distribution.Policy`
    value: optim.Learner  # of an MLP, S → 1
    normalizer: Normalizer
    seed: int  # all randomness derives from the seed and these counters
    step: int  # environment steps taken
    iteration: int  # updates done

    def generator(self) -> np.random.Generator:
        """The generator of this iteration's minibatches."""
        return seeding.generator(self.seed, seeding.MINIBATCHES, self.iteration)

    def parameters(self) -> dict[str, Any]:
        """The networks stored in a policy file."""
        return {"policy": self.policy.parameters, "value": self.value.parameters}

    def start_from(self, parameters: dict[str, Any], normalizer: Normalizer) -> Self:
        """This initial state with the networks and statistics of another run."""
        return replace(
            self,
            policy=self.policy._replace(parameters=parameters["policy"]),
            value=self.value._replace(parameters=parameters["value"]),
            normalizer=normalizer,
        )


@dataclass(frozen=True)
class ActorCritic(Networks):
    """The state of an algorithm that learns from whole rollouts."""

    replay: BatchReplay


State = TypeVar("State", bound=ActorCritic)


def init(config: Any, length: int, spec: Spec, num_envs: int, seed: int) -> dict[str, Any]:
    """The fields of an initial `ActorCritic`."""
    memory.check_batches(config, length, spec)
    policy, value = init_networks(config, spec, seed)
    replay = replays.init(length, config.horizon, spec)
    return {**init_fields(policy, value, spec, num_envs, seed), "replay": replay}


def init_fields(policy: Policy, value: MLP, spec: Spec, num_envs: int, seed: int) -> dict[str, Any]:
    """The fields of initial `Networks`; both use Adam."""
    return {
        "policy": optim.init(policy),
        "value": optim.init(value),
        "normalizer": normalize.init(spec.observation_size, num_envs),
        "seed": seed,
        "step": 0,
        "iteration": 0,
    }


def init_networks(
    config: Any, spec: Spec, seed: int, value_inputs: int | None = None, value_gain: float = 1.0
) -> tuple[Policy, MLP]:
    """Orthogonal weights, a policy head with gain 0.01; for a Gaussian, σ = 1 or `initial_std`.

    Args:
        config: the options, with the widths.
        spec: the environment's sizes and bounds.
        seed: the run's.
        value_inputs: input size of the value network; S if None.
        value_gain: gain of the value head.
    """
    rng = seeding.generator(seed, seeding.NETWORKS)
    initial_std, halve_std = (getattr(config, x, None) for x in ("initial_std", "halve_std"))
    policy = distribution.init(rng, config.widths, spec, initial_std, bool(halve_std))
    inputs = value_inputs or spec.observation_size
    value = networks.init_mlp(rng, (inputs, *config.widths, 1), head_gain=value_gain)
    return policy, value


def act(config: Any, spec: Spec, state: Networks, noise_color: float = 0.0) -> Acting:
    """The current policy: frozen, in numpy."""
    policy: Policy = state.policy.parameters
    scale = normalize.scale(state.normalizer)
    fields = {
        "observation_mean": scale.mean,
        "observation_inverse_std": scale.inverse_std,
        "observation_clip": normalize.CLIP,
        "observation_shape": spec.observation_shape,
        "action_low": spec.action_low,
        "action_high": spec.action_high,
        "action_shape": spec.action_shape,
        "clip_actions": config.clip_actions,
    }
    return policy.acting(spec, fields, noise_color)


def explore(config: Any, spec: Spec, state: Any) -> Acting:
    """The behaviour policy of the next rollout, which samples actions.

    With `halve_std`, correlated noise needs a termination in the stored batches, as σ does in the
    first batch: it ruins an episode more often than independent noise (see `_halve_std`).
    """
    color = getattr(config, "noise_color", None) or 0.0
    if color and config.halve_std and not np.any(state.replay.terminated):
        color = 0.0
    return act(config, spec, state, color)


def observe(config: Any, state: State, rollout: Rollout) -> State:
    """The state after a rollout, with updated statistics and the batch stored."""
    return replace(
        state,
        policy=_halve_std(config, state, rollout),
        normalizer=normalize.update(state.normalizer, rollout, config.gamma),
        replay=replays.push(state.replay, rollout, state.iteration),
        step=state.step + len(rollout.reward),
    )


def _halve_std(config: Any, state: ActorCritic, rollout: Rollout) -> optim.Learner:
    """The policy, with half its σ if the first batch of a new policy shows the need.

    Without terminations, large noise drives the environment into states from which it does not
    recover (a cheetah on its back), and the policy learns to act there.
    """
    policy: Policy = state.policy.parameters
    few = rollout.action.shape[-1] <= FEW_DIMENSIONS  # otherwise halved by `init_networks`
    first = state.normalizer.observation.samples == 0  # and the policy is not from a file
    if not (few and first and getattr(config, "halve_std", False)) or np.any(rollout.terminated):
        return state.policy
    return state.policy._replace(parameters=policy.with_scaled_std(0.5))


Estimator = Callable[[Any, Policy, MLP, Scale, BatchReplay], Estimate]


def improve(
    config: Any,
    state: State,
    threads: int,
    estimate: Estimator,
    policy_loss: minibatch.Loss,
    coefficients: Any = (),
    policy_rate: float = 1.0,
    most_old: int | None = None,
    value_on_newest: bool = False,
) -> tuple[State, Metrics]:
    """Read the replay, draw the minibatches, and update the policy and the value network.

    Args:
        config: the algorithm's options.
        state: as returned by `observe`.
        threads: with 2 or more, the policy and the value network are updated in parallel.
        estimate: reads the replay.
        policy_loss: computes the loss of some rows.
        coefficients: passed to the policy loss.
        policy_rate: learning rate of the policy as a fraction of the value network's.
        most_old: rows of old batches in a minibatch, at most, as a multiple of the newest's.
        value_on_newest: the value network learns from the newest batch only.

    Returns:
        The state after the iteration, and its metrics.
    """
    clock = time.perf_counter()
    table = read(config, state, estimate)
    found = table.estimate
    was_read = time.perf_counter()

    value_epochs = config.value_epochs or config.epochs
    drawn = minibatch.draw(
        state.generator(),
        np.asarray(state.replay.age),
        np.asarray(found.included),
        config.horizon,
        max(config.epochs, value_epochs),
        config.gradient_steps,
        most_old,
    )
    progressed = state.step - config.horizon
    learning_rate = optim.anneal(
        config.learning_rate, config.learning_rate_floor, progressed, config.anneal_steps
    )
    std_rate = 0.0 if config.final_std else config.std_rate
    rates = state.policy.parameters.rates(policy_rate * learning_rate, std_rate)
    rows = config.horizon // config.gradient_steps
    drawn_for_policy = drawn.first(config.epochs * config.gradient_steps)
    drawn_for_value = drawn.first(value_epochs * config.gradient_steps)
    if value_on_newest:
        drawn_for_value = Draw(drawn_for_value.rows[:, :rows], 1)

    def descend(
        loss: minibatch.Loss, learner: optim.Learner, drawn: Draw, rate: Any, coefficients: Any
    ) -> tuple[optim.Learner, dict[str, jax.Array]]:
        return minibatch.descend(
            loss, config.compiled(), rows, learner, table, drawn, rate, coefficients
        )

    (policy, policy_measured), (value, value_measured) = minibatch.together(
        threads,
        lambda: descend(policy_loss, state.policy, drawn_for_policy, rates, coefficients),
        lambda: descend(value_loss, state.value, drawn_for_value, learning_rate, ()),
    )
    reduced = _reduce_std(config, policy, progressed, state.step)
    metrics = {
        **_summary(config, policy_measured, value_measured),
        **{name: float(x) for name, x in found.measured.items()},
        **reduced.parameters.describe(),
        "train/learning_rate": learning_rate,
        "time/reading": was_read - clock,
        "time/updating": time.perf_counter() - was_read,
    }
    state = replace(state, policy=reduced, value=value, iteration=state.iteration + 1)
    return state, metrics


def _reduce_std(config: Any, learner: optim.Learner, before: int, now: int) -> optim.Learner:
    """σ ← σ · f^(steps taken / `anneal_steps`), with f = `final_std`; unchanged if σ is learned."""
    if not config.final_std:
        return learner
    steps = min(now, config.anneal_steps) - min(before, config.anneal_steps)
    policy: Policy = learner.parameters
    smaller = policy.with_scaled_std(config.final_std ** (steps / config.anneal_steps))
    return learner._replace(parameters=smaller)


def read(config: Any, state: ActorCritic, estimate: Estimator) -> Table:
    """Evaluate the current networks on the replay."""
    scale = normalize.scale(state.normalizer)
    policy, value = state.policy.parameters, state.value.parameters
    found = estimate(config.compiled(), policy, value, scale, state.replay)
    return Table(state.replay, scale, jax.block_until_ready(found))


def value_loss(config: Any, value: MLP, rows: Rows, _: Any) -> Parts:
    """Clipped squared error against the target, times the value coefficient."""
    predicted = networks.forward(value, rows.observation)[:, 0]
    epsilon = config.epsilon if config.value_clip else None
    loss = clipping.clipped_value_loss(predicted, rows.target, rows.value, epsilon)
    return Parts(
        numerator=config.value_coefficient * jnp.sum(rows.mask * loss),
        denominator=jnp.sum(rows.mask),
        penalty=0.0,
        measured={"value_loss": loss},
    )


def ratio_of(policy: Policy, rows: Rows) -> tuple[jax.Array, jax.Array]:
    """Log ρ_{t,d} of some rows under a policy, (M, D), and the output of its network, (M, P)."""
    output = policy.output(rows.observation)
    return policy.log_ratio(rows.action, output, rows.mean, rows.log_std), output


def measure_ratio(
    policy: Policy,
    rows: Rows,
    output: jax.Array,
    log_ratio: jax.Array,
    objective: jax.Array,
    clipped: jax.Array,
) -> dict[str, jax.Array]:
    """Metrics of importance weights at each gradient step, (M,) each.

    Args:
        policy: the current policy.
        rows: the samples.
        output: the policy network's, (M, P).
        log_ratio: log ρ_{t,d}, (M, D).
        objective: clipped w·Â of each sample, (M,).
        clipped: which dimensions have no gradient, (M, D) or (M, 1).
    """
    log_rho = importance.joint(log_ratio)
    return {
        "objective": objective,
        "rho": 1.0 + jnp.abs(importance.ratio(log_rho) - 1.0),
        "rho_d": 1.0 + jnp.mean(jnp.abs(importance.ratio(log_ratio) - 1.0), axis=1),
        "vanished": jnp.all(clipped, axis=1).astype(jnp.float32),
        "clipped_dimensions": jnp.mean(clipped.astype(jnp.float32), axis=1),
        "j_is": 0.5 * jnp.square(log_rho),
        "kl": policy.kl(output, rows.mean, rows.log_std),
        **policy.measure(output),
    }


def measure_step(policy: Policy, rows: Rows) -> dict[str, jax.Array]:
    """Metrics of a step away from the policy that collected the rows; scalars."""
    log_ratio, output = ratio_of(policy, rows)
    log_rho = importance.joint(log_ratio)
    kl = policy.kl(output, rows.mean, rows.log_std)
    return {
        "train/objective": jnp.mean(importance.ratio(log_rho) * rows.advantage),
        "is/kl": jnp.mean(kl),
        "is/j_is": 0.5 * jnp.mean(jnp.square(log_rho)),
        "is/rho_last": 1.0 + importance.deviation(log_rho),
        "is/rho_d_last": 1.0 + importance.deviation(log_ratio),
    }


def _summary(config: Any, policy: dict[str, jax.Array], value: dict[str, jax.Array]) -> Metrics:
    """Means over an iteration's gradient steps, or over those of its last epoch."""

    def over(values: jax.Array, last_epoch: bool = False) -> float:
        steps = np.asarray(values)
        return float(np.mean(steps[-config.gradient_steps :] if last_epoch else steps))

    state_dependent = {"newest/entropy": "train/entropy"}  # of `distribution.Policy.measure`
    return {
        "train/objective": over(policy["objective"]),
        "train/value_loss": over(value["value_loss"]),
        "is/j_is": over(policy["newest/j_is"]),
        "is/kl": over(policy["newest/kl"]),
        "is/rho_last": over(policy["rho"], last_epoch=True),
        "is/rho_d_last": over(policy["rho_d"], last_epoch=True),
        "is/vanished": over(policy["vanished"], last_epoch=True),
        "is/clipped_dimensions": over(policy["clipped_dimensions"], last_epoch=True),
        **{
            name: over(policy[key], last_epoch=True)
            for key, name in state_dependent.items()
            if key in policy
        },
    }
