"""A run in memory: its options, the environments, and everything that changes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

from disc import host
from disc.algos import check_actions
from disc.envs.factory import Maker, Source
from disc.envs.pool import Environments, check_workers
from disc.learning import normalize
from disc.learning.algorithm import Algorithm
from disc.learning.config import Preset, make_config
from disc.options import Checker, convert, convert_fields, count
from disc.policy import file as policy_file
from disc.policy.policies import Policy
from disc.types import DiscError, Floats, Metrics

EVAL_EVERY = 100_000
CHECKPOINT_EVERY = 100_000
Track = Literal["tensorboard", "wandb", "mlflow"]
"""What receives the rows of a run; see `disc.run.trackers`."""
DEFAULT_TRACK: tuple[Track, ...] = ("tensorboard",)
BestBy = Literal["mean", "lower"]
OnNan = Literal["stop", "rollback"]


def check_on_nan(choice: str, written: bool) -> None:
    """Raise a `DiscError` if it is not a choice, or needs a run directory and there is none."""
    if convert("on_nan", choice, OnNan) == "rollback" and not written:
        raise DiscError("on_nan='rollback' returns to a checkpoint, so it needs out=…")


@dataclass(frozen=True)
class Plan:
    """How long to train, and when to evaluate and save. In environment steps; 0 means never."""

    steps: int
    eval_every: int
    eval_episodes: int
    checkpoint_every: int
    best: BestBy = "mean"  # by which evaluations are compared
    stop_at: float | None = None  # the run ends when an evaluation reaches it
    patience: int = 0  # the run ends after this many evaluations without a new best
    limits_from: int = 0  # these two count evaluations after this step

    def __post_init__(self) -> None:
        """Raise a `DiscError` that names the first option that is invalid."""
        convert_fields(self)
        check = Checker(self)
        check.counts("steps", "eval_every", "eval_episodes", "checkpoint_every")
        check.counts("patience", "limits_from")
        check("stop_at", self.stop_at is None or math.isfinite(self.stop_at), "a finite number")
        if not self.eval_every and (self.stop_at is not None or self.patience):
            raise DiscError(
                "stop_at and patience need evaluations, which eval_every 0 turns off; set "
                "eval_every above 0."
            )
        if self.eval_every and self.best == "lower" and self.eval_episodes < 2:
            raise DiscError("best 'lower' needs at least two eval_episodes, to estimate a spread.")

    def evaluates(self, before: int, after: int) -> bool:
        """Whether to evaluate after an iteration from step `before` to `after`."""
        return self.eval_every > 0 and (after >= self.steps or self.schedules(before, after))

    def schedules(self, before: int, after: int) -> bool:
        """Whether an evaluation is due, however long the run is."""
        return due(self.eval_every, before, after)

    def score(self, evaluation: Mapping[str, float]) -> float:
        """The number by which an evaluation is compared: its mean, or two standard errors less.

        With ten episodes the latter is a confidence bound of 96 % (Student's t).
        """
        error = evaluation["return_std"] / math.sqrt(max(1, self.eval_episodes - 1))
        return evaluation["return"] - (2.0 * error if self.best == "lower" else 0.0)

    def saves(self, before: int, after: int) -> bool:
        """Whether a checkpoint is due after an iteration from step `before` to `after`."""
        return due(self.checkpoint_every, before, after)


PLANNED = tuple(x.name for x in dataclasses.fields(Plan) if x.name != "limits_from")
"""The options of a plan that users choose."""


def due(every: int, before: int, after: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]."""
    return every > 0 and after // every > before // every


class Best(NamedTuple):
    """The policy of the best evaluation so far: the contents of `best.disc`."""

    tensors: dict[str, Floats]
    info: dict[str, Any]  # the header; `best` has the evaluation

    @property
    def evaluation(self) -> dict[str, Any]:
        """`step`, `return`, `return_std`, `episodes`, `by`; at the end of a run `reevaluated`."""
        return self.info["best"]

    @property
    def policy(self) -> Policy:
        """In numpy."""
        return policy_file.build(policy_file.BEST, self.tensors, self.info)

    def reevaluated(self, mean: float, std: float) -> Best:
        """The same policy, with a second evaluation on other episodes."""
        found = {"return": mean, "return_std": std, "episodes": self.evaluation["episodes"]}
        evaluation = {**self.evaluation, "reevaluated": found}
        return self._replace(info={**self.info, "best": evaluation})


def check_evaluation(best: dict[str, Any]) -> None:
    """Raise if a record of the best evaluation, perhaps re-evaluated, is invalid."""
    count("steps", best["step"])
    count("eval_episodes", best["episodes"])
    for found in (best, best.get("reevaluated", best)):
        for name in ("return", "return_std"):
            convert(name, found[name], float)


@dataclass
class Training:
    """Everything that the loop, a checkpoint and a run directory need to know about a run.

    Fields that do not change come first. `Training.create` checks them and makes the rest.
    """

    algorithm: Algorithm
    maker: Maker
    threads: int
    preset: Preset
    config: Any  # the algorithm's Config; a rollback halves its step sizes
    env: Environments
    state: Any  # the algorithm's State
    elapsed: float = 0.0  # seconds of training, over all processes of the run
    rows: list[Metrics] = field(default_factory=list)  # of progress.csv
    pending: Metrics | None = None  # the newest row, until it is evaluated and recorded
    best: Best | None = None  # of the evaluations so far
    started: bool = False  # the environments have been reset
    loaded: bool = False  # the networks come from a policy file
    traced: bool = True  # env.actions_since_reset is complete
    _policy: tuple[Any, Policy] | None = None  # of a state

    @classmethod
    def create(
        cls,
        algorithm: Algorithm,
        source: Source,
        *,
        seed: int,
        num_envs: int,
        threads: int | None,
        workers: str | None = None,
        env_kwargs: Mapping[str, Any] | None,
        preset: Preset,
        options: dict[str, Any],
    ) -> Self:
        """Check the options, make the environments and an initial state.

        Raises:
            DiscError: an option is invalid, or the environment can't be used.
        """
        seed, num_envs = count("seed", seed), count("num_envs", num_envs)
        threads = host.available_cores() if threads is None else count("threads", threads)
        check_workers(workers)
        maker = Maker(source, env_kwargs or {})
        num_envs = maker.num_envs(num_envs)
        config = make_config(algorithm, options, preset, num_envs)
        config.check_num_envs(num_envs)
        host.configure_jax(threads)
        host.forget_programs()
        config = config.for_task(maker.name)
        env = Environments(maker, num_envs, workers)
        check_actions(algorithm, env.spec, maker.name)
        config = config.for_actions(env.spec.action_size)
        state = algorithm.init(config, env.spec, num_envs, seed)
        return cls(algorithm, maker, threads, preset, config, env, state)

    @property
    def seed(self) -> int:
        """All randomness derives from it."""
        return self.state.seed

    @property
    def num_envs(self) -> int:
        """E."""
        return self.env.count

    @property
    def workers(self) -> str | None:
        """Where the environments are stepped, if that was chosen."""
        return self.env.workers

    @property
    def policy(self) -> Policy:
        """The current policy, in numpy."""
        if self._policy is None or self._policy[0] is not self.state:
            acting = self.algorithm.act(self.config, self.env.spec, self.state)
            if not self.env.layout.plain:
                acting = replace(acting, layout=self.env.layout)
            self._policy = (self.state, acting)
        return self._policy[1]

    def renew_episodes(self) -> None:
        """Start new episodes in new environments; episodes in progress are cut off."""
        self.env.reset(self.seed, self.state.step)
        self.state = replace(self.state, normalizer=normalize.cut(self.state.normalizer))
