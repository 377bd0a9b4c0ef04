"""Ctrl-C and SIGTERM as a flag that the loop checks, so that a run can save before it stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def interruptible(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C or SIGTERM has arrived.

    A second Ctrl-C raises as usual; a second SIGTERM, which some schedulers send, is ignored.
    Outside the main thread, where no handler can be set, signals are left alone.
    """
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        if len(received) == 1:
            with suppress(RuntimeError):  # it arrived in the middle of another message
                say("Finishing this iteration …")

    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
