"""A `gymnasium.vector.VectorEnv` as the environments of a run: all are stepped together.

When an episode ends, a vector environment resets that environment automatically, in one of three
modes (`metadata["autoreset_mode"]`). Rows are the same in all modes: one per step, with the true
final observation at the end of an episode, and none for a reset.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from disc import seeding
from disc.envs import contract
from disc.envs.contract import Misbehaved
from disc.envs.rollout import Order, check_finite
from disc.policy.layout import Layout
from disc.types import Actor, DiscError, Floats, NonFiniteAction, Rollout, Spec

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
INSTEAD = "pass a function that makes one environment, and num_envs"


class Rows:
    """The rows of one environment that are being collected, (T, ·)."""

    def __init__(self, spec: Spec, actor: Actor, rng: np.random.Generator, steps: int) -> None:
        self.actor, self.rng, self.filled, self.drawn = actor, rng, 0, 0
        self.noise = actor.noise(rng, steps)
        self.observation = np.zeros((steps, spec.observation_size), np.float32)
        self.action = np.zeros((steps, spec.action_size), np.float32)
        self.mean = np.empty((steps, spec.outputs), np.float32)
        self.reward = np.empty(steps, np.float32)
        self.following = np.zeros_like(self.observation)
        self.terminated, self.truncated = np.zeros(steps, np.bool_), np.zeros(steps, np.bool_)
        self.episodes: list[tuple[float, int]] = []

    @property
    def full(self) -> bool:
        """Whether no row is missing."""
        return self.filled == len(self.reward)

    def draw(self) -> Floats:
        """The noise of the next action."""
        if self.drawn == len(self.noise):
            self.noise = self.actor.noise(self.rng, len(self.noise))
            self.drawn = 0
        self.drawn += 1
        return self.noise[self.drawn - 1]

    def rollout(self) -> Rollout:
        """The rows as a rollout."""
        border = np.zeros(len(self.reward), np.bool_)
        border[-1] = True
        return Rollout(
            observation=self.observation,
            action=self.action,
            mean=self.mean,
            log_std=self.actor.log_std,
            reward=self.reward,
            next_observation=self.following,
            terminated=self.terminated,
            truncated=self.truncated,
            border=border,
            returns=np.array([total for total, _ in self.episodes], np.float32),
            lengths=np.array([length for _, length in self.episodes], np.float32),
        )


class Step(NamedTuple):
    """A step of all environments."""

    following: Any  # (E, S): the observations that followed, the final one if an episode ended
    rewards: Any  # (E,)
    terminated: Any  # (E,)
    truncated: Any  # (E,)
    resets: Any  # (E,): only reset, as the episode had ended in the step before
    episodes: dict[int, tuple[float, int]]  # returns and lengths of those that ended


class Vector:
    """The environments of a vector environment, with their episodes in progress.

    Args:
        env: the vector environment.
        name: what to call it in messages.
        spec: the sizes and bounds of each environment.
    """

    def __init__(self, env: Any, name: str, spec: Spec) -> None:
        self.env, self.name, self.spec, self.mode = env, name, spec, mode_of(env, name)
        self.layout, self.count = Layout.box(spec.observation_shape), int(env.num_envs)
        self.current: Any = None  # (E, S): current observations
        self.ended = np.zeros(self.count, np.bool_)  # its next step is a reset
        self.returns, self.lengths = np.zeros(self.count), np.zeros(self.count, np.int64)
        self.names: list[tuple[int, int, int]] = []  # see `Lane.name`

    def reset(self, seed: int, step: int) -> None:
        """Reset all, with seeds that derive from the run's seed and the step."""
        position = [(seeding.ENVIRONMENTS, step, e) for e in range(self.count)]
        seeds = [seeding.environment_seed(seed, *where) for where in position]
        known = (gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv)
        several = isinstance(self.env.unwrapped, known)  # others take one seed for all
        try:
            found = contract.reset_vector(self.env, self.layout, seeds if several else seeds[0])
        except Misbehaved as error:
            raise contract.error(self.name, error.at(f"at step {step}")) from error
        self.current = np.array(found)
        self.ended[:], self.returns[:], self.lengths[:] = False, 0.0, 0
        self.names = [(step, e, 1) for e in range(self.count)]

    def replay(self, actions: Floats, bound: Callable[[Floats], Any]) -> None:
        """Repeat recorded actions, (E, T, D), after a reset: restores the same episodes."""
        for t in range(actions.shape[1]):
            try:
                self._step(actions[:, t].copy(), bound)
            except Misbehaved as error:
                when = f"at step {t + 1} of {actions.shape[1]} that restore the episode"
                raise contract.error(self.name, error.at(when)) from error

    def collect(self, order: Order) -> tuple[list[Rollout], Floats]:
        """The rows of each environment, and all actions that were sent, (E, C, D).

        In next-step mode, environments whose episodes end fall behind the others. They catch up at
        the end of the batch. The steps that the others take meanwhile belong to their episodes,
        but to no batch, because a batch has the same number of rows from each.
        """
        actor, spec = order.actor, self.spec
        rows = [
            Rows(
                spec,
                actor,
                seeding.generator(order.seed, seeding.NOISE, order.iteration, e),
                order.steps,
            )
            for e in range(self.count)
        ]
        acting = [actor.episode(*name) for name in self.names]
        sent: list[Floats] = []
        while not all(own.full for own in rows):
            actions = np.zeros((self.count, spec.action_size), np.float32)
            means = np.empty((self.count, spec.outputs), np.float32)
            before, resets = np.asarray(self.current, np.float32), self.ended.copy()
            try:
                for e in np.flatnonzero(~resets):
                    actions[e], means[e] = acting[e](before[e], rows[e].draw())
                found = self._step(actions, actor.bound)
            except (Misbehaved, NonFiniteAction) as error:
                self._explain(rows, order, error)
                raise
            sent.append(actions)
            self._write(rows, before, actions, means, found)
            for e in np.flatnonzero(resets | found.terminated | found.truncated):
                acting[e] = actor.episode(*self.names[e])
        for i, own in enumerate(rows):
            self._check_finite(own, slice(None), order, i)
        return [own.rollout() for own in rows], np.stack(sent, axis=1)

    def observations(self) -> Floats:
        """The current observations, (E, S)."""
        return np.asarray(self.current, np.float32)

    def close(self) -> None:
        """Close all."""
        contract.close(self.env, self.name)

    def _step(self, actions: Floats, bound: Callable[[Floats], Any]) -> Step:
        """Step all with actions (E, D)."""
        resets = self.ended.copy()
        sent = np.stack([np.asarray(bound(action)) for action in actions])
        found, rewards, terminated, truncated, info = contract.step_vector(
            self.env, sent, self.layout
        )
        final, over = np.array(found), np.asarray(terminated | truncated, np.bool_)
        following = final.copy()
        if self.mode == SAME_STEP:
            for e in np.flatnonzero(over):
                final[e] = self._final(info, e)
        elif self.mode == DISABLED and over.any():
            mask = {"reset_mask": over.copy()}
            fresh = contract.reset_vector(self.env, self.layout, options=mask)
            following[over] = np.asarray(fresh)[over]
        self.current = following
        self.ended = over if self.mode == NEXT_STEP else np.zeros_like(over)
        over = over & ~resets
        self.returns += np.where(resets, 0.0, rewards)
        self.lengths += ~resets
        episodes = {int(e): (self.returns[e], self.lengths[e]) for e in np.flatnonzero(over)}
        self.returns[over], self.lengths[over] = 0.0, 0
        for e in np.flatnonzero(resets if self.mode == NEXT_STEP else over):
            step, lane, number = self.names[e]
            self.names[e] = (step, lane, number + 1)
        return Step(final, rewards, terminated & ~resets, truncated & ~resets, resets, episodes)

    def _final(self, info: Any, e: Any) -> Any:
        """The last observation of an episode that ended and was reset in the same step."""
        try:
            return np.asarray(info["final_obs"][e], np.float64).reshape(-1)
        except Exception as error:
            raise Misbehaved(
                f"the environment ended an episode {{at}} without its last observation in "
                f"info['final_obs'][{e}]"
            ) from error

    def _write(
        self,
        rows: list[Rows],
        before: Floats,
        actions: Floats,
        means: Floats,
        found: Step,
    ) -> None:
        """Add a step to the rows of each environment that took one."""
        for e, own in enumerate(rows):
            if e in found.episodes:
                own.episodes.append(found.episodes[e])
            if found.resets[e] or own.full:
                continue
            t = own.filled
            own.observation[t], own.action[t], own.mean[t] = before[e], actions[e], means[e]
            own.reward[t], own.following[t] = found.rewards[e], found.following[e]
            own.terminated[t], own.truncated[t] = found.terminated[e], found.truncated[e]
            own.filled += 1

    def _steps_of(self, order: Order, e: int) -> Callable[[int], int]:
        """The number of a row's step in the run."""
        return lambda t: order.step + t * self.count + e + 1

    def _check_finite(self, own: Rows, seen: slice, order: Order, e: int) -> None:
        """Raise a `DiscError` if a row of environment e is not finite."""
        following, actions, step_of = (
            own.following[seen],
            own.action[seen],
            self._steps_of(order, e),
        )
        check_finite(self.name, self.layout, following, actions, step_of)

    def _explain(self, rows: list[Rows], order: Order, error: Exception) -> None:
        """Raise a `DiscError` for whichever came first: a non-finite value, or the error."""
        for e, own in enumerate(rows):
            self._check_finite(own, slice(0, own.filled), order, e)
        if isinstance(error, Misbehaved):
            step = order.step + min(own.filled for own in rows) * self.count + 1
            raise contract.error(self.name, error.at(f"at step {step}")) from error


def mode_of(env: Any, name: str) -> str:
    """How a vector environment resets.

    Raises:
        DiscError: it does not declare how, or the mode is unknown.
    """
    mode = (env.metadata or {}).get("autoreset_mode")
    value = str(getattr(mode, "value", mode))
    if value not in (NEXT_STEP, SAME_STEP, DISABLED):
        raise DiscError(
            f"{name}: its metadata['autoreset_mode'] is {mode!r}, so the last observations of "
            f"episodes can't be found; use a mode of gymnasium.vector.AutoresetMode, or {INSTEAD}."
        )
    return value


def single(env: Any, name: str) -> Any:
    """An object with the spaces of one environment.

    Raises:
        DiscError: observations are not arrays.
    """
    if not isinstance(env.single_observation_space, gym.spaces.Box):
        kind = type(env.single_observation_space).__name__
        raise DiscError(
            f"{name}: has {kind} observations, but a vector environment needs Box ones; {INSTEAD}."
        )
    return SimpleNamespace(
        action_space=env.single_action_space, observation_space=env.single_observation_space
    )
