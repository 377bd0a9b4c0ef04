"""The policy that is learned: a network and the distribution of actions that it describes.

A Gaussian for continuous actions, or one categorical distribution per dimension for discrete ones.
Both are products over the D action dimensions and have the same methods, so the stages of PPO,
PPO-AMBER and DISC take either:

    method                                       shapes
    output(observation)                          (M, S) → (M, P)   mean u(s), or logits z(s)
    log_ratio(action, output, old, old_log_std)  → (M, D)          log ρ_{t,d}
    kl(output, old, old_log_std)                 → (M,)            KL(π_old ‖ π)
    measure(output)                              → (M,) each       metrics that depend on the state
    describe()                                   → numbers         metrics that do not

`old` is the output of the policy that ratios are relative to, (M, P), and `old_log_std` its log σ,
(M, D) or (1, D), which a categorical distribution does not have. A policy is also a tree of
arrays: networks, gradients and optimiser states have its structure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from disc.equations import categorical, distributions, importance
from disc.learning import device, networks
from disc.learning.networks import MLP
from disc.policy.exploration import Colored
from disc.policy.policies import Categorical, Gaussian
from disc.types import Floats, Metrics, Spec

FEW_DIMENSIONS = 6
"""With more action dimensions than this, σ starts at half (`halve_std`), and some recommended
options of DISC differ."""
HEAD_GAIN = 0.01  # so that the first policy hardly depends on the observation (authors' code)


class GaussianPolicy(NamedTuple):
    """π(a|s) = N(u(s), diag σ²): a mean network and a state-independent log-std; P = D."""

    mean: MLP  # S → D
    log_std: jax.Array  # (D,)

    def output(self, observation: jax.Array) -> jax.Array:
        """u(s): (M, S) → (M, D)."""
        return networks.forward(self.mean, observation)

    def log_ratio(
        self, action: jax.Array, output: jax.Array, old: jax.Array, old_log_std: jax.Array
    ) -> jax.Array:
        """Log ρ_{t,d}, (M, D)."""
        return importance.log_ratio(action, output, self.log_std[None], old, old_log_std)

    def log_density(self, action: jax.Array, output: jax.Array) -> jax.Array:
        """Log π(a|s), (M,)."""
        return distributions.log_density(action, output, self.log_std[None])

    def kl(self, output: jax.Array, old: jax.Array, old_log_std: jax.Array) -> jax.Array:
        """KL(π_old ‖ π), (M,)."""
        return distributions.gaussian_kl(old, old_log_std, output, self.log_std[None])

    def measure(self, output: jax.Array) -> dict[str, jax.Array]:
        """Nothing: σ does not depend on the state."""
        return {}

    def describe(self) -> Metrics:
        """Entropy and mean σ."""
        return {
            "train/entropy": float(distributions.entropy(self.log_std)),
            "train/std": float(np.mean(np.exp(self.log_std))),
        }

    def rates(self, rate: float, std_rate: float) -> Any:
        """The learning rates of the mean network, and of log σ as a fraction of it."""
        return GaussianPolicy(rate, std_rate * rate)  # type: ignore[arg-type]

    def with_scaled_std(self, factor: float) -> GaussianPolicy:
        """The policy with its σ times `factor`."""
        return self._replace(log_std=self.log_std + np.float32(math.log(factor)))

    def acting(self, spec: Spec, fields: dict[str, Any], noise_color: float = 0.0) -> Gaussian:
        """The policy in numpy, given the fields that do not depend on the distribution.

        Args:
            spec: the environment's sizes and bounds.
            fields: as in the constructor of `policies.Policy`.
            noise_color: exponent β of the noise's spectrum; independent noise if 0.
        """
        log_std: Any = np.asarray(self.log_std)
        fields = {**_arrays(self.mean), "log_std": log_std, **fields}
        return Colored(**fields, color=noise_color) if noise_color else Gaussian(**fields)


@partial(jax.tree_util.register_dataclass, data_fields=("logits",), meta_fields=("counts",))
@dataclass(frozen=True)
class CategoricalPolicy:
    """π(i|s) = ∏_d softmax(z_d(s))_{i_d}: one network for the logits of all dimensions."""

    logits: MLP  # S → P = Σ_d K_d
    counts: tuple[int, ...]  # K_d

    @property
    def log_std(self) -> jax.Array:
        """(D,) of NaN, as it is not a Gaussian; stored with every batch, and never read."""
        return device.put(np.full(len(self.counts), np.nan, np.float32))

    def output(self, observation: jax.Array) -> jax.Array:
        """z(s): (M, S) → (M, P)."""
        return networks.forward(self.logits, observation)

    def log_ratio(
        self, action: jax.Array, output: jax.Array, old: jax.Array, old_log_std: jax.Array
    ) -> jax.Array:
        """Log ρ_{t,d}, (M, D)."""
        return categorical.log_ratio(action, output, old, self.counts)

    def kl(self, output: jax.Array, old: jax.Array, old_log_std: jax.Array) -> jax.Array:
        """KL(π_old ‖ π), (M,)."""
        return categorical.kl(old, output, self.counts)

    def measure(self, output: jax.Array) -> dict[str, jax.Array]:
        """The entropy in each state, (M,)."""
        return {"entropy": categorical.entropy(output, self.counts)}

    def describe(self) -> Metrics:
        """Nothing: the entropy depends on the state."""
        return {}

    def rates(self, rate: float, std_rate: float) -> Any:
        """The learning rate; there is no σ."""
        return rate

    def with_scaled_std(self, factor: float) -> CategoricalPolicy:
        """The same policy: there is no σ."""
        return self

    def acting(self, spec: Spec, fields: dict[str, Any], noise_color: float = 0.0) -> Categorical:
        """The policy in numpy; its noise is always independent."""
        assert spec.choices is not None
        return Categorical(**_arrays(self.logits), choices=spec.choices, **fields)


Policy = GaussianPolicy | CategoricalPolicy
Acting = Gaussian | Categorical
"""A policy in numpy, of these distributions."""


def init(
    rng: np.random.Generator,
    widths: tuple[int, ...],
    spec: Spec,
    initial_std: float | None,
    halve_std: bool,
) -> Policy:
    """The initial policy for the environment's actions: orthogonal weights, a head of gain 0.01.

    Args:
        rng: the source of randomness.
        widths: sizes of the hidden layers.
        spec: the environment's sizes and bounds.
        initial_std: σ as a fraction of half the action range; σ = 1 if None. Only for a Gaussian.
        halve_std: half of that if there are many dimensions. Only for a Gaussian.
    """
    network = networks.init_mlp(rng, (spec.observation_size, *widths, spec.outputs), HEAD_GAIN)
    if spec.choices is not None:
        return CategoricalPolicy(network, spec.choices.counts)
    log_std = initial_log_std(initial_std, spec)
    if halve_std and spec.action_size > FEW_DIMENSIONS:
        log_std = log_std + np.float32(math.log(0.5))
    return GaussianPolicy(network, device.put(log_std))


def initial_log_std(share: float | None, spec: Spec) -> Floats:
    """Log σ_d = log(share · ½ (high_d − low_d)), (D,); 0 where the range is infinite.

    Args:
        share: σ as a fraction of half the action range; log σ = 0 if None.
        spec: the environment's, with its action bounds.
    """
    half = 0.5 * (spec.action_high.astype(np.float64) - spec.action_low)
    known = np.isfinite(half) & (half > 0.0)
    if share is None:
        known = np.zeros_like(known)
    return np.log(np.where(known, (share or 1.0) * half, 1.0)).astype(np.float32)


def _arrays(network: MLP) -> dict[str, Any]:
    """Weights and biases in numpy."""
    return {
        "weights": tuple(np.asarray(layer.weight) for layer in network),
        "biases": tuple(np.asarray(layer.bias) for layer in network),
    }
