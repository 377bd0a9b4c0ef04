"""`python -m tools.slope` judges each update by the batch after it."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from disc.equations import advantages, distributions
from disc.learning import networks, normalize, snapshot
from tests.support.small import PPO
from tests.support.studies import study, write
from tools import slope, step_quality

ARMS = [
    {"label": "disc", "algo": "disc", **PPO},
    {"label": "slow", "algo": "disc", **PPO, "learning_rate": 1e-5, "learning_rate_floor": 0.0},
]
TASKS = ["tests.support.studies:paced"]


def test_slope_is_the_correlation_of_advantages_and_log_ratios(tmp_path: Path) -> None:
    cell = study(tmp_path, tasks=TASKS, arms=ARMS[:1]).cells()[0]
    first, second = (state for _, state in step_quality.train(cell, 2))
    (row,) = slope.measure(cell, 2)

    config = cell.config(cell.options, cell.arm.preset)
    replay, newest = second.replay, np.asarray(second.replay.age) == 0
    scale = normalize.scale(second.normalizer)
    observation = normalize.observations(scale, replay.observation[newest][0])
    action = replay.action[newest][0]
    log_rho = np.zeros(config.horizon)
    for state, sign in ((second, 1.0), (first, -1.0)):
        policy = state.policy.parameters
        mean = networks.forward(policy.mean, observation)
        log_rho += sign * np.float64(distributions.log_density(action, mean, policy.log_std[None]))
    steps = snapshot.steps(config, second.value.parameters, scale, replay, newest)
    advantage = np.asarray(advantages.gae(*steps)[0]).T[newest][0]
    assert row["slope"] == pytest.approx(np.corrcoef(advantage, log_rho)[0, 1], abs=1e-4)
    assert row["j_is"] == pytest.approx(0.5 * np.mean(log_rho**2), rel=1e-3)


def test_rows_and_table_cover_all_updates_of_all_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "study.toml", tasks=TASKS, arms=ARMS)
    args = ["slope", path, "--iterations", "4", "--block", "2", "--out", tmp_path / "slope.csv"]
    monkeypatch.setattr(sys, "argv", list(map(str, args)))
    slope.main()
    with (tmp_path / "slope.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["arm"], row["iteration"]) for row in rows] == [
        (str(arm["label"]), str(i)) for arm in ARMS for i in (2, 3, 4)
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| task | arm | 2 to 3 | 4 to 4 |"
    later = float(rows[2]["slope"])
    assert float(lines[2].split(" | ")[-1].rstrip("| ")) == pytest.approx(later, abs=6e-4)


@pytest.mark.parametrize(
    ("more", "changes", "says"),
    [
        ([], {}, "slope.csv"),
        (["--block", "0"], {}, "--block at least 1"),
        (["--iterations", "1"], {}, "--iterations must be at least 2"),
        ([], {"num_envs": 2}, "must have one environment"),
    ],
)
def test_bad_input_ends_with_status_2_before_training(
    more: list[str],
    changes: dict[str, int],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write(tmp_path / "study.toml", tasks=TASKS, arms=[{**ARMS[0], **changes}])
    (tmp_path / "slope.csv").touch()  # exists already
    args = ["slope", str(path), "--out", str(tmp_path / "slope.csv"), *more]
    monkeypatch.setattr(sys, "argv", args)
    with pytest.raises(SystemExit) as stopped:
        slope.main()
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err
