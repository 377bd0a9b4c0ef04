"""DISC (Han and Sung, 2019): each dimension of the importance weight is clipped separately.

There are three changes from PPO-AMBER. Clipping and the inclusion of old batches use ρ_{t,d}
instead of ρ_t, a penalty J_IS keeps the policy near that of the newest batch, and the advantages
of old batches use V-trace's truncated weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp

from disc.equations import advantages, clipping, importance
from disc.learning import actor_critic, snapshot
from disc.learning.actor_critic import ActorCritic, act, explore, observe
from disc.learning.config import BatchConfig
from disc.learning.distribution import FEW_DIMENSIONS, Policy
from disc.learning.networks import MLP
from disc.learning.types import BatchReplay, Estimate, Parts, Rows, Scale
from disc.options import Checker
from disc.types import Metrics, Spec

__all__ = ["AGENT", "NAME", "Config", "State", "act", "explore", "init", "observe", "update"]

NAME = "disc"
AGENT = "DISC"
FEW: dict[str, Any] = {
    "gamma": 0.995, "final_std": 0.25, "noise_color": 0.5, "epsilon_b": 0.1,
    "value_on_newest": False,
}  # fmt: skip
"""The recommended options for actions of up to 6 dimensions."""
MANY: dict[str, Any] = {
    "gamma": 0.99, "final_std": 0.0, "noise_color": 0.0, "epsilon_b": 0.2,
    "value_on_newest": True,
}  # fmt: skip
"""The recommended options for larger actions."""


@dataclass(frozen=True)
class Config(BatchConfig):
    """Options of DISC."""

    paper: ClassVar[dict[str, Any]] = {
        "epochs": 10, "value_epochs": None, "initial_std": None, "halve_std": False,
        "gamma": 0.99, "final_std": 0.0, "noise_color": 0.0, "epsilon_b": 0.1,
        "center": "behaviour", "most_old": None, "value_on_newest": False, "j_targ": 1e-3,
        "alpha_rule": "double",
    }  # fmt: skip
    removed: ClassVar[dict[str, Any]] = {"trust_region": "alpha", "j_targ_per_dimension": False}
    by_actions: ClassVar[tuple[str, ...]] = tuple(FEW)
    host_only: ClassVar[tuple[str, ...]] = (
        *BatchConfig.host_only, "replay_length", "most_old", "value_on_newest", "j_targ",
        "alpha_is", "alpha_rule",
    )  # fmt: skip

    gamma: float | None = None  # type: ignore[assignment]  # filled in by `for_actions`
    """Discount factor γ (paper, Table A.1: 0.99). By default 0.995, or 0.99 if actions have more
    than 6 dimensions (ours)."""
    epochs: int = 5
    """Passes of the policy over the newest batch per iteration (ours; 10 in the paper, Table A.1).
    """
    value_epochs: int | None = 10
    """Passes of the value network over the newest batch; as many as `epochs` if None (paper)."""
    initial_std: float | None = 1.0
    """Initial σ of each action dimension, as a fraction of half its range (ours). σ starts at 1 if
    the range is infinite or this is None (authors' code)."""
    halve_std: bool = True
    """Halve the initial σ if actions have more than 6 dimensions, or if no episode terminated in
    the first batch; and use independent noise while no episode terminates (ours)."""
    final_std: float | None = None
    """σ is not learned, but falls geometrically over `anneal_steps` to this fraction of its initial
    value (ours). Learned if 0 (paper). By default 0.25, or 0 if actions have more than 6 dimensions
    (ours)."""
    noise_color: float | None = None
    """β: the noise of successive actions is correlated, with the power spectrum 1/f^β (Hollenstein
    et al., 2024). Independent if 0 (paper). By default 0.5, or 0 if actions have more than 6
    dimensions (ours)."""
    epsilon: float = 0.4
    """Clipping factor ε of each dimension's ratio ρ_{t,d}, and of the value (paper, Table A.1)."""
    epsilon_b: float | None = None
    """Batch inclusion ε_b: a batch is reused if its mean |ρ_{t,d} − 1| is below; 0 reuses nothing
    (paper, eq. 5 and Table A.1: 0.1). By default 0.1, or 0.2 if actions have more than 6 dimensions
    (ours)."""
    center: Literal["start", "behaviour"] = "start"
    """Policy around which ρ_{t,d} is clipped: the one at the start of the iteration, with old
    samples weighted by their truncated ratio to the behaviour policy (ours), or the behaviour
    policy (paper)."""
    most_old: int | None = 7
    """Rows of old batches in a minibatch, at most, as a multiple of the newest batch's (ours). As
    many as there are old batches included if None (authors' code)."""
    value_on_newest: bool | None = None
    """Train the value network on the newest batch only, or on all that are included (paper). By
    default on the newest only if actions have more than 6 dimensions (ours)."""
    replay_length: int = 64
    """L: batches in the replay (paper, Table A.1)."""
    advantage: Literal["gae_v", "gae"] = "gae_v"
    """Advantage estimator: GAE with V-trace, or plain GAE (paper, section 5.3)."""
    penalty: Literal["is", "kl", "none"] = "is"
    """Penalty that keeps the policy near the old one: J_IS, J_KL or none (paper, section 5.3)."""
    j_targ: float = 1e-2
    """J_targ: target value of the penalty (ours; 1e-3 in the paper's text and the authors' code,
    1e-4 in Table A.1)."""
    alpha_is: float = 1.0
    """Initial factor α_IS of the penalty; it then adapts to keep the penalty near J_targ (paper,
    eq. 3)."""
    alpha_rule: Literal["smooth", "double"] = "smooth"
    """How α_IS adapts after each iteration: `smooth` multiplies it by (J/J_targ)^0.2, and divides
    the policy's learning rate by √α_IS where that is above 1 (ours); `double` doubles or halves it
    if J is far from J_targ (paper, eq. 3)."""
    divide_by_mean_ratio: bool = True
    """Divide the objective by the mean clipped weight (authors' code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.below_one("epsilon")
        check.at_least(0, "epsilon_b", "j_targ")
        check("alpha_is", 2.0**-10 <= self.alpha_is <= 64, "within [2⁻¹⁰, 64]")
        check.at_least(1, "replay_length")
        check.at_least(0, "most_old")

    def for_actions(self, dimensions: int) -> Self:
        """Fill in the recommended options of `FEW`, or of `MANY`, that were not chosen."""
        by_size = FEW if dimensions <= FEW_DIMENSIONS else MANY
        return replace(self, **{k: v for k, v in by_size.items() if getattr(self, k) is None})


@dataclass(frozen=True)
class State(ActorCritic):
    """Everything that changes during a run of DISC."""

    alpha_is: float


def init(config: Config, spec: Spec, num_envs: int, seed: int) -> State:
    """The initial state."""
    fields = actor_critic.init(config, config.replay_length, spec, num_envs, seed)
    return State(**fields, alpha_is=config.alpha_is)


def update(config: Config, state: State, threads: int) -> tuple[State, Metrics]:
    """One iteration of DISC; then α_IS adapts to the penalty."""
    assert config.value_on_newest is not None, "for_actions fills it in"
    alpha, smooth = state.alpha_is, config.alpha_rule == "smooth"
    rate = clipping.damped_rate(alpha) if smooth else 1.0
    state, metrics = actor_critic.improve(
        config,
        state,
        threads,
        estimate,
        policy_loss,
        coefficients=alpha,
        policy_rate=rate,
        most_old=config.most_old,
        value_on_newest=config.value_on_newest,
    )
    if config.penalty == "none":
        return state, metrics
    penalty = metrics["is/j_is" if config.penalty == "is" else "is/kl"]
    adapt = clipping.adapt_smoothly if smooth else clipping.adapt
    state = replace(state, alpha_is=adapt(alpha, penalty, config.j_targ))
    return state, {**metrics, "is/alpha": alpha}


@partial(jax.jit, static_argnames="config")
def estimate(
    config: Config, policy: Policy, value: MLP, scale: Scale, replay: BatchReplay
) -> Estimate:
    """GAE-V over all batches whose per-dimension ratios are near 1."""
    ratios = snapshot.ratios(policy, scale, replay)
    assert config.epsilon_b is not None, "for_actions fills it in"
    included = importance.include(ratios.dimension_deviation, replay.age, config.epsilon_b)
    steps = snapshot.steps(config, value, scale, replay, included)
    rho = importance.ratio(ratios.log_rho)
    advantage, target = (
        advantages.gae_v(*steps, rho.T) if config.advantage == "gae_v" else advantages.gae(*steps)
    )
    weight = jnp.minimum(1.0, rho)
    centered = config.center == "start"
    reference = snapshot.current(policy, ratios) if centered else snapshot.behaviour(replay)
    return snapshot.estimate(replay, ratios, included, steps, advantage, weight, target, reference)


def policy_loss(config: Config, policy: Policy, rows: Rows, alpha_is: jax.Array) -> Parts:
    """−mean(wÂ) / mean(w) + α_IS J_IS (paper, eq. 2); w is the dimension-wise clipped weight."""
    log_ratio, output = actor_critic.ratio_of(policy, rows)
    weight = clipping.dimension_clip(log_ratio, rows.advantage, config.epsilon)
    if config.center == "start":
        weight = rows.weight * weight
    objective = weight * rows.advantage
    penalty: jax.Array | float = 0.0
    if config.penalty == "is":
        penalty = clipping.is_penalty(log_ratio, rows.mask)
    elif config.penalty == "kl":
        penalty = clipping.kl_penalty(policy.kl(output, rows.mean, rows.log_std), rows.mask)
    clipped = clipping.clipped(log_ratio, rows.advantage[:, None], config.epsilon)
    return Parts(
        numerator=-jnp.sum(objective),
        denominator=jnp.sum(rows.mask * weight if config.divide_by_mean_ratio else rows.mask),
        penalty=alpha_is * penalty,
        measured=actor_critic.measure_ratio(policy, rows, output, log_ratio, objective, clipped),
    )
