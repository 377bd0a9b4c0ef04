"""Collecting a batch: per step only the environment, a small numpy product and a few writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from disc import seeding
from disc.envs import contract
from disc.envs.contract import NUMBERS, RAISED, number
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
    t, taken, acting = 0, 0, actor.episode(*lane.name)
    result: Any = contract.NOTHING
    try:
        for t in range(steps):
            observations[t] = np.asarray(lane.observation).reshape(size)
            action, mean = acting(observations[t], noise[t])
            actions[t], means[t] = action, mean
            result = lane.env.step(actor.bound(action))
            taken = t + 1
            lane.observation, reward, terminated, truncated, _ = result
            if not isinstance(reward, NUMBERS):
                reward = number(reward)
            rewards[t] = reward
            lane.episode_return += float(reward)
            lane.episode_length += 1
            if terminated or truncated:
                terminations[t], truncations[t] = bool(terminated), bool(truncated)
                final = np.array(lane.observation)  # a reset may write into the same array
                finals[t] = final.reshape(size)
                episodes.append((lane.episode_return, lane.episode_length))
                lane.start()
                acting = actor.episode(*lane.name)
        following = np.empty_like(observations)
        following[:-1] = observations[1:]
        following[-1] = np.asarray(lane.observation).reshape(size)
        for row, final in finals.items():
            following[row] = final
    except RAISED as error:
        _sane(env.name, observations[: t + 1], actions[: t + 1], step_of)
        _finite(env.name, observations[1 : t + 1], rewards[:t], step_of)
        now = f"{step_of(t)}{_beyond(env, actor, actions[t])}"
        what = contract.blame(error, result, lane.shape, f"{step_of(taken - 1)}", now)
        raise contract.error(env.name, what) from error
    _sane(env.name, observations, actions, step_of)
    _finite(env.name, following, rewards, step_of)
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
    """What may be why an environment raised: an action that it does not expect."""
    sent, spec = actor.bound(action).reshape(-1), env.spec
    if np.all((spec.action_low <= sent) & (sent <= spec.action_high)):
        return ""
    return ", given an action beyond its bounds (--clip-actions holds it within them)"


def _sane(name: str, observations: Floats, actions: Floats, step_of: Callable[[int], int]) -> None:
    """Name the first step at which a finite observation led to an action that is none."""
    if np.isfinite(actions).all():
        return
    row = int(np.argmin(np.isfinite(actions).all(axis=1)))
    if np.isfinite(observations[row]).all():
        what = f"the action at step {step_of(row)} is not finite"
        raise DiscError(f"{name}: {what}; {contract.TOO_LARGE}.")


def _finite(
    name: str, observations: Floats, rewards: Floats, step_of: Callable[[int], int]
) -> None:
    """Name the first step that gave a NaN or an infinity."""
    seen, paid = np.isfinite(observations), np.isfinite(rewards)
    if seen.all() and paid.all():
        return
    row = int(np.argmin(seen.all(axis=1) & paid))
    what, value = ("reward", rewards[row]) if not paid[row] else ("observation", observations[row])
    what = f"the {what} at step {step_of(row)} {contract.not_finite(value)}"
    raise contract.error(name, what)
