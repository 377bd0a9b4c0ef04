"""Comparing run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from disc.run import log

PLAN: dict[str, Any] = {
    "checkpoint_every": 512, "eval_every": 512, "eval_episodes": 1, "progress": False,
}  # fmt: skip


def assert_same_run(a: Path, b: Path) -> None:
    """Parameters, optimisers, statistics, replay, environments, policies and progress are equal."""
    newest = [max((run / "checkpoints").iterdir()) for run in (a, b)]
    for files in (newest, [run / "policy.disc" for run in (a, b)]):
        first, second = (load_file(file) for file in files)
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    kept = [run / "best.disc" for run in (a, b)]
    assert kept[0].exists() == kept[1].exists()
    assert not kept[0].exists() or kept[0].read_bytes() == kept[1].read_bytes()
    first_rows, second_rows = (log.read_progress(run / "progress.csv") for run in (a, b))
    assert [untimed(row) for row in first_rows] == [untimed(row) for row in second_rows]


def untimed(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if not name.startswith("time/")}
