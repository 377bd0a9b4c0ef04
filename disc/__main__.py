"""`disc`, and `python -m disc`: the command line."""

import gc
import os
import signal
from typing import Any


def main() -> None:
    """Import the command line, which takes a second or two, and run it."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False if it is ignored
    if heard:
        signal.signal(signal.SIGINT, _end)
    gc.disable()  # imports leave no garbage to collect
    from disc.cli import main as cli_main

    gc.freeze()  # the collector skips what they allocated
    gc.enable()
    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli_main.main()


def _end(*_: Any) -> None:
    """Exit at once, without a stack trace of imports; nothing has started yet."""
    os.write(2, b"disc: stopped.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
