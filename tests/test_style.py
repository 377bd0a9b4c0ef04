"""The linter and the type checker report no problems."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("tool", ["ruff check", "ruff format --check", "mypy"])
def test_linter_and_type_checker_pass(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *tool.split(), *([] if tool == "mypy" else ["."])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
