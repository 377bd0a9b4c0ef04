"""Networks and statistics that differ from the initial state, for tests of DDPG."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from disc.algos import ddpg
from disc.algos.ddpg import Config, Learned, State
from disc.learning import off_policy
from disc.learning.off_policy import Targets
from disc.learning.types import Moments
from tests.support.networks import layers
from tests.support.transitions import SPEC, D, S, rollout

OPTIONS: dict[str, Any] = {"widths": (5, 4), "tau": 0.25, "gamma": 0.9, "value_decay": 0.5}
OPTIONS |= {"policy_learning_rate": 0.01, "value_learning_rate": 0.03, "replay_size": 20}
CONFIG = Config(**OPTIONS)
POLICY, CRITIC = ((S, 5), (5, 4), (4, D)), ((S, 5), (5 + D, 4), (4, 1))
MEAN, VARIANCE = np.array([0.5, -1.0, 0.1]), np.array([4.0, 0.25, 0.01])


def learned() -> Learned:
    """Fresh optimisers; the targets differ from the networks."""
    networks = [
        (layers(a, *POLICY, normalized=True), (layers(b, *CRITIC, normalized=True),))
        for a, b in ((1, 2), (3, 4))
    ]
    policy, value, _ = off_policy.rest(*networks[0])
    return Learned(policy, value, Targets(*networks[1]))


def settled(steps: int = 12) -> State:
    """Networks and statistics that differ from the initial state, and stored steps."""
    state = ddpg.observe(CONFIG, ddpg.init(CONFIG, SPEC, 1, 0), rollout(steps))
    moments = Moments(100.0, MEAN, VARIANCE)
    normalizer = state.normalizer._replace(observation=moments)
    return dataclasses.replace(state, learned=learned(), normalizer=normalizer)
