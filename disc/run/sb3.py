"""Errors for calls in the style of Stable-Baselines3, which name our way in one sentence.

docs/from-sb3.md is the complete table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from disc.types import DiscError

TABLE = "(docs/from-sb3.md)"
RENAMED = {
    "n_steps": "horizon",
    "n_epochs": "epochs",
    "gae_lambda": "lam",
    "clip_range": "epsilon",
    "clip_range_vf": "value_clip",
    "vf_coef": "value_coefficient",
    "max_grad_norm": "max_gradient_norm",
    "batch_size": "gradient_steps",
    "buffer_size": "replay_size",
    "learning_starts": "random_steps",
    "train_freq": "steps_per_update",
    "gradient_steps": "updates_per_step",
    "action_noise": "exploration",
    "target_policy_noise": "target_noise",
    "ent_coef": "target_entropy",
}
"""Options that have another name here, in the algorithms that have them."""
OTHERWISE = {
    "policy": "leave it out, and give the hidden layers as widths=(64, 64)",
    "policy_kwargs": "give the hidden layers as widths=(64, 64)",
    "n_envs": "it is num_envs here",
    "verbose": "choose learn(…, progress=False)",
    "tensorboard_log": "learn(…, out=DIRECTORY) writes the events there",
    "device": "everything runs on the CPU",
}
LEARN = {
    "total_timesteps": "it is steps here: agent.learn({value})",
    "callback": "give a list of functions: callbacks=[function], called as function(agent, row)",
    "progress_bar": "it is progress here",
    "log_interval": "every iteration writes a row of progress.csv if out=DIRECTORY is given",
    "tb_log_name": "learn(…, out=DIRECTORY) writes the events there",
    "reset_num_timesteps": "a second learn continues the count; load a policy file to start at 0",
}


def check_create(agent: str, env: Any, others: tuple[Any, ...]) -> None:
    """Reject `PPO("MlpPolicy", env)`, and say what to write instead.

    Args:
        agent: the name of its class.
        env: the first argument.
        others: further arguments without a name.

    Raises:
        DiscError: the first argument is a policy, or there are others.
    """
    if isinstance(env, str) and env.endswith("Policy"):
        raise DiscError(
            f"{agent}: {env!r} is not an environment; write {agent}(env), and give the hidden "
            f"layers as widths=(64, 64) {TABLE}."
        )
    if others:
        raise DiscError(
            f"{agent}: takes one environment, and everything else by name: {agent}(env, seed=0)."
        )


def check_options(agent: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Reject an option of Stable-Baselines3 that the algorithm does not have, and name ours.

    Raises:
        DiscError: there is one.
    """
    known = set(known)
    for name in sorted(set(options) - known):
        how = OTHERWISE.get(name)
        if RENAMED.get(name) in known:
            how = f"the nearest here is {RENAMED[name]}"
        if how is not None:
            raise DiscError(f"{agent}: has no option {name}; {how} {TABLE}.")


def check_learn(agent: str, steps: Any, others: dict[str, Any]) -> None:
    """Reject `agent.learn(total_timesteps=…)`, and say what to write instead.

    Raises:
        DiscError: there are other arguments, or no steps.
    """
    for name, value in others.items():
        how = LEARN.get(name, "see help(agent.learn)").format(value=value)
        raise DiscError(f"{agent}: learn takes no {name}; {how} {TABLE}.")
    if steps is None:
        raise DiscError(f"{agent}: learn needs the number of steps: agent.learn(1_000_000).")
