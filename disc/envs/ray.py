"""Workers as actors on a Ray cluster of one or more machines."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from contextlib import suppress
from typing import Any

from disc import host
from disc.envs.factory import Maker
from disc.envs.workers import Died, Reply, Server
from disc.types import DiscError

PATIENCE = 10.0  # seconds for a machine to answer
LONG = 30.0  # seconds for an actor to start before the user is informed


def connect(address: str, option: str) -> Any:
    """The module `ray`, connected to the cluster at an address, or `auto`.

    Args:
        address: the address of the head, HOST:PORT.
        option: the option that needs Ray, for messages.

    Raises:
        DiscError: Ray is not installed, or there is no such cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise DiscError(f"{option} needs Ray: pip install 'disc-rl[ray]'.") from error
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        name, _, port = address.rpartition(":")
        if port.isdigit():  # Ray would retry for minutes
            socket.create_connection((name, int(port)), PATIENCE).close()
        ray.init(address=address, log_to_driver=False, logging_level=40)
    except Exception as error:
        why = f"can't connect to a Ray cluster at {address} ({' '.join(str(error).split())})"
        raise DiscError(f"{why}; `ray start --head` starts one.") from error
    finally:
        if main and handler is not None:
            signal.signal(signal.SIGTERM, handler)  # Ray's would end the run without saving it
    return ray


class Actor:
    """The part that runs on a machine of the cluster."""

    def __init__(self, software: set[str]) -> None:
        self.missing = ", ".join(sorted(software - host.software()))
        self.server = Server(lambda _: None)

    def answer(self, request: tuple[Any, ...]) -> Reply:
        """See `Server.answer`."""
        if self.missing:
            here = socket.gethostname()
            return None, DiscError(f"{here} lacks {self.missing}: install the same versions.")
        return self.server.answer(request)


class Ray:
    """Starts actors; see `WorkerBackend`.

    Args:
        address: the cluster's, or empty for the one that this machine is part of.
    """

    kind = "Ray actor"
    placement: Any = "SPREAD"  # over the machines of the cluster

    def __init__(self, address: str) -> None:
        self.address, self.connected = address or "auto", False
        self.ray: Any = None

    def _connect(self) -> Any:
        """Connect at the first use, unless the user's program did."""
        if self.ray is None:
            with suppress(ImportError):
                import ray

                self.ray = ray if ray.is_initialized() else None
        if self.ray is None:
            self.ray, self.connected = connect(self.address, "workers='ray'"), True
        return self.ray

    def pack(self, request: Any) -> Any:
        return self._connect().put(request)

    def pickled(self, maker: Maker) -> tuple[bytes, Any]:
        return self._connect().cloudpickle.dumps(maker), None

    def start(self) -> RayWorker:
        ray = self._connect()
        actor = ray.remote(max_restarts=0, scheduling_strategy=self.placement)(Actor)
        return RayWorker(ray, actor.remote(host.software()))

    def close(self) -> None:
        if self.connected and self.ray is not None:
            self.ray.shutdown()
        self.ray, self.connected = None, False


class RayWorker:
    """An actor on the cluster; see `Worker`."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self.ray, self.actor, self.asked = ray, actor, None
        self.begun = actor.__ray_ready__.remote()

    def send(self, request: Any) -> None:
        self.asked = self.actor.answer.remote(request)

    def receive(self) -> Reply:
        errors = self.ray.exceptions
        try:
            if not self.ray.wait([self.begun], timeout=LONG)[0]:
                warning = "Waiting for a free CPU of the Ray cluster, to step environments on it …"
                logging.getLogger("disc").warning(warning)
            return self.ray.get(self.asked)
        except errors.RayTaskError as error:  # it could not be read there
            return None, RuntimeError(f"on a machine of the Ray cluster: {error}")
        except errors.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise Died(lines[0].rstrip(".") if lines else type(error).__name__) from error

    def stop(self) -> None:
        if self.actor is not None and self.ray.is_initialized():
            self.ray.kill(self.actor)
        self.actor = None

    def wait(self) -> None:
        self.stop()
