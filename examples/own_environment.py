"""Your own environment: `disc check own_environment:Rail` diagnoses it; then train and export."""

import argparse

import gymnasium as gym
import numpy as np

import disc
from disc import SAC


class Rail(gym.Env):
    """A cart on a rail: push it to the centre, and keep it there."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)  # position, velocity
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)  # force

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.uniform(-1.0, 1.0, 2), 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        position, velocity = self.state
        force = float(np.clip(action[0], -1.0, 1.0))
        velocity = velocity + 0.1 * (2.0 * force - 0.2 * velocity)
        position = position + 0.1 * velocity
        self.state, self.steps = np.array([position, velocity]), self.steps + 1
        reward = -(position**2) - 0.1 * velocity**2 - 0.01 * force**2
        left = abs(position) > 3.0  # the end of the rail
        return self.state.astype(np.float32), reward - 10.0 * left, left, self.steps == 100, {}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--out", default="runs/rail")
    options = parser.parse_args()

    agent = SAC(Rail, seed=0, widths=(64, 64), random_steps=500)
    agent.learn(options.steps, out=options.out, eval_every=1_000, eval_episodes=5)

    policy = disc.load(options.out)  # numpy only: this is what runs on the robot
    action, _ = policy.predict(np.float32([0.5, 0.0]))
    print(f"Half a metre to the right, the policy pushes with {action[0]:+.2f}.")

    disc.export(options.out, f"{options.out}/policy.h", overwrite=True)  # or .onnx, .npz
    print(f"Wrote {options.out}/policy.h.")


if __name__ == "__main__":
    main()
