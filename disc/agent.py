"""The Python interface: agents that learn, act, save and load."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Self

from numpy.typing import ArrayLike

from disc import machine, policy, recovery, runs, saving, terminal, untrusted
from disc.algos import acktr, ddpg, disc, ppo, ppo_amber, sac, sql, td3, trpo, trust_pcl
from disc.config import DEFAULT_PRESET, OLD_PRESET, Preset, make_config
from disc.envs import Environments, borrowed
from disc.policies import Policy
from disc.record import Record
from disc.runs import OnNan, RunDirectory
from disc.tasks import Maker, Source
from disc.train import Callback, Plan, interruptible, renew, train
from disc.types import Algorithm, DiscError, Floats, Metrics

SAVED = "saved"  # what a KeyboardInterrupt says after which nothing is lost


class Agent:
    """An algorithm, an environment and all that is learned.

    Args:
        env: a task's short name (`hopper`), a Gymnasium id, `package.module:factory`, an
            environment, or a function that makes one.
        seed: all randomness derives from it.
        num_envs: E; the horizon's N steps are split over them.
        threads: cores to use; all there are if None.
        env_kwargs: for making the environment.
        preset: where options that are not given come from: `paper`, or `recommended`.
        **options: the algorithm's options; see its `Config`.
    """

    algorithm: Algorithm

    def __init__(
        self,
        env: Source,
        *,
        seed: int = 0,
        num_envs: int = 1,
        threads: int | None = None,
        env_kwargs: dict[str, Any] | None = None,
        preset: Preset = DEFAULT_PRESET,
        **options: Any,
    ) -> None:
        self.config = make_config(self.algorithm, options, preset)
        self.preset: Preset = preset
        runs.check_counts(seed=seed, num_envs=num_envs, threads=threads)
        seed, num_envs = int(seed), int(num_envs)
        if (at_once := self.config.at_once) % num_envs:
            option = "horizon" if at_once == self.config.horizon else "steps_per_update"
            raise DiscError(
                f"num_envs must divide the {option}, {at_once}, and {num_envs} doesn't; give a "
                f"{option} that {num_envs} divides."
            )
        self.threads = threads or machine.available_cores()
        machine.configure_jax(self.threads)
        machine.forget_programs()
        self.maker = Maker(env, env_kwargs or {})
        self.config = self.config.suited(self.maker.name)
        self.env = Environments(self.maker, num_envs)
        self.state: Any = self.algorithm.init(self.config, self.env.spec, num_envs, seed)
        self.elapsed = 0.0  # seconds of training, over all processes that took part
        self._record = Record()
        self.unscored: Metrics | None = None  # the newest row, until it is evaluated
        self._started = False
        self._loaded = False  # its networks are from a file
        self._untraced = False  # the actions since the last reset were not kept
        self._acting: tuple[Any, Policy] | None = None

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.state.seed

    @property
    def num_envs(self) -> int:
        """E."""
        return len(self.env.lanes)

    @property
    def metrics(self) -> Record:
        """The rows of `progress.csv`, a dictionary each."""
        return self._record

    @metrics.setter
    def metrics(self, rows: Iterable[Metrics]) -> None:
        self._record = Record(rows)

    @property
    def policy(self) -> Policy:
        """The current policy, in numpy."""
        if self._acting is None or self._acting[0] is not self.state:
            acting = self.algorithm.act(self.config, self.env.spec, self.state)
            self._acting = (self.state, acting)
        return self._acting[1]

    def predict(
        self, observation: ArrayLike, deterministic: bool = True, clip: bool | None = None
    ) -> tuple[Floats, None]:
        """The action for one observation or a batch of them; see `Policy.predict`."""
        return self.policy.predict(observation, deterministic, clip)

    def learn(
        self,
        steps: int,
        *,
        out: str | Path | None = None,
        eval_every: int = runs.EVAL_EVERY,
        eval_episodes: int = 10,
        checkpoint_every: int = runs.CHECKPOINT_EVERY,
        callbacks: Iterable[Callback] = (),
        on_nan: OnNan = "stop",
        progress: bool = True,
    ) -> Self:
        """Train for `steps` more environment steps.

        Args:
            steps: environment steps, rounded up to whole iterations.
            out: a run directory to make; nothing is written if None.
            eval_every: steps between evaluations; 0 turns them off.
            eval_episodes: episodes in one.
            checkpoint_every: steps between checkpoints; 0 turns them off. The environments are
                reset at each, also if nothing is written, so that `out` does not change a run.
            callbacks: called as `callback(agent, row)` after every iteration; one that returns
                False stops the run.
            on_nan: what to do if an update gives a number that is not finite: stop, or rollback
                to the last checkpoint with half the step size (needs `out`).
            progress: show a progress bar on standard error.

        Returns:
            The agent itself.

        Raises:
            KeyboardInterrupt: after Ctrl-C or SIGTERM, once the iteration is finished and saved.
        """
        runs.check_counts(steps=steps)
        plan = Plan(self.state.step + int(steps), eval_every, eval_episodes, checkpoint_every)
        callbacks = tuple(callbacks)
        runs.check_plan(plan)
        if plan.eval_every:
            with borrowed(self.maker, "to evaluate in"):
                pass  # better to fail now than at the first evaluation
        runs.check_on_nan(on_nan, out is not None)
        directory = RunDirectory.create(Path(out), self, plan, on_nan) if out is not None else None
        return self._run(plan, directory, callbacks, progress)

    def _run(
        self,
        plan: Plan,
        directory: RunDirectory | None,
        callbacks: tuple[Callback, ...],
        progress: bool,
    ) -> Self:
        try:
            machine.forget_programs()
            return self._train(plan, directory, callbacks, progress)
        finally:
            if directory is not None:
                directory.close()

    def _train(
        self,
        plan: Plan,
        directory: RunDirectory | None,
        callbacks: tuple[Callback, ...],
        progress: bool,
    ) -> Self:
        self.config = self.config.planned(plan.steps)
        if not self._started:
            self.env.reset(self.seed, self.state.step)
            self._started = True
        elif self._untraced and (plan.checkpoint_every or directory is not None):
            renew(self)  # what was done without checkpoints can't be brought back
        self._untraced = not plan.checkpoint_every
        begun = self._loaded or self.state.step > 0
        if directory is not None and directory.saved_step is None and begun:
            directory.save(self)  # to start again from here, not from nothing
        title = f"{self.algorithm.NAME} on {self.maker.name}"
        reporter = terminal.Reporter(title, plan.steps, progress)
        replay = sum(array.nbytes for array in self.state.replay)
        reporter.say(f"The replay takes {machine.size(replay)} of memory.")
        if plan.steps <= (first := self.config.unlearned):
            reporter.say(
                f"Nothing will be learned: the first {first:,} steps are random; give more steps, "
                "or fewer random_steps."
            )

        def record(row: Metrics) -> None:
            known = {name: value for name, value in row.items() if not math.isnan(value)}
            self.metrics.append(known)
            if directory is not None:
                directory.record(row)
            reporter.update(self.state.step, known)

        def save() -> None:
            if directory is not None and not directory.has(self):
                directory.save(self)

        try:
            with interruptible(reporter.say) as interrupted:
                say = reporter.say
                again = partial(train, self, plan, record, save, say, interrupted, callbacks)
                outcome = recovery.persist(self, again, directory, say)
                if directory is not None and not plan.checkpoint_every:
                    renew(self)  # the actions since the start were not kept
                save()
        finally:
            reporter.close()
        if outcome == "interrupted":
            raise KeyboardInterrupt(SAVED)
        return self

    def close(self) -> None:
        """Close the environments; `with DISC(…) as agent:` does it too."""
        self.env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, path: str | Path) -> None:
        """Write a policy file: weights, normaliser, bounds, options, versions and scores."""
        saving.write_policy(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, env: Source | None = None, **options: Any) -> Self:
        """An agent with the networks and the normaliser of a policy file.

        It acts as the saved one did. Learning goes on from its networks with fresh optimisers
        and an empty replay; `disc.resume` goes on exactly, from a run directory.

        Args:
            path: a policy file, or a run directory.
            env: the environment; the one named in the file if None.
            **options: instead of those in the file; also `seed`, `num_envs`, `env_kwargs` (the
                file's, if `env` is what the file names).
        """
        file = policy.read(policy.locate(path))
        info = file.info
        if info.get("algorithm") != cls.algorithm.NAME:
            raise DiscError(
                f"{path}: a policy of {info.get('algorithm')}, not of {cls.algorithm.NAME}."
            )
        if env is None:
            env = Maker.from_file(path, info.get("env"), info.get("env_kwargs")).source
            options = {"num_envs": info.get("num_envs", 1), **options}
        maker, kwargs = Maker(env), info.get("env_kwargs")
        if maker.name == info.get("env_name") and not maker.single and isinstance(kwargs, dict):
            options = {"env_kwargs": kwargs, **options}
        known = {field.name for field in dataclasses.fields(cls.algorithm.Config)}
        try:
            saved = {name: value for name, value in info["config"].items() if name in known}
            preset = info.get("preset", OLD_PRESET)
            options = {"seed": info["seed"], "preset": preset, **saved, **options}
        except untrusted.MALFORMED as error:
            raise DiscError(f"{path}: this policy file is not complete ({error}).") from error
        chosen = {name: value for name, value in options.items() if name in known}
        config = make_config(cls.algorithm, chosen, options["preset"])
        if config.widths != tuple(map(len, file.policy.biases[:-1])):  # before they are made
            raise DiscError(f"{path}: its networks do not have the widths {config.widths}.")
        agent = cls(env, **options)
        agent.state = saving.read_networks(agent.state, file)
        agent._loaded = True
        return agent


class DISC(Agent):
    """Dimension-wise importance sampling weight clipping (Han and Sung, 2019)."""

    algorithm = disc


class PPO(Agent):
    """Proximal policy optimisation (Schulman et al., 2017)."""

    algorithm = ppo


class PPOAMBER(Agent):
    """PPO with adaptive multi-batch experience replay (Han and Sung, 2017)."""

    algorithm = ppo_amber


class TRPO(Agent):
    """Trust-region policy optimisation (Schulman et al., 2015)."""

    algorithm = trpo


class ACKTR(Agent):
    """Actor-critic with Kronecker-factored trust regions (Wu et al., 2017)."""

    algorithm = acktr


class TrustPCL(Agent):
    """Trust-region path consistency learning (Nachum et al., 2018)."""

    algorithm = trust_pcl


class DDPG(Agent):
    """Deep deterministic policy gradient (Lillicrap et al., 2016)."""

    algorithm = ddpg


class TD3(Agent):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al., 2018)."""

    algorithm = td3


class SAC(Agent):
    """Soft actor-critic (Haarnoja et al., 2018)."""

    algorithm = sac


class SQL(Agent):
    """Soft Q-learning (Haarnoja et al., 2017)."""

    algorithm = sql


AGENTS: dict[str, type[Agent]] = {
    agent.algorithm.NAME: agent
    for agent in (DISC, PPO, PPOAMBER, TRPO, ACKTR, TrustPCL, DDPG, TD3, SAC, SQL)
}
