"""A `disc` process that receives a signal at a chosen moment, as if from outside.

`python -m faults.victim '{"moment": …, "call": …, "delay": …, "signal": …}' train …`
runs `disc train …`. Another process sends the signal, so that it can also arrive while Python's
global lock is held. Without a moment nothing is sent, and the calls and times of all moments are
written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KILLER = """
import os, sys, time
pid, number, struck = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
line = sys.stdin.readline()
if line:
    time.sleep(float(line))
    with open(struck, "w") as file:
        file.write(repr(time.time()))
    os.kill(pid, number)
"""

WRITING = ("checkpoint", "policy", "best", "record")
MOMENTS = ("starting", "sampling", "updating", "evaluating", *WRITING)
"""The moments of a process."""


class Plan:
    """When to send the signal, and the calls so far."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.moment, self.call = task.get("moment"), task.get("call", 1)
        self.delay, self.calls = task.get("delay", 0.0), dict.fromkeys(MOMENTS, 0)
        self.seconds = dict.fromkeys(MOMENTS, 0.0)
        self.killer: subprocess.Popen[str] | None = None
        if self.moment is not None:
            arguments = [str(os.getpid()), str(task["signal"]), task["struck"]]
            command = [sys.executable, "-I", "-S", "-c", KILLER, *arguments]
            self.killer = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def enter(self, moment: str) -> None:
        """Count a call; if it is the chosen one, trigger the signal."""
        self.calls[moment] += 1
        if (moment, self.calls[moment]) == (self.moment, self.call):
            assert self.killer is not None
            assert self.killer.stdin is not None
            self.killer.stdin.write(f"{self.delay}\n")
            self.killer.stdin.flush()

    def watched(self, moment: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with `enter` before it."""

        def watch(*args: Any, **kwargs: Any) -> Any:
            self.enter(moment)
            clock = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[moment] += time.perf_counter() - clock

        return watch


def main() -> None:
    """Run the command line with every moment watched."""
    task = json.loads(sys.argv[1])
    plan = Plan(task)
    plan.enter("starting")
    from disc.algos import ALGORITHMS
    from disc.cli import main as cli_main
    from disc.run import checkpoint, evaluation, log, loop, saving

    places: list[tuple[str, Any, str]] = [
        ("sampling", loop, "collect"),
        ("evaluating", evaluation, "evaluate"),
        ("checkpoint", checkpoint, "save"),
        ("policy", saving, "write_policy"),
        ("best", saving, "write_best"),
        ("record", log.ProgressFile, "append"),
        *(("updating", module, "update") for module in ALGORITHMS.values()),
    ]
    for moment, place, name in places:
        setattr(place, name, plan.watched(moment, getattr(place, name)))
    cli_main.main(sys.argv[2:])
    if task.get("measured"):
        found = {
            moment: {"calls": plan.calls[moment], "seconds": plan.seconds[moment]}
            for moment in MOMENTS
        }
        Path(task["measured"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
