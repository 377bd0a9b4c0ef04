"""C compilers, with warnings as errors."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

STRICT = ["-O1", "-Wall", "-Wextra", "-pedantic", "-Werror"]


def compiler(name: str) -> Any:
    missing = shutil.which(name) is None
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"{name} is missing"))


every_compiler = pytest.mark.parametrize("cc", [compiler("gcc"), compiler("clang")])


def build(cc: str, *words: str | Path, std: str = "-std=c99") -> None:
    command = [cc, std, *STRICT, *map(str, words), *([] if "-c" in words else ["-lm"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
