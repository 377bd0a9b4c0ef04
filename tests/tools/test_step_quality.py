"""`python -m tools.step_quality` judges single updates on fresh data."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from disc.learning import networks
from disc.learning.distribution import GaussianPolicy
from tests.support.small import PPO
from tests.support.studies import write
from tools import step_quality


def gaussian(rng: np.random.Generator, log_std: float) -> GaussianPolicy:
    return GaussianPolicy(networks.init_mlp(rng, (3, 8, 2), 0.1), jnp.full(2, log_std))


def test_gain_and_penalty_equal_those_of_densities(rng: np.random.Generator) -> None:
    before, after = gaussian(rng, -0.5), gaussian(rng, -0.4)
    observation, action = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    advantage = rng.normal(size=50)
    rows = (jnp.float32(observation), jnp.float32(action), jnp.float32(advantage))
    judged = step_quality.Judge(before, *rows)

    def log_density(policy: GaussianPolicy) -> np.ndarray:
        mean, std = np.float64(policy.output(rows[0])), np.exp(np.float64(policy.log_std))
        return np.sum(-0.5 * ((action - mean) / std) ** 2 - np.log(std), axis=1)

    log_rho = log_density(after) - log_density(before)
    wanted = (np.mean((np.exp(log_rho) - 1) * advantage), 0.5 * np.mean(log_rho**2))
    assert judged(after) == pytest.approx(wanted, rel=1e-3)
    assert judged(before) == (0.0, 0.0)


def test_every_arm_updates_the_same_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [
        {"label": "base", "algo": "disc", **PPO},
        {"label": "again", "algo": "disc", **PPO},
        {"label": "slow", "algo": "disc", **PPO, "learning_rate": 1e-4},
        {"label": "recommended", "algo": "disc", "preset": "recommended", **PPO},
    ]
    study = write(tmp_path / "study.toml", tasks=["tests.support.studies:paced"], arms=arms)
    out = tmp_path / "quality.csv"
    args = ["step_quality", study, "--at", "1", "2", "--batches", "4", "--out", out]
    monkeypatch.setattr(sys, "argv", list(map(str, args)))
    step_quality.main()
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["iteration"], row["arm"]) for row in rows] == [
        (str(at), arm["label"]) for at in (1, 2) for arm in arms
    ]
    for base, again, slow, _ in (rows[:4], rows[4:]):
        assert {**again, "arm": "base"} == base
        assert 0.0 < float(slow["j_is"]) < 0.5 * float(base["j_is"])
    assert "| again | 2 | " in capsys.readouterr().out


def test_arms_of_other_algorithms_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write(tmp_path / "study.toml", arms=[{"algo": "sac"}])
    out = tmp_path / "quality.csv"
    monkeypatch.setattr(sys, "argv", ["step_quality", str(study), "--out", str(out)])
    with pytest.raises(SystemExit) as stopped:
        step_quality.main()
    assert stopped.value.code == 2
    assert "they are of sac" in capsys.readouterr().err
    assert not out.exists()
