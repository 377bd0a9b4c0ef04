"""Environments in worker processes: which worker has which, and what happens if a worker dies.

The policy does not change during a rollout and acts in numpy. So a worker needs no message per
step: it gets the policy, collects the rows of its environments and sends them back. `process.py`
and `ray.py` start workers; everything else is here.
"""

from __future__ import annotations

import pickle
import traceback
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from disc.envs import contract
from disc.envs.factory import Maker
from disc.envs.lane import Lanes
from disc.envs.past import Past
from disc.envs.rollout import Order, collect_lane
from disc.types import DiscError, Floats, Rollout, Spec

DEATHS = 3
"""How often in a row the worker of the same environments may die before the run stops."""
MOST = 64
"""Workers of a run; with more environments, each has several."""
OTHERWISE = "or use workers='threads' (--workers threads)"

Reply = tuple[Any, Exception | None]
"""The result of a request, or the error that it raised."""


class Died(Exception):
    """A worker ended without an answer; the message says how."""


class Worker(Protocol):
    """Another process that has some of the environments."""

    def send(self, request: Any) -> None:
        """Send a packed request; a dead worker is noticed by `receive`."""
        ...

    def receive(self) -> Reply:
        """Wait for the answer; raises `Died`."""
        ...

    def stop(self) -> None:
        """Tell it to close its environments and end."""
        ...

    def wait(self) -> None:
        """Wait until it has ended; kill it if that takes too long."""
        ...


class WorkerBackend(Protocol):
    """Starts workers of one kind."""

    kind: str  # in messages: "process", "Ray actor"

    def pack(self, request: Any) -> Any:
        """A request in the form in which it is sent; raises if that is impossible."""
        ...

    def pickled(self, maker: Maker) -> tuple[bytes, Any]:
        """A maker of environments in bytes, and what a worker has to prepare to read it."""
        ...

    def start(self) -> Worker:
        """Start a worker."""
        ...

    def close(self) -> None:
        """Release what was needed to start workers."""
        ...


class Server:
    """The worker's side: answers requests.

    Args:
        prepare: called with what a worker has to prepare, from `WorkerBackend.pickled`.
    """

    def __init__(self, prepare: Callable[[Any], None]) -> None:
        self.prepare = prepare
        self.lanes: Lanes | None = None

    def answer(self, request: tuple[Any, ...]) -> Reply:
        """Call the method that a request names."""
        name, *arguments = request
        try:
            return getattr(self, f"do_{name}")(*arguments), None
        except DiscError as error:
            return None, error
        except Exception:  # a bug: the parent shows where
            return None, RuntimeError(f"in a worker:\n{traceback.format_exc()}")

    def do_make(self, name: str, maker: bytes, needed: Any, spec: Spec, indices: range) -> None:
        """Make the environments."""
        try:
            self.prepare(needed)
            made: Maker = pickle.loads(maker)
        except DiscError:
            raise
        except BaseException as error:
            raise DiscError(
                f"{name}: can't be imported in a worker ({contract.summary(error)}); put the "
                "function that makes it in a module that can be imported there and name it as "
                f"package.module:factory, {OTHERWISE}."
            ) from error
        try:
            self.lanes = Lanes(made, spec, indices)
        except DiscError as error:
            why = str(error).removesuffix(".")
            raise DiscError(f"{why}, in a worker; fix that, {OTHERWISE}.") from error

    def do_reset(self, seed: int, step: int) -> Floats:
        """Reset; returns the observations, (lanes, S)."""
        assert self.lanes is not None
        self.lanes.reset(seed, step)
        return self.lanes.observations()

    def do_replay(self, actions: Floats, bound: Callable[[Floats], Any]) -> Floats:
        """Repeat the actions of all E environments that are this worker's; see `do_reset`."""
        assert self.lanes is not None
        own = self.lanes.indices
        self.lanes.replay(actions[own[0] : own[-1] + 1], bound)
        return self.lanes.observations()

    def do_collect(self, order: Order) -> tuple[list[Rollout], Floats]:
        """The rows of each environment, and the observations."""
        assert self.lanes is not None
        parts = [collect_lane(self.lanes, i, order) for i in range(len(self.lanes.lanes))]
        return parts, self.lanes.observations()

    def close(self) -> None:
        """Close the environments."""
        if self.lanes is not None:
            self.lanes.close()


class Remote:
    """Environments in workers, which are started at the first request and replaced if they die.

    Args:
        backend: starts workers.
        maker: makes the environments, in the workers.
        spec: their sizes and bounds.
        count: E.
        past: the history of their episodes; kept up to date by the caller.
        say: receives what the user should know.
    """

    def __init__(
        self,
        backend: WorkerBackend,
        maker: Maker,
        spec: Spec,
        count: int,
        past: Past,
        say: Callable[[str], Any],
    ) -> None:
        self.backend, self.maker, self.name = backend, maker, maker.name
        self.spec, self.past, self.say = spec, past, say
        number = min(count, MOST)
        ends = [count * i // number for i in range(number + 1)]
        self.shares = [range(*ends[i : i + 2]) for i in range(number)]
        self.workers: list[Worker] = []
        self.last: Floats | None = None  # (E, S): current observations
        self._stop = weakref.finalize(self, _stop, self.workers)

    def reset(self, seed: int, step: int) -> None:
        """See `Lanes.reset`."""
        self._ask(("reset", seed, step), lambda i: None)

    def replay(self, actions: Floats, bound: Callable[[Floats], Any]) -> None:
        """See `Lanes.replay`; actions are (E, T, D)."""
        self._ask(("replay", actions, bound), lambda i: self._repeat(i, None))

    def collect(self, order: Order) -> list[Rollout]:
        """The rows of each environment."""
        bound = order.actor.bound
        replies = self._ask(("collect", order), lambda i: self._repeat(i, bound))
        return [part for parts, _ in replies for part in parts]

    def restore(self, bound: Callable[[Floats], Any]) -> None:
        """Start the workers and restore the episodes of `past`."""
        past = self.past
        self.reset(past.seed, past.step)
        actions = past.of(slice(None))
        if actions is not None:
            self.replay(actions, bound)

    def observations(self) -> Floats:
        """The current observations, (E, S)."""
        assert self.last is not None, "reset first"
        return self.last

    def close(self) -> None:
        """End the workers."""
        _stop(self.workers)
        self.backend.close()

    def _ask(self, request: tuple[Any, ...], repeat: Callable[[int], None]) -> list[Any]:
        """The answers of all workers to a request.

        Args:
            request: a method of `Server` and its arguments.
            repeat: repeats on a new worker, given its number, what was done before the request.
        """
        packed = self._packed(request)
        try:
            if not self.workers:
                self._start()
                for i in range(len(self.shares)):
                    repeat(i)
            for worker in self.workers:
                worker.send(packed)
            replies = [self._answer(i, packed, repeat) for i in range(len(self.shares))]
        except BaseException:  # a late answer must not be taken for the next request's
            _stop(self.workers)
            raise
        for _, error in replies:
            if error is not None:
                raise error
        values = [value for value, _ in replies]
        rows = [value[1] if request[0] == "collect" else value for value in values]
        self.last = np.concatenate(rows)
        return values

    def _packed(self, request: Any) -> Any:
        try:
            return self.backend.pack(request)
        except DiscError:
            raise
        except Exception as error:
            raise DiscError(
                f"{self.name}: the policy can't be sent to a worker ({contract.summary(error)}); "
                f"define its class at the top level of a module, {OTHERWISE}."
            ) from error

    def _made(self, share: range) -> Any:
        """The request to make the environments of a share."""
        try:
            maker, needed = self.backend.pickled(self.maker)
        except DiscError:
            raise
        except Exception as error:
            raise DiscError(
                f"{self.name}: can't be sent to a worker ({contract.summary(error)}); name the "
                "function that makes it as package.module:factory, or define it at the top level "
                f"of a module, {OTHERWISE}."
            ) from error
        return self._packed(("make", self.name, maker, needed, self.spec, share))

    def _start(self) -> None:
        """Start all workers at the same time, and let them make their environments."""
        requests = [self._made(share) for share in self.shares]
        for request in requests:
            worker = self.backend.start()
            self.workers.append(worker)
            worker.send(request)
        for i, request in enumerate(requests):
            _, error = self._answer(i, request, None)
            if error is not None:
                raise error

    def _answer(self, i: int, packed: Any, repeat: Callable[[int], None] | None) -> Reply:
        """The answer of worker i; if it dies, that of a new one.

        Args:
            i: the worker's number.
            packed: the request, which was sent already.
            repeat: see `_ask`; None if the environments were not made yet.

        Raises:
            DiscError: the new ones die too.
        """
        deaths = 0
        while True:
            try:
                if deaths:
                    self.workers[i] = self.backend.start()
                    if repeat is not None:
                        self._request(i, self._made(self.shares[i]))
                        repeat(i)
                    self.workers[i].send(packed)
                return self.workers[i].receive()
            except Died as died:
                self.workers[i].wait()
                deaths += 1
                self._report_death(i, deaths, died)

    def _report_death(self, i: int, deaths: int, died: Died) -> None:
        """Report a death."""
        first, last = self.shares[i][0], self.shares[i][-1]
        which = f"environment {first}" if first == last else f"environments {first} to {last}"
        what = f"the {self.backend.kind} of {which} died"
        if deaths == DEATHS:
            raise contract.error(
                self.name,
                f"{what} {DEATHS} times in a row ({died}); if memory is short, use fewer "
                "environments (num_envs)",
            ) from died
        self.say(f"{self.name}: {what} ({died}). A new one repeats its steps.")

    def _repeat(self, i: int, bound: Callable[[Floats], Any] | None) -> None:
        """Reset a new worker's environments, and repeat the actions since then if `bound`."""
        past, share = self.past, self.shares[i]
        found = self._request(i, self._packed(("reset", past.seed, past.step)))
        actions = past.of(slice(None))
        if actions is not None and bound is not None:
            found = self._request(i, self._packed(("replay", actions, bound)))
        own = slice(share[0], share[-1] + 1)
        if self.last is not None and not np.array_equal(found, self.last[own]):
            self.say(
                f"{self.name} is not deterministic under a seed: a new worker could not restore "
                "its episodes, and the run will differ from an uninterrupted one."
            )

    def _request(self, i: int, packed: Any) -> Any:
        self.workers[i].send(packed)
        value, error = self.workers[i].receive()
        if error is not None:
            raise error
        return value


def _stop(workers: list[Worker]) -> None:
    """End workers, all at the same time."""
    for worker in workers:
        worker.stop()
    while workers:
        workers.pop().wait()
