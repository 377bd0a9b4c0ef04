"""Collecting a batch: per step only the environment, a small numpy product and a few writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from disc import seeding
from disc.envs import contract
from disc.envs.contract import BadReset, Misbehaved
from disc.envs.lane import Lane, Lanes
from disc.policy.layout import Layout
from disc.types import Actor, DiscError, Floats, NonFiniteAction, Rollout


class Order(NamedTuple):
    """What to collect, wherever the environments are."""

    actor: Actor  # the behaviour policy
    seed: int  # the run's
    iteration: int  # identifies the noise, with the seed and the environment
    step: int  # of the run so far, for messages
    steps: int  # in each environment
    num_envs: int  # E


class Collects(Protocol):
    """The environments of a run."""

    count: int  # E

    def collect(self, order: Order, threads: int) -> Rollout:
        """All rows of an order, (N, ·)."""
        ...


def collect(
    env: Collects, act: Callable[[Any], Actor], state: Any, n: int, threads: int = 1
) -> Rollout:
    """Take n steps in total, n / E in each environment, with one frozen policy.

    When an episode ends, the environment is reset, which adds no row: the row of the last step
    has the true final observation as `next_observation`.

    Args:
        env: the environments, at their current observations.
        act: makes the behaviour policy from the state.
        state: its `seed` and `iteration` identify the noise, its `step` is for messages.
        n: N, divisible by E.
        threads: cores that may be used, where that proves faster. Each environment has its own
            noise and its own rows, so results do not depend on it.

    Raises:
        DiscError: an environment raised, or returned something that is not finite.
    """
    count = env.count
    order = Order(act(state), state.seed, state.iteration, state.step, n // count, count)
    return env.collect(order, threads)


def collect_lane(env: Lanes, i: int, order: Order) -> Rollout:
    """The rows of one environment, (T, ·)."""
    e = env.indices[i]
    rng = seeding.generator(order.seed, seeding.NOISE, order.iteration, e)
    noise = order.actor.noise(rng, order.steps)
    first, count = order.step + e + 1, order.num_envs
    return _run(env, env.lanes[i], order.actor, noise, lambda t: first + t * count)


def join(parts: Sequence[Rollout]) -> Rollout:
    """The rows of several environments, one after the other."""
    joined = Rollout(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return joined._replace(log_std=parts[0].log_std)


def _run(
    env: Lanes, lane: Lane, actor: Actor, noise: Floats, step_of: Callable[[int], int]
) -> Rollout:
    """One environment's rows, (T, ·), for T draws of noise."""
    steps, size = len(noise), env.spec.observation_size
    observations = np.zeros((steps, size), np.float32)
    actions = np.zeros((steps, env.spec.action_size), np.float32)
    means = np.empty((steps, env.spec.outputs), np.float32)
    rewards = np.empty(steps, np.float32)
    terminations, truncations = np.zeros(steps, np.bool_), np.zeros(steps, np.bool_)
    finals: dict[int, Any] = {}
    episodes: list[tuple[float, int]] = []
    t, acting = 0, actor.episode(*lane.name)
    try:
        for t in range(steps):
            observations[t] = np.asarray(lane.observation).reshape(size)
            action, mean = acting(observations[t], noise[t])
            actions[t], means[t] = action, mean
            lane.observation, reward, terminated, truncated = contract.step(
                lane.env, actor.bound(action), lane.layout
            )
            rewards[t] = reward
            lane.episode_return += reward
            lane.episode_length += 1
            if terminated or truncated:
                terminations[t], truncations[t] = terminated, truncated
                final = np.array(lane.observation)  # a reset may write into the same array
                finals[t] = final.reshape(size)
                episodes.append((lane.episode_return, lane.episode_length))
                lane.start()
                acting = actor.episode(*lane.name)
    except (Misbehaved, NonFiniteAction) as error:
        check_finite(env.name, env.layout, observations[1 : t + 1], actions[: t + 1], step_of)
        if isinstance(error, NonFiniteAction):
            raise
        if isinstance(error, BadReset):
            raise contract.error(env.name, error.at(f"after step {step_of(t)}")) from error
        beyond = _beyond(env, actor, actions[t]) if error.__cause__ else ""
        raise contract.error(env.name, error.at(f"at step {step_of(t)}{beyond}")) from error
    following = np.empty_like(observations)
    following[:-1] = observations[1:]
    following[-1] = np.asarray(lane.observation).reshape(size)
    for row, final in finals.items():
        following[row] = final
    check_finite(env.name, env.layout, following, actions, step_of)
    border = np.zeros(steps, np.bool_)
    border[-1] = True
    return Rollout(
        observation=observations,
        action=actions,
        mean=means,
        log_std=actor.log_std,
        reward=rewards,
        next_observation=following,
        terminated=terminations,
        truncated=truncations,
        border=border,
        returns=np.array([total for total, _ in episodes], np.float32),
        lengths=np.array([length for _, length in episodes], np.float32),
    )


def _beyond(env: Lanes, actor: Actor, action: Floats) -> str:
    """A likely reason why an environment raised: an action outside its bounds."""
    spec = env.spec
    if spec.choices is not None:
        return ""
    sent = actor.bound(action).reshape(-1)
    if np.all((spec.action_low <= sent) & (sent <= spec.action_high)):
        return ""
    return ", given an action beyond its bounds (--clip-actions keeps actions within them)"


def check_finite(
    name: str,
    layout: Layout,
    following: Floats,
    actions: Floats,
    step_of: Callable[[int], int],
) -> None:
    """Report which came first: a non-finite action of the policy, or a non-finite observation.

    Args:
        name: the environment's.
        layout: the layout of its observations.
        following: (T, S) or one row less, the observation that the action in the same row led to.
        actions: (T, D).
        step_of: the number of a row's step in the run.
    """
    found = contract.first_nonfinite(following, layout)
    acted = np.isfinite(actions).all(axis=1)
    row = len(actions) if acted.all() else int(np.argmin(acted))
    if found is not None and found[0] < row:
        what = found[1].replace("{at}", f"at step {step_of(found[0])}")
        raise contract.error(name, what)
    if row < len(actions):
        what = f"the action at step {step_of(row)} is not finite"
        raise DiscError(f"{name}: {what}; {contract.TOO_LARGE}.")
