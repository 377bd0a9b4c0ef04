"""The command line, in this process."""

from __future__ import annotations

from pathlib import Path

from disc.cli import main


def run(*words: str | Path) -> int:
    """Exit status of a command run in this process."""
    try:
        main.main([str(word) for word in words])
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0
