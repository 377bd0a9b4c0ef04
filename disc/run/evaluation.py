"""Evaluations of a run: the policy of the best one is kept, and limits on them end the run early.

What is kept follows from the rows and from `Training.best`, which a checkpoint holds, so a resumed
run keeps the same policy and stops at the same step as an uninterrupted one. An evaluation that is
made only because the run ends is compared after the last checkpoint, so an extended run ignores it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import takewhile

import numpy as np

from disc import seeding
from disc.envs.evaluate import evaluate
from disc.policy import file as policy_file
from disc.policy.policies import Policy
from disc.run import log, saving
from disc.run.training import Best, Plan, Training
from disc.types import Metrics

RETURN = "eval/return"


def score(
    training: Training,
    policy: Policy,
    step: int,
    plan: Plan,
    say: Callable[[str], None],
    interrupted: Callable[[], bool],
    stream: int = seeding.EVALUATION,
) -> Metrics:
    """Evaluate a policy of the run, as of `step`.

    Raises:
        Interrupted: a signal arrived.
    """
    with training.maker.borrowed(f"to evaluate at step {step}") as env:
        found = evaluate(
            env,
            policy,
            plan.eval_episodes,
            training.seed,
            step,
            name=training.maker.name,
            say=say,
            stop=interrupted,
            stream=stream,
        )
    return {
        "eval/return": float(np.mean(found.returns)),
        "eval/return_std": float(np.std(found.returns)),
        "eval/length": float(np.mean(found.lengths)),
    }


def evaluated(training: Training) -> bool:
    """Whether the newest row has an evaluation."""
    return bool(training.rows) and RETURN in training.rows[-1]


def compare(training: Training, plan: Plan) -> bool:
    """Keep the policy if its evaluation, in the newest row, is the best; return whether it is."""
    best, newest = training.best, log.evaluation(training.rows[-1])
    if best is not None and plan.score(newest) <= plan.score(best.evaluation):
        return False
    tensors, info = saving.contents(training)
    found = {**newest, "episodes": plan.eval_episodes, "by": plan.best}
    info |= {"scores": log.scores(training.rows[-1:]), "best": found}
    info |= json.loads(json.dumps(training.policy.header()))  # as if read from a file
    arrays = {name: np.array(array) for name, array in tensors.items()}
    training.best = Best(arrays, policy_file.header(info))
    return True


def over(training: Training, plan: Plan) -> str | None:
    """Why the run is over; None if it is not. Limits count only if the newest row is evaluated."""
    rows, best = training.rows, training.best
    if training.state.step >= plan.steps:
        return f"all {plan.steps:,} steps are done"
    if best is None or not evaluated(training) or rows[-1]["step"] <= plan.limits_from:
        return None
    newest = plan.score(log.evaluation(rows[-1]))
    if plan.stop_at is not None and newest >= plan.stop_at:
        return f"its evaluation of {newest:,.6g} reached {plan.stop_at:,.6g}"
    since = max(best.evaluation["step"], plan.limits_from)
    recent = takewhile(lambda row: row["step"] > since, reversed(rows))
    if 0 < plan.patience <= sum(RETURN in row for row in recent):
        several = f"{plan.patience:,} evaluations were" if plan.patience > 1 else "evaluation was"
        return f"the last {several} not better than that at step {best.evaluation['step']:,}"
    return None


def reevaluate(
    training: Training,
    best: Best,
    plan: Plan,
    say: Callable[[str], None],
    interrupted: Callable[[], bool],
) -> None:
    """Evaluate the best policy of the run on other episodes.

    The best of several evaluations was partly lucky; this one is not.

    Raises:
        Interrupted: a signal arrived.
    """
    at, stream = best.evaluation["step"], seeding.REEVALUATION
    row = score(training, best.policy, at, plan, say, interrupted, stream)
    training.best = best.reevaluated(row["eval/return"], row["eval/return_std"])
