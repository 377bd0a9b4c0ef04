"""Collecting a batch: per step only the environment, a small numpy product and a few writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from disc import seeding
from disc.envs import contract
from disc.envs.contract import BadReset, Misbehaved
from disc.envs.pool import Environments, Lane
from disc.types import Actor, DiscError, Floats, Rollout

LEAST_SIDE_BY_SIDE = 16
"""Steps of an environment below which starting threads costs more than it can save."""


def collect(
    env: Environments, act: Callable[[Any], Actor], state: Any, n: int, threads: int = 1
) -> Rollout:
    """Take n steps in all, n / E in each environment, with one frozen policy.

    An episode that ends is followed by a reset and no row of its own: the row of its last step
    has the true final observation as `next_observation`.

    Args:
        env: the environments, at the observations where they stand.
        act: makes the behaviour policy from the state.
        state: its `seed` and `iteration` name the noise, its `step` the steps in messages.
        n: N, divisible by E.
        threads: environments that may be stepped side by side, where that proves faster. Each has
            its own noise and its own rows, so results do not depend on it.

    Raises:
        DiscError: an environment raised, or returned something that is not finite.
    """
    actor, count = act(state), len(env.lanes)

    def run(e: int) -> Rollout:
        rng = seeding.generator(state.seed, seeding.NOISE, state.iteration, e)
        noise = rng.standard_normal((n // count, env.spec.action_size), np.float32)
        return _run(env, env.lanes[e], actor, noise, lambda t: state.step + t * count + e + 1)

    worthwhile = count > 1 and threads > 1 and n // count >= LEAST_SIDE_BY_SIDE
    side_by_side = env.pace.faster() if worthwhile else False
    clock = time.perf_counter()
    if side_by_side:
        with ThreadPoolExecutor(min(threads, count)) as pool:
            parts = list(pool.map(run, range(count)))
    else:
        parts = [run(e) for e in range(count)]
    env.pace.note(side_by_side, (time.perf_counter() - clock) / n)
    if count == 1:
        env.keep(parts[0].action[None])
        return parts[0]
    env.keep(np.stack([part.action for part in parts]))
    joined = Rollout(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return joined._replace(log_std=actor.log_std)


def _run(
    env: Environments, lane: Lane, actor: Actor, noise: Floats, step_of: Callable[[int], int]
) -> Rollout:
    """One environment's rows, (T, ·), for T draws of noise."""
    steps, size = len(noise), env.spec.observation_size
    observations = np.zeros((steps, size), np.float32)
    actions, means = np.zeros_like(noise), np.empty_like(noise)
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
                lane.env, actor.bound(action), lane.shape
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
    except Misbehaved as error:
        _check_finite(env.name, observations[1 : t + 1], actions[: t + 1], step_of)
        if isinstance(error, BadReset):
            raise contract.error(env.name, error.at(f"after step {step_of(t)}")) from error
        beyond = _beyond(env, actor, actions[t]) if error.__cause__ else ""
        raise contract.error(env.name, error.at(f"at step {step_of(t)}{beyond}")) from error
    following = np.empty_like(observations)
    following[:-1] = observations[1:]
    following[-1] = np.asarray(lane.observation).reshape(size)
    for row, final in finals.items():
        following[row] = final
    _check_finite(env.name, following, actions, step_of)
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


def _beyond(env: Environments, actor: Actor, action: Floats) -> str:
    """A likely reason why an environment raised: an action outside its bounds."""
    sent, spec = actor.bound(action).reshape(-1), env.spec
    if np.all((spec.action_low <= sent) & (sent <= spec.action_high)):
        return ""
    return ", given an action beyond its bounds (--clip-actions holds it within them)"


def _check_finite(
    name: str, following: Floats, actions: Floats, step_of: Callable[[int], int]
) -> None:
    """Name what came first: a non-finite action of the policy, or a non-finite observation.

    Args:
        name: the environment's.
        following: (T, S) or one row less, the observation that the action in the same row led to.
        actions: (T, D).
        step_of: the number of a row's step in the run.
    """
    found, acted = contract.first_nonfinite(following), np.isfinite(actions).all(axis=1)
    row = len(actions) if acted.all() else int(np.argmin(acted))
    if found is not None and found[0] < row:
        what = found[1].replace("{at}", f"at step {step_of(found[0])}")
        raise contract.error(name, what)
    if row < len(actions):
        what = f"the action at step {step_of(row)} is not finite"
        raise DiscError(f"{name}: {what}; {contract.TOO_LARGE}.")
