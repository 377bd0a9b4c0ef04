"""Policies of every kind to export: trained ones of tests/samples, and made ones of odd shapes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disc.policy import file
from tests.support import policies

SAMPLES = Path(__file__).parents[1] / "samples"
TRAINED = [
    "version-1/disc",
    *(f"version-2/{name}" for name in ("disc", "trust-pcl", "td3", "sac", "sql")),
    "categorical/ppo",
    "nested-observations",
    # disc train InvertedPendulum-v5 --algo ppo --steps 60_000 --widths 16 16 --horizon 1024
    #   --gradient-steps 16 --threads 1
    "inverted-pendulum",
    # disc train Pendulum-v1 --algo ddpg --steps 4_000 --widths 16 16 --threads 1
    "ddpg",
]
MADE = [*policies.KINDS, "binary", "multi", "unbounded", "one-sided", "clipped"]
every_policy = pytest.mark.parametrize("name", [*TRAINED, *MADE])


def policy_file(name: str, folder: Path) -> Path:
    """The path of a policy file."""
    if name in TRAINED:
        return SAMPLES / name / "policy.disc"
    acting: Any
    if name in policies.KINDS:
        acting, _ = policies.make(name)
    elif name in ("binary", "multi"):
        acting, _ = policies.make_categorical(name)
    else:
        acting = file.load(SAMPLES / "inverted-pendulum" / "policy.disc")
        sides = {
            "unbounded": (-np.inf, np.inf),
            "one-sided": (-np.inf, 0.5),
            "clipped": (-0.01, 1e-3),
        }
        low, high = (np.float32([bound]) for bound in sides[name])
        acting = dataclasses.replace(acting, action_low=low, action_high=high)
    tensors, header = policies.contents(acting)
    file.write(folder / "made.disc", tensors, {"env_name": name, "algorithm": "none", **header})
    return folder / "made.disc"
