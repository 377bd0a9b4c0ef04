"""The command line, in this process or in a new one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from disc.cli import main


def run(*words: str | Path) -> int:
    """Exit status of a command run in this process."""
    try:
        main.main([str(word) for word in words])
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


def process(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command run in a new process to its end."""
    command = [sys.executable, "-m", "disc", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
