"""Discrete actions, and the best policy of a run: CartPole until it is solved."""

import argparse

import gymnasium as gym

import disc
from disc import DISC


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--out", default="runs/cartpole")
    options = parser.parse_args()

    agent = DISC("CartPole-v1", seed=0)
    agent.learn(options.steps, out=options.out, eval_every=4_096, stop_at=500.0)

    policy = disc.load(options.out, best=True)
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=1)
    total, done = 0.0, False
    while not done:
        action, _ = policy.predict(observation)  # an int
        observation, reward, terminated, truncated, _ = env.step(action)
        total, done = total + float(reward), terminated or truncated
    print(f"One more episode with the best policy: {total:,.0f}.")


if __name__ == "__main__":
    main()
