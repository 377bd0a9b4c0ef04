"""Your own algorithm in one file: PPO with advantages reduced to their signs.

    python plugin.py

With the entry point `disc.algorithms`, a package also works with `disc train --algo`
(CONTRIBUTING.md).
"""

import argparse
from dataclasses import dataclass

import jax.numpy as jnp

import disc
from disc.algos import ppo
from disc.algos.ppo import State, act, explore, init, observe  # noqa: F401
from disc.learning import actor_critic

NAME = "sign-ppo"
AGENT = "SignPPO"


@dataclass(frozen=True)
class Config(ppo.Config):
    """PPO's options, and one more."""

    magnitude: float = 1.0
    """Size of every advantage."""


def update(config, state, threads):
    """One iteration: PPO's, with another loss."""
    return actor_critic.improve(config, state, threads, ppo.estimate, policy_loss)


def policy_loss(config, policy, rows, coefficients):
    """PPO's loss on rows whose advantages are ±magnitude; padding stays 0."""
    signs = config.magnitude * jnp.sign(rows.advantage)
    return ppo.policy_loss(config, policy, rows._replace(advantage=signs), coefficients)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--out", default="runs/sign-ppo")
    options = parser.parse_args()
    import plugin  # this file as a module

    disc.register(plugin)
    agent = disc.SignPPO("Hopper-v5", seed=0)
    agent.learn(options.steps, out=options.out, eval_every=options.steps // 5)


if __name__ == "__main__":
    main()
