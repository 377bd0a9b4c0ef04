"""The Python interface: an agent learns, acts, saves and loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from disc.envs.factory import Maker, Source
from disc.envs.pool import Environments
from disc.learning.algorithm import Algorithm
from disc.learning.config import DEFAULT_PRESET, Preset
from disc.policy.policies import Policy
from disc.run import loop, saving, sb3
from disc.run.directory import RunDirectory
from disc.run.training import (
    CHECKPOINT_EVERY,
    DEFAULT_TRACK,
    EVAL_EVERY,
    BestBy,
    OnNan,
    Plan,
    Track,
    Training,
    check_on_nan,
)
from disc.types import Metrics

Callback = Callable[["Agent", Metrics], Any]
"""Called after every iteration with the agent and the row; returning False stops the run."""


class Agent:
    """An algorithm, an environment, and everything that is learned.

    Args:
        env: a task's short name (`hopper`), a Gymnasium id, `package:Id-v0`,
            `package.module:factory`, an environment, or a function that makes one.
        seed: all randomness derives from it.
        num_envs: E; the horizon's N steps are split over them. Off-policy algorithms adapt
            `steps_per_update` if it is not given.
        threads: cores to use; all if None.
        workers: where several environments are stepped: `threads` of this process, `processes`,
            `ray`, or `ray:ADDRESS` of a cluster; found by a trial if None. Results do not depend
            on it.
        env_kwargs: keyword arguments for creating the environment.
        preset: where options that are not given come from: `paper`, or `recommended`.
        *others: not used; arguments of other libraries raise an error that names ours.
        **options: the algorithm's options; see its `Config`.

    Raises:
        DiscError: an option is invalid, or the environment can't be used.
    """

    algorithm: ClassVar[Algorithm]

    def __init__(
        self,
        env: Source,
        *others: Any,
        seed: int = 0,
        num_envs: int = 1,
        threads: int | None = None,
        workers: str | None = None,
        env_kwargs: dict[str, Any] | None = None,
        preset: Preset = DEFAULT_PRESET,
        **options: Any,
    ) -> None:
        name, known = type(self).__name__, dataclasses.fields(self.algorithm.Config)
        sb3.check_create(name, env, others)
        sb3.check_options(name, options, [field.name for field in known])
        self.training = Training.create(
            self.algorithm,
            env,
            seed=seed,
            num_envs=num_envs,
            threads=threads,
            workers=workers,
            env_kwargs=env_kwargs,
            preset=preset,
            options=options,
        )

    @property
    def config(self) -> Any:
        """The algorithm's options."""
        return self.training.config

    @property
    def state(self) -> Any:
        """Everything that changes during a run: networks, optimisers, replay, statistics."""
        return self.training.state

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.training.seed

    @property
    def num_envs(self) -> int:
        """E."""
        return self.training.num_envs

    @property
    def threads(self) -> int:
        """Cores that training uses."""
        return self.training.threads

    @property
    def preset(self) -> Preset:
        """The source of options that were not given: `paper` or `recommended`."""
        return self.training.preset

    @property
    def env(self) -> Environments:
        """The environments of training."""
        return self.training.env

    @property
    def maker(self) -> Maker:
        """Makes more environments of the same kind."""
        return self.training.maker

    @property
    def metrics(self) -> list[Metrics]:
        """The rows of `progress.csv`, one dictionary per iteration."""
        return self.training.rows

    @property
    def elapsed(self) -> float:
        """Seconds of training so far."""
        return self.training.elapsed

    @property
    def policy(self) -> Policy:
        """The current policy, in numpy."""
        return self.training.policy

    @property
    def best(self) -> Policy | None:
        """The policy of the best evaluation of the last `learn`, in numpy; None without one."""
        return None if self.training.best is None else self.training.best.policy

    def predict(
        self, observation: Any, deterministic: bool = True, clip: bool | None = None
    ) -> tuple[Any, None]:
        """The action for one observation or a batch of them; see `Policy.predict`."""
        return self.policy.predict(observation, deterministic, clip)

    def learn(
        self,
        steps: int | None = None,
        *,
        out: str | Path | None = None,
        eval_every: int = EVAL_EVERY,
        eval_episodes: int = 10,
        checkpoint_every: int = CHECKPOINT_EVERY,
        callbacks: Iterable[Callback] = (),
        on_nan: OnNan = "stop",
        track: Sequence[Track] = DEFAULT_TRACK,
        best: BestBy = "mean",
        stop_at: float | None = None,
        patience: int = 0,
        progress: bool = True,
        **others: Any,
    ) -> Self:
        """Train for `steps` more environment steps.

        Args:
            steps: environment steps, rounded up to whole iterations.
            out: a run directory to create; nothing is written if None.
            eval_every: steps between evaluations; 0 turns them off.
            eval_episodes: episodes per evaluation.
            checkpoint_every: steps between checkpoints; 0 turns them off. The environments are
                reset at each, even if nothing is written, so `out` does not change a run.
            callbacks: called as `callback(agent, row)` after every iteration; one that returns
                False stops the run.
            on_nan: what to do if an update gives a NaN or an infinity: `stop`, or `rollback` to the
                last checkpoint with half the step size (needs `out`).
            track: trackers that receive each row: tensorboard, wandb, mlflow. Needs `out`.
            best: evaluations are compared by their `mean`, or by a `lower` confidence bound of it.
                The policy of the best is `agent.best`, and `best.disc` in the run directory.
            stop_at: end the run when an evaluation reaches this return, compared as in `best`.
            patience: end the run after this many evaluations without a new best; 0 turns it off.
            progress: show a progress bar on standard error.
            **others: not used; arguments of other libraries raise an error that names ours.

        Returns:
            The agent itself.

        Raises:
            DiscError: an argument or the environment is invalid.
            KeyboardInterrupt: after Ctrl-C or SIGTERM, once the iteration is finished and saved.
        """
        sb3.check_learn(type(self).__name__, steps, others)
        assert steps is not None
        training, start = self.training, self.training.state.step
        plan = Plan(steps, eval_every, eval_episodes, checkpoint_every, best, stop_at, patience)
        plan = dataclasses.replace(plan, steps=start + plan.steps, limits_from=start)
        if plan.eval_every:
            with training.maker.borrowed("to evaluate in"):
                pass  # fail now rather than at the first evaluation
        check_on_nan(on_nan, out is not None)
        directory = None
        if out is not None:
            directory = RunDirectory.create(Path(out), training, plan, on_nan, track)
        training.best = None
        loop.run(training, plan, directory, [partial(x, self) for x in callbacks], progress)
        return self

    def close(self) -> None:
        """Close the environments; `with DISC(…) as agent:` does it too."""
        self.training.env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, path: str | Path) -> None:
        """Write a policy file: weights, normaliser, bounds, options, versions and scores."""
        saving.write_policy(self.training, Path(path))

    @classmethod
    def load(cls, path: str | Path, env: Source | None = None, **options: Any) -> Self:
        """An agent with the networks and the normaliser of a policy file.

        It acts as the saved one did. Further training starts from its networks, with fresh
        optimisers and an empty replay; `disc.resume` continues a run directory exactly.

        Args:
            path: a policy file, a run directory, or `zoo:NAME`.
            env: the environment; the one named in the file if None.
            **options: override those in the file; also `seed`, `num_envs`, `env_kwargs` (the
                file's, if `env` is what the file names).
        """
        file, source, options = saving.read_policy(cls.algorithm, path, env, options)
        agent = cls(source, **options)
        training = agent.training
        training.state = saving.read_networks(training.state, training.policy, file)
        training.loaded = True
        return agent
