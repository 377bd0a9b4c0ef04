"""SAC's gradient steps against finite differences of its losses in NumPy."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disc import DiscError
from disc.algos import sac
from disc.algos.sac import Config, Critics, Learned
from disc.learning import optim
from disc.learning.networks import Linear
from disc.learning.off_policy import Batch
from tests.support.compare import assert_close, assert_equal_trees
from tests.support.learners import (
    assert_first_step,
    assert_follows,
    assert_gradient,
    assert_starts_from,
)
from tests.support.networks import layers
from tests.support.plain import differences, doubles, least, run, squares, targets
from tests.support.transitions import IDENTITY, KEY, SPEC, B, D, S, batch, compiled, rollout

OPTIONS: dict[str, Any] = {"widths": (5, 4), "learning_rate": 0.01, "tau": 0.25, "gamma": 0.9}
OPTIONS |= {"reward_scale": 3.0, "replay_size": 20, "batch_size": B, "random_steps": 4}
AUTOMATIC, FIRST = Config(**OPTIONS), Config(**OPTIONS, form="2018")
FOR_VALUE, FOR_POLICY = jax.random.split(KEY)
CRITIC, VALUE = ((S + D, 5), (5, 4), (4, 1)), ((S, 5), (5, 4), (4, 1))

step = compiled(sac.learn)
draw = jax.jit(sac.sample)


def policy(log_std: float = -0.5) -> Any:
    *hidden, head = layers(1, (S, 5), (5, 4), (4, 2 * D))
    shift = np.float32([0.0] * D + [log_std] * D)
    return (*hidden, head._replace(bias=head.bias + shift))


def learned(config: Config, log_alpha: float = -0.7) -> Learned:
    """Fresh optimisers; the targets differ from the critics."""
    first = config.form == "2018"
    critics = Critics(
        (layers(3, *CRITIC), layers(13, *CRITIC)), layers(4, *VALUE) if first else None
    )
    found = sac.rest(policy(), critics, jnp.float32(0.0 if first else log_alpha))
    target = layers(5, *VALUE) if first else (layers(6, *CRITIC), layers(7, *CRITIC))
    return found._replace(target=target)


def sampled(policy: Any, x: Any, key: jax.Array) -> tuple[Any, Any]:
    """Actions and their log densities, element by element."""
    both, noise = run(policy, x), np.asarray(jax.random.normal(key, (len(x), D)), float)
    action, log_pi = np.zeros((len(x), D)), np.zeros(len(x))
    for m, d in np.ndindex(len(x), D):
        mean, std = both[m, d], math.exp(min(max(both[m, D + d], -20.0), 2.0))
        u = mean + std * noise[m, d]
        action[m, d] = math.tanh(u)
        density = math.exp(-0.5 * ((u - mean) / std) ** 2) / (std * math.sqrt(2.0 * math.pi))
        log_pi[m] += math.log(density / (1.0 - math.tanh(u) ** 2))
    return action, log_pi


def goal(config: Config, before: Any, rows: Any, alpha: float) -> Any:
    """The critics' target y."""
    x = rows.next_observation
    if config.form == "2018":
        following = run(before.target, x)[:, 0]
    else:
        action, log_pi = sampled(before.policy.parameters, x, FOR_VALUE)
        following = least(before.target, x, action) - alpha * log_pi
    return targets(rows, following, 0.9, 3.0)


def soft_values(before: Any, rows: Any) -> Any:
    """The target of V in the 2018 form."""
    action, log_pi = sampled(before.policy.parameters, rows.observation, FOR_VALUE)
    return least(before.value.parameters.q, rows.observation, action) - log_pi


@pytest.mark.parametrize("config", [AUTOMATIC, FIRST])
def test_critic_gradient_matches_finite_differences(config: Config) -> None:
    before, rows = learned(config), doubles(batch())
    after, measured = step(config, before, batch(), KEY, IDENTITY)
    plain = doubles(before)
    y, soft = goal(config, plain, rows, math.exp(-0.7)), soft_values(plain, rows)

    def loss(critics: Critics) -> Any:
        total = squares(critics.q, rows, y)
        if critics.v is not None:
            total = total + np.mean((run(critics.v, rows.observation)[:, 0] - soft) ** 2)
        return total

    assert_gradient(after.value, differences(loss, plain.value.parameters))
    assert_first_step(before.value, after.value, 0.01)
    assert_close(measured["train/value_loss"], squares(plain.value.parameters.q, rows, y))


@pytest.mark.parametrize("config", [AUTOMATIC, FIRST])
def test_policy_gradient_uses_the_updated_critics(config: Config) -> None:
    before, rows = learned(config), doubles(batch())
    after, measured = step(config, before, batch(), KEY, IDENTITY)
    alpha = 1.0 if config.form == "2018" else math.exp(-0.7)
    critics = doubles(after.value.parameters.q)

    def loss(policy: Any) -> Any:
        action, log_pi = sampled(policy, rows.observation, FOR_POLICY)
        return np.mean(alpha * log_pi - least(critics, rows.observation, action))

    start = doubles(before.policy.parameters)
    assert_gradient(after.policy, differences(loss, start))
    assert_first_step(before.policy, after.policy, 0.01)
    assert_close(measured["train/objective"], -loss(start))
    assert_close(
        measured["train/entropy"], -np.mean(sampled(start, rows.observation, FOR_POLICY)[1])
    )
    assert_close(measured["train/temperature"], alpha)


@pytest.mark.parametrize("config", [AUTOMATIC, FIRST])
def test_targets_move_by_tau(config: Config) -> None:
    before = learned(config)
    after, _ = step(config, before, batch(), KEY, IDENTITY)
    critics = after.value.parameters
    followed = critics.v if config.form == "2018" else critics.q
    assert_follows(before.target, after.target, followed, 0.25)


# The temperature


@pytest.mark.parametrize(("log_std", "rises"), [(-4.0, True), (-0.5, False)])
def test_temperature_rises_while_entropy_is_below_target(log_std: float, rises: bool) -> None:
    before = learned(AUTOMATIC)._replace(policy=optim.init(policy(log_std)))
    after, measured = step(AUTOMATIC, before, batch(), KEY, IDENTITY)
    x = np.asarray(batch().observation, float)
    entropy = -np.mean(sampled(doubles(policy(log_std)), x, FOR_POLICY)[1])
    assert (entropy < -D) == rises
    assert_close(after.temperature.moments.mu / 0.1, entropy + D)
    assert_close(after.temperature.parameters, -0.7 + (0.01 if rises else -0.01))
    assert_close(measured["train/entropy"], entropy)


def test_temperature_of_the_2018_form_stays_one() -> None:
    now = learned(FIRST)
    for _ in range(3):
        now, measured = step(FIRST, now, batch(), KEY, IDENTITY)
        assert measured["train/temperature"] == 1.0
    assert_equal_trees(now.temperature, optim.init(jnp.zeros(())))


def test_entropy_settles_at_its_target() -> None:
    """One step, reward −3 Σ(a − ½)²: π ∝ exp(reward/α) has σ² = α/6 and entropy log 2πeσ²."""
    config = Config(**OPTIONS, target_entropy=-1.0)
    critics = Critics((layers(1, (S + D, 64), (64, 1)), layers(2, (S + D, 64), (64, 1))), None)
    now = sac.rest(layers(3, (S, 2 * D)), critics, jnp.zeros(()))
    rng, entropies, alphas, seen = np.random.default_rng(0), [], [], np.ones((64, S), np.float32)
    for key in np.asarray(jax.random.split(KEY, 1500)):
        action = rng.uniform(-1.0, 1.0, (64, D)).astype(np.float32)
        reward = -np.sum((action - 0.5) ** 2, axis=1)
        rows = Batch(seen, action, reward, seen, np.ones(64, bool))
        now, measured = step(config, now, rows, key, IDENTITY)
        entropies.append(measured["train/entropy"])
        alphas.append(measured["train/temperature"])
    variance = math.exp(-1.0) / (2.0 * math.pi * math.e)
    assert abs(np.mean(entropies[:50]) + 1.0) > 0.5
    assert np.mean(entropies[-500:]) == pytest.approx(-1.0, abs=0.05)
    assert np.mean(alphas[-500:]) == pytest.approx(6.0 * variance, rel=0.4)


# The policy


@pytest.mark.parametrize(("log_std", "held"), [(50.0, 2.0), (-50.0, -20.0), (-1.0, -1.0)])
def test_log_std_is_clamped(log_std: float, held: float) -> None:
    head = Linear(jnp.zeros((S, 2 * D)), jnp.float32([0.0] * D + [log_std] * D))
    action, log_pi = draw((head,), jnp.ones((B, S)), KEY)
    noise = np.asarray(jax.random.normal(KEY, (B, D)), float)
    u = np.exp(held) * noise
    assert_close(action, np.tanh(u), atol=1e-12)
    density = -0.5 * noise**2 - held - 0.5 * math.log(2.0 * math.pi) + 2.0 * np.log(np.cosh(u))
    assert_close(log_pi, np.sum(density, axis=1))


def test_numpy_policy_matches_the_trained_network() -> None:
    config, x = AUTOMATIC, np.asarray(batch().observation)
    state = sac.init(config, SPEC, 1, 0)
    acting = sac.act(config, SPEC, state)
    noise = np.asarray(jax.random.normal(KEY, (B, D)))
    action, _ = draw(state.policy.parameters, x, KEY)
    assert_close(acting.sample(x, noise), action)
    mean = np.tanh(run(doubles(state.policy.parameters), x)[:, :D])
    assert_close(acting.predict(x)[0], mean)


def test_first_steps_are_random() -> None:
    state = sac.init(AUTOMATIC, SPEC, 1, 0)
    assert type(sac.explore(AUTOMATIC, SPEC, state)).__name__ == "Uniform"
    state = sac.observe(AUTOMATIC, state, rollout(4))
    assert type(sac.explore(AUTOMATIC, SPEC, state)).__name__ == "Squashed"


@pytest.mark.parametrize("form", ["automatic", "2018"])
def test_initial_state_has_expected_networks_and_targets(form: str) -> None:
    state = sac.init(Config(**OPTIONS, form=form), SPEC, 1, 0)
    found = state.learned
    assert [x.weight.shape for x in found.policy.parameters] == [(S, 5), (5, 4), (4, 2 * D)]
    critics = found.value.parameters
    for critic in critics.q:
        assert [x.weight.shape for x in critic] == list(CRITIC)
    assert np.all(critics.q[0][0].weight != critics.q[1][0].weight)
    assert (critics.v is None) == (form == "automatic")
    assert_equal_trees(found.target, critics.q if critics.v is None else critics.v)
    assert found.temperature.parameters == 0.0
    assert set(state.parameters()) == {"policy", "value", "temperature"}


def test_targets_start_at_the_loaded_networks() -> None:
    state, other = sac.init(AUTOMATIC, SPEC, 1, 0), learned(AUTOMATIC)
    state = assert_starts_from(state, other, "temperature")
    assert_equal_trees(state.learned.target, other.value.parameters.q)


# Options


@pytest.mark.parametrize(
    ("form", "task", "wanted"),
    [
        ("automatic", "Hopper-v5", 1.0),
        ("automatic", "Humanoid-v5", 1.0),
        ("2018", "Hopper-v5", 5.0),
        ("2018", "Humanoid-v5", 20.0),
        ("2018", "HumanoidStandup-v5", 100.0),
    ],
)
def test_reward_scale_defaults_to_that_of_the_task(form: str, task: str, wanted: float) -> None:
    assert Config(form=form).for_task(task).reward_scale == wanted
    assert Config(form=form, reward_scale=7.0).for_task(task).reward_scale == 7.0


@pytest.mark.parametrize(
    "options",
    [
        {"form": "2020"},
        {"tau": 2.0},
        {"tau": -0.1},
        {"learning_rate": 0.0},
        {"reward_scale": 0.0},
        {"gamma": 1.1},
        {"batch_size": 0},
        {"updates_per_step": 0.5},
    ],
)
def test_invalid_options_raise(options: dict[str, Any]) -> None:
    with pytest.raises(DiscError, match=f"^{next(iter(options))} must be"):
        Config(**options)
