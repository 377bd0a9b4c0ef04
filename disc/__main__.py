"""`disc`, and `python -m disc`: the command line."""

import os
import signal
from typing import Any


def main() -> None:
    """Import the command line, which takes a second or two, and run it."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
    if heard:
        signal.signal(signal.SIGINT, _end)
    from disc.cli import main as cli_main

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli_main.main()


def _end(*_: Any) -> None:
    """End at once: nothing has begun, and a stack trace of imports helps nobody."""
    os.write(2, b"disc: stopped.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
