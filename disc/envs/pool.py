"""The environments of a run, and the episodes in progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np

from disc.envs.factory import Maker, VectorEnv
from disc.envs.lane import Lane, Lanes
from disc.envs.pace import IN_PROCESSES, IN_THREADS, Pace, Way
from disc.envs.past import Past
from disc.envs.process import Processes, check_importing
from disc.envs.ray import Ray
from disc.envs.rollout import Order, collect_lane, join
from disc.envs.spaces import describe, observation_layout
from disc.envs.vector import Vector, single
from disc.envs.workers import MOST, Remote, WorkerBackend
from disc.types import Actor, DiscError, Floats, Rollout


class Environments:
    """The E environments of a run, wherever they are, and the actions that restore their episodes.

    Args:
        maker: makes them.
        num_envs: E.
        workers: where they are stepped: `threads` of this process, `processes`, `ray` or
            `ray:ADDRESS`; found by a trial if None. Results do not depend on it.
    """

    def __init__(self, maker: Maker, num_envs: int, workers: str | None = None) -> None:
        check_importing()
        vector = isinstance(maker.source, VectorEnv)
        if num_envs > 1 and maker.single and not vector:
            raise DiscError(
                f"{maker.name}: num_envs is {num_envs}, so pass a function that makes the "
                "environment, not one environment."
            )
        self.maker, self.name, self.count = maker, maker.name, num_envs
        self.workers, self.past, self.remaining = workers, Past(), 0
        self.notes: list[str] = []  # for the user
        self.pace = Pace(num_envs, num_envs > 1 and workers is None and _travels(maker))
        self.pool: ThreadPoolExecutor | None = None
        self.local: Lanes | None = None
        self.remote: Remote | None = None
        self.vector: Vector | None = None
        elsewhere = remote_kind(workers)
        if elsewhere and maker.single:
            raise DiscError(
                f"{maker.name}: is an object of this process, so it can't be stepped in {workers}; "
                "pass a function that makes it, or use workers='threads'."
            )
        if vector:
            env: Any = maker.source
            self.spec = describe(single(env, self.name), self.name)
            self.vector = Vector(env, self.name, self.spec)
            self.layout = self.vector.layout
        elif elsewhere:
            with maker.borrowed() as env:
                self.spec = describe(env, self.name)
                self.layout = observation_layout(env, self.name)
            self.remote = self._remote(elsewhere)
        else:
            make: Any = (lambda: maker.source) if maker.single else maker.make
            made = [make() for _ in range(num_envs)]
            self.spec = describe(made[0], self.name)
            self.local = Lanes(maker, self.spec, range(num_envs), made)
            self.layout = self.local.layout

    @property
    def lanes(self) -> list[Lane]:
        """The environments that are in this process."""
        return self.local.lanes if self.local else []

    @property
    def actions_since_reset(self) -> list[Floats]:
        """(E, T, D) each: the actions since the last reset."""
        return self.past.actions

    @property
    def place(self) -> Lanes | Remote | Vector:
        """The object that holds the environments."""
        place = self.remote or self.local or self.vector
        assert place is not None
        return place

    def reset(self, seed: int, step: int) -> None:
        """Reset all, with seeds that derive from the run's seed and the step.

        Used environments are replaced with new ones, because a reset may not clear all state of a
        physics engine (Box2D's does not), and a resumed run has new ones.
        """
        self.past.reset(seed, step)
        self.place.reset(seed, step)

    def collect(self, order: Order, threads: int) -> Rollout:
        """All rows of an order, (N, ·); see `rollout.collect`."""
        if self.count == 1 and self.local is not None:
            rollout = collect_lane(self.local, 0, order)
            self.past.keep(rollout.action[None])
            return rollout
        if self.vector is not None:
            parts, actions = self.vector.collect(order)
            self.past.keep(actions)
            return join(parts)
        parts = self._parts(order, threads)
        self.past.keep(np.stack([part.action for part in parts]))
        return join(parts)

    def _parts(self, order: Order, threads: int) -> list[Rollout]:
        """The rows of each environment, collected in the fastest way known so far."""
        if self.workers not in (None, "threads"):
            assert self.remote is not None
            return self.remote.collect(order)
        known, way = self.pace.chosen, self._way(order, threads)
        clock, computing = time.perf_counter(), time.thread_time()
        if self.remote is not None:
            parts = self.remote.collect(order)
        elif way == IN_THREADS:
            parts = self._in_threads(order, self.pace.parallel(threads))
        else:
            assert self.local is not None
            parts = [collect_lane(self.local, i, order) for i in range(self.count)]
        if self.pace.chosen is None:
            seconds = time.perf_counter() - clock
            steps = order.steps * order.num_envs
            self.pace.note(way, steps, seconds, time.thread_time() - computing)
        elif known is None and self.workers is None and (summary := self.pace.summary()):
            self.notes.append(summary)
        return parts

    def _in_threads(self, order: Order, number: int) -> list[Rollout]:
        local = self.local
        assert local is not None
        if self.pool is None:
            self.pool = ThreadPoolExecutor(min(number, MOST))
        return list(self.pool.map(lambda i: collect_lane(local, i, order), range(self.count)))

    def _way(self, order: Order, threads: int) -> Way:
        """How to collect the next batch; moves the environments if they are elsewhere."""
        steps, since = order.steps * order.num_envs, self.past.length * self.count
        remaining = self.remaining if self.past.complete else 0
        way = self.pace.way(steps, threads, remaining, since)
        if way == IN_PROCESSES and self.remote is None and not self._move_out(order.actor):
            self.pace.rule_out_processes()
            way = self.pace.way(steps, threads)
        if way != IN_PROCESSES and self.remote is not None:
            self._move_back(order.actor)
        if self.pace.chosen == IN_PROCESSES and self.local is not None:
            self.local.close()
            self.local = None
        return way

    def _move_out(self, actor: Actor) -> bool:
        """Continue the episodes in processes; False if that does not work."""
        assert self.local is not None
        remote = self._remote("processes")
        try:
            remote.restore(actor.bound)
        except DiscError:
            remote.close()
            return False
        if not np.array_equal(remote.observations(), self.local.observations()):
            remote.close()  # it is not deterministic under a seed
            return False
        self.remote = remote
        return True

    def _move_back(self, actor: Actor) -> None:
        """Continue the episodes in this process."""
        assert self.local is not None
        assert self.remote is not None
        self.remote.close()
        self.remote = None
        self.local.reset(self.past.seed, self.past.step)
        actions = self.past.of(slice(None))
        if actions is not None:
            self.local.replay(actions, actor.bound)

    def _remote(self, kind: str) -> Remote:
        maker, backend = self.maker, remote_backend(kind)
        return Remote(backend, maker, self.spec, self.count, self.past, self.notes.append)

    def take_notes(self) -> list[str]:
        """New messages for the user: the chosen way of stepping, workers that died."""
        notes = [*self.notes]
        self.notes.clear()
        return notes

    def forget(self) -> None:
        """Drop the actions since the last reset, unless a worker that dies would need them."""
        if self.remote is None:
            self.past.forget()

    def replay(self, actions: Floats, bound: Callable[[Floats], Any]) -> None:
        """Repeat recorded actions, (E, T, D), after a reset: restores the same episodes."""
        if self.spec.choices and not self.spec.choices.contain(actions):
            raise DiscError(
                f"{self.name}: the actions that restore its episodes are not among its choices; "
                "the checkpoint is damaged, or belongs to another environment."
            )
        self.place.replay(actions, bound)
        if actions.shape[1]:
            self.past.keep(actions)

    def observations(self) -> Floats:
        """The current observations, (E, S)."""
        return self.place.observations()

    def close(self) -> None:
        """Close all, and end the workers."""
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None
        for place in (self.local, self.remote, self.vector):
            if place is not None:
                place.close()


def check_workers(workers: Any) -> None:
    """Raise a `DiscError` unless it is a place where environments can be stepped, or None."""
    kind, _, address = str(workers).partition(":")
    known = kind in ("threads", "processes", "ray") and (not address or kind == "ray")
    if workers is not None and (not isinstance(workers, str) or not known):
        raise DiscError(f"workers must be threads, processes, ray or ray:ADDRESS, not {workers!r}.")


def remote_kind(workers: str | None) -> str | None:
    """The kind of workers if they are other processes, else None."""
    check_workers(workers)
    return None if workers in (None, "threads") else workers


def remote_backend(workers: str) -> WorkerBackend:
    """The backend that starts workers of a kind."""
    kind, _, address = workers.partition(":")
    return Ray(address) if kind == "ray" else Processes()


def _travels(maker: Maker) -> bool:
    """Whether a worker process can make the environment without importing the user's script."""
    if maker.single:
        return False
    with suppress(Exception):
        return not Processes().pickled(maker)[1]
    return False
