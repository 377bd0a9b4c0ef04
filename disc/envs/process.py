"""Worker processes on this machine: new interpreters that never import JAX.

A request or an answer is a pickle, preceded by its length. It travels only between this process
and its children, over their standard input and output. Forking is not an option, because JAX has
threads; the way `multiprocessing` spawns processes would import the user's script.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import spawn
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import IO, Any

from disc.envs.factory import Maker
from disc.envs.workers import Died, Reply, Server
from disc.types import DiscError

GRACE = 2.0
"""Seconds that a worker may take to close its environments when asked to end."""
LENGTH = struct.Struct("!Q")
CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from disc.envs.process import serve; serve()"
)
IMPORTING: list[str] = []
"""The user's script while a worker imports it."""


def dumps(value: Any) -> bytes:
    """A pickle.

    `ForkingPickler` gives a view of a `BytesIO`. As part of a reference cycle, such as an error and
    its traceback, it crashes the garbage collector of early versions of Python 3.12.
    """
    return bytes(ForkingPickler.dumps(value))


def _write(file: IO[bytes], data: Any) -> None:
    file.write(LENGTH.pack(len(data)))
    file.write(data)
    file.flush()


def _read(file: IO[bytes]) -> bytes | None:
    """The next message; None if the other side has closed."""
    head = file.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = file.read(size)
    return data if len(data) == size else None


class Processes:
    """Starts worker processes; see `WorkerBackend`."""

    kind = "worker process"

    def pack(self, request: Any) -> Any:
        return dumps(request)

    def pickled(self, maker: Maker) -> tuple[bytes, Any]:
        data = dumps(maker)
        if b"__main__" not in data:
            return data, {}
        found = spawn.get_preparation_data("disc")  # how to import the user's script
        return data, {name: x for name, x in found.items() if name.startswith("init_main")}

    def start(self) -> WorkerProcess:
        return WorkerProcess()

    def close(self) -> None:
        pass


class WorkerProcess:
    """A worker process; see `Worker`."""

    def __init__(self) -> None:
        paths = json.dumps([path for path in sys.path if isinstance(path, str)])
        self.process = subprocess.Popen(
            [os.fsdecode(spawn.get_executable()), "-c", CODE, paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0 if os.name == "posix" else None,  # Ctrl-C is for the parent
        )

    def send(self, request: Any) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            _write(self.process.stdin, request)

    def receive(self) -> Reply:
        assert self.process.stdout is not None
        data = _read(self.process.stdout)
        if data is None:
            self.wait()
            raise Died(_how(self.process.returncode))
        return pickle.loads(data)

    def stop(self) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def wait(self) -> None:
        self.stop()
        try:
            self.process.wait(2 * GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _how(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"exit status {code}"
    name = signal.Signals(-code).name
    return f"{name}, perhaps for lack of memory" if name == "SIGKILL" else name


def serve() -> None:
    """The main function of a worker: answer until the parent closes the pipe or exits."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to end
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # an environment may print
    received: SimpleQueue[bytes | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(requests, received), daemon=True).start()
    server = Server(_import_main)
    while (data := received.get()) is not None:
        try:
            reply = server.answer(pickle.loads(data))
        except Exception as error:  # it needs a module that is missing here
            reply = (None, RuntimeError(f"a worker can't read a request ({error})"))
        with suppress(OSError):
            _write(answers, dumps(reply))
    server.close()
    os._exit(0)  # without waiting for threads of an environment


def _listen(requests: IO[bytes], received: SimpleQueue[bytes | None]) -> None:
    """Pass requests on; notice at any time if the parent exits."""
    while (data := _read(requests)) is not None:
        received.put(data)
    received.put(None)
    time.sleep(GRACE)
    os._exit(1)


def _import_main(found: dict[str, Any]) -> None:
    """Import the user's script, which defines the environment."""
    if found:
        IMPORTING.append(str(found.get("init_main_from_path") or found["init_main_from_name"]))
        try:
            spawn.prepare(found)
        finally:
            IMPORTING.clear()


def check_importing() -> None:
    """Refuse to train in a script that is being imported by a worker.

    Raises:
        DiscError: says how to write the script.
    """
    if IMPORTING:
        raise DiscError(
            f"{IMPORTING[0]}: worker processes import this script, which defines the environment, "
            "so put the lines that train under `if __name__ == '__main__':`, or define the "
            "environment in another module."
        )
