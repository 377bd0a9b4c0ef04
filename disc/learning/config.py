"""Options that algorithms share; each algorithm's module adds its own.

A field's docstring is its help text, and gives the source of the default in brackets.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar

from disc.learning.algorithm import Algorithm
from disc.options import LARGEST, Checker, convert, convert_fields
from disc.types import DiscError

Preset = Literal["recommended", "paper"]
"""`recommended` uses the defaults of the fields, `paper` the settings of the paper."""
DEFAULT_PRESET: Preset = "paper"
"""Used until the recommended settings have been measured on all tasks."""
OLD_PRESET: Preset = "paper"
"""The preset of old runs and policies whose files do not name one."""
MOST_ROUND = 10_000  # steps of an environment between updates, if not chosen


@dataclass(frozen=True)
class CommonConfig:
    """Options of every algorithm."""

    paper: ClassVar[dict[str, Any]] = {}
    """The options for which the preset `paper` differs from the defaults."""
    host_only: ClassVar[tuple[str, ...]] = ()
    """Options that no compiled program reads; see `compiled`."""
    removed: ClassVar[dict[str, Any]] = {}
    """Removed options that old files name, with the value that the current code implements."""
    by_actions: ClassVar[tuple[str, ...]] = ()
    """Options that `for_actions` fills in."""
    discrete_actions: ClassVar[bool] = False
    """Whether the algorithm learns discrete actions too."""
    needs_bounds: ClassVar[bool] = False
    """Whether the algorithm refuses unbounded actions."""
    normalizes_observations: ClassVar[bool] = False
    """Whether the networks see observations divided by their running standard deviation."""
    normalizes_rewards: ClassVar[bool] = False
    """Whether rewards are divided by the running standard deviation of the return."""

    horizon: int = 2048
    """N: environment steps in a batch, over all environments (paper, Table A.1)."""
    gamma: float = 0.99
    """Discount factor γ (paper, Table A.1, and the originals)."""
    widths: tuple[int, ...] = (64, 64)
    """Hidden layer sizes of the policy and the value network (paper, Table A.1, and ACKTR's
    published code)."""
    bootstrap_time_limits: bool = True
    """Bootstrap from the final observation if a time limit ended the episode; the original treats
    it as terminal."""

    def __post_init__(self) -> None:
        """Raise a `DiscError` that names the option if a value is invalid."""
        convert_fields(self)
        check = Checker(self)
        check.at_least(1, "horizon")
        check.within(0, 1, "gamma")
        layers = 0 < len(self.widths) <= 100 and min(self.widths) >= 1
        check("widths", layers, "layers of 1 unit or more, 100 at most")

    @property
    def at_once(self) -> int:
        """Steps collected before an update; the horizon is a multiple of it."""
        return self.horizon

    @property
    def unlearned(self) -> int:
        """Initial steps without updates."""
        return 0

    def check_num_envs(self, num_envs: int) -> None:
        """Raise a `DiscError` unless `num_envs` divides the steps collected per update."""
        if self.at_once % num_envs:
            option = "horizon" if self.at_once == self.horizon else "steps_per_update"
            raise DiscError(
                f"num_envs must divide the {option}, {self.at_once}, but {num_envs} does not; "
                f"use a {option} that is a multiple of {num_envs}."
            )

    @classmethod
    def fit(cls, options: dict[str, Any], num_envs: int) -> dict[str, Any]:
        """The options, with those that were not chosen adapted to the number of environments."""
        return options

    def rounds(self, num_envs: int) -> str:
        """A sentence on how several environments affect the updates; empty if they do not."""
        return ""

    def for_task(self, task: str) -> Self:
        """The config with the defaults that depend on the environment's name filled in."""
        return self

    def for_actions(self, dimensions: int) -> Self:
        """The config with the defaults that depend on the size of actions filled in."""
        return self

    def for_steps(self, steps: int) -> Self:
        """The config with the defaults that depend on the run's steps filled in."""
        return self

    def with_halved_steps(self) -> Self:
        """The config with every learning rate and trust region halved."""
        names = [field.name for field in fields(self)]
        sizes = [n for n in names if "learning_rate" in n or "kl" in n.split("_")]
        return replace(self, **{name: 0.5 * getattr(self, name) for name in sizes})

    def compiled(self) -> Self:
        """The config as compiled programs see it: other options do not recompile them."""
        return _compiled(self)


Options = TypeVar("Options", bound=CommonConfig)


@cache
def _compiled(config: Options) -> Options:
    names = config.host_only
    defaults: dict[str, Any] = {x.name: x.default for x in fields(config) if x.name in names}
    return replace(config, **defaults)


@dataclass(frozen=True)
class GaussianConfig(CommonConfig):
    """Options of the algorithms with an unbounded Gaussian policy."""

    normalizes_observations: ClassVar[bool] = True
    normalizes_rewards: ClassVar[bool] = True

    clip_actions: bool = False
    """Clip actions to their bounds before passing them to the environment (authors' code, and
    the originals of TRPO and Trust-PCL: no)."""


@dataclass(frozen=True)
class OffPolicyConfig(CommonConfig):
    """Options shared by DDPG, TD3, SAC and SQL."""

    needs_bounds: ClassVar[bool] = True

    horizon: int = 200
    """Environment steps per row of progress.csv, over all environments; a run can stop only
    between rows. Does not affect learning, except through the steps at which checkpoints are saved
    (ours)."""
    steps_per_update: int = 1
    """Environment steps collected before each update, over all environments (originals)."""
    updates_per_step: float = 1.0
    """Gradient steps per environment step (originals)."""
    random_steps: int | None = None
    """Initial steps with uniformly random actions and no updates. By default 10,000 on
    HalfCheetah and Ant (original of TD3) and on the Humanoids (ours), 1,000 elsewhere."""
    replay_size: int = 1_000_000
    """Capacity of the replay in transitions; the oldest are overwritten (originals)."""
    batch_size: int = 256
    """Transitions per gradient step."""
    bootstrap_time_limits: bool = True
    """Bootstrap from the final observation if a time limit ended the episode (originals)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.at_least(1, "steps_per_update", "replay_size", "batch_size")
        check.above_zero("updates_per_step")
        check.at_least(0, "random_steps")
        steps, updates = self.steps_per_update, self.updates_per_step * self.steps_per_update
        check(
            "updates_per_step",
            _whole(updates),
            f"a multiple of 1 / steps_per_update, 1/{steps}",
        )
        check("horizon", self.horizon % steps == 0, f"divisible by steps_per_update, {steps}")

    @property
    def at_once(self) -> int:
        """Steps collected before an update."""
        return self.steps_per_update

    @property
    def unlearned(self) -> int:
        """Initial steps without updates."""
        assert self.random_steps is not None, "for_task fills it in"
        return self.random_steps

    @property
    def updates(self) -> int:
        """K: gradient steps per update."""
        return round(self.updates_per_step * self.steps_per_update)

    @property
    def rows(self) -> int:
        """Rows that a network processes in a gradient step."""
        return self.batch_size

    @classmethod
    def fit(cls, options: dict[str, Any], num_envs: int) -> dict[str, Any]:
        """Collect one step or more from each environment between updates, if not chosen.

        Without a choice, `steps_per_update` becomes the least multiple of `num_envs` that is at
        least its default and gives whole numbers of gradient steps, and `horizon` a multiple.
        """
        if num_envs == 1 or "steps_per_update" in options:
            return options
        defaults: dict[str, Any] = {x.name: x.default for x in fields(cls)} | options
        least = defaults["steps_per_update"]
        rate = convert("updates_per_step", defaults["updates_per_step"], float)
        multiples = range(num_envs * -(-least // num_envs), MOST_ROUND * num_envs, num_envs)
        steps = next((n for n in multiples if _whole(rate * n)), least)
        fitted = {"steps_per_update": steps}
        if "horizon" not in options:
            fitted["horizon"] = steps * -(-defaults["horizon"] // steps)
        return {**options, **fitted}

    def rounds(self, num_envs: int) -> str:
        """The steps between updates."""
        return (
            f"{num_envs} environments take {self.steps_per_update} steps together between updates "
            f"(steps_per_update), and an update has {self.updates} gradient steps."
        )

    def for_task(self, task: str) -> Self:
        """Fill in the number of random steps."""
        if self.random_steps is not None:
            return self
        large = task.startswith(("HalfCheetah-", "Ant-", "Humanoid"))
        return replace(self, random_steps=10_000 if large else 1_000)


@dataclass(frozen=True)
class BatchConfig(GaussianConfig):
    """Options shared by PPO, PPO-AMBER and DISC; those about σ only affect continuous actions."""

    discrete_actions: ClassVar[bool] = True
    host_only: ClassVar[tuple[str, ...]] = (
        "epochs", "value_epochs", "learning_rate", "learning_rate_floor", "anneal_steps",
        "initial_std", "halve_std", "final_std", "std_rate", "noise_color",
    )  # fmt: skip

    epochs: int = 10
    """Passes over the newest batch per iteration (paper, Table A.1)."""
    value_epochs: int | None = None
    """Passes of the value network over the newest batch; as many as `epochs` if None (paper)."""
    gradient_steps: int = 32
    """Gradient steps per epoch; the newest batch contributes N / gradient_steps samples to each
    minibatch (paper, Table A.1)."""
    lam: float = 0.95
    """λ of the advantage estimator (paper, Table A.1)."""
    learning_rate: float = 3e-4
    """Adam's initial learning rate β (paper, Table A.1)."""
    learning_rate_floor: float = 1e-4
    """Minimum of the learning rate, which anneals linearly to 0 (paper, Table A.1)."""
    anneal_steps: int | None = None
    """Environment steps over which the learning rate anneals, and over which σ falls with
    `final_std`; may be more than the run's steps. The run's steps if None."""
    initial_std: float | None = None
    """Initial σ of each action dimension, as a fraction of half its range (ours). σ starts at 1 if
    the range is infinite or this is None (authors' code)."""
    halve_std: bool = False
    """Halve the initial σ if actions have more than 6 dimensions, or if no episode terminated in
    the first batch; and use independent noise while no episode terminates (ours)."""
    final_std: float | None = None
    """σ is not learned, but falls geometrically over `anneal_steps` to this fraction of its initial
    value (ours). Learned if None or 0 (paper)."""
    std_rate: float = 1.0
    """Learning rate of log σ as a fraction of that of the mean (authors' code: 1)."""
    noise_color: float | None = None
    """β: the noise of successive actions is correlated, with the power spectrum 1/f^β (Hollenstein
    et al., 2024). Independent if None or 0 (paper)."""
    value_coefficient: float = 0.5
    """Coefficient of the value loss (authors' code)."""
    value_clip: bool = True
    """Clip the value to within ε of its old value, as PPO does with ratios (authors' code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = Checker(self)
        check.at_least(1, "epochs", "value_epochs", "gradient_steps")
        check.within(0, 1, "lam")
        check.at_least(0, "learning_rate_floor", "value_coefficient")
        check.rate("learning_rate")
        check.at_least(0, "std_rate")
        check.above_zero("initial_std")
        check.within(0, 1, "final_std")
        check.within(0, 2, "noise_color")
        check(
            "learning_rate_floor",
            self.learning_rate_floor <= self.learning_rate,
            f"at most the learning rate, {self.learning_rate:g}",
        )
        check.at_least(1, "anneal_steps")
        check(
            "horizon",
            self.horizon % self.gradient_steps == 0,
            f"divisible by gradient_steps, {self.gradient_steps}",
        )

    def for_steps(self, steps: int) -> Self:
        """Anneal over the run's steps by default."""
        return replace(self, anneal_steps=self.anneal_steps or steps)


def _whole(updates: float) -> bool:
    """Whether a number of gradient steps is a whole number."""
    return 1 <= updates < LARGEST and abs(updates - round(updates)) < 1e-6


def stored_options(algorithm: Algorithm, stored: dict[str, Any]) -> dict[str, Any]:
    """All options of a file. One that is newer than the file has the paper's value.

    Files store every option, and the paper's value of a new option is what the code did before.
    """
    return {**algorithm.Config.paper, **stored}


def make_config(
    algorithm: Algorithm, options: dict[str, Any], preset: str = DEFAULT_PRESET, num_envs: int = 1
) -> Any:
    """The algorithm's config: `options` override the preset, which overrides the defaults.

    Options that depend on the number of environments are adapted to it, if they are not given.

    Raises:
        DiscError: the algorithm has no such option, or a value is invalid.
    """
    preset = convert("preset", preset, Preset)
    known = [field.name for field in fields(algorithm.Config)]
    for name, value in algorithm.Config.removed.items():
        if options.get(name, value) != value:
            raise DiscError(f"{algorithm.NAME} no longer has the option {name}={options[name]!r}.")
    options = {k: v for k, v in options.items() if k not in algorithm.Config.removed}
    for name in options:
        if name not in known:
            raise DiscError(f"{algorithm.NAME} has no option {name}; it has {', '.join(known)}.")
    if preset == "paper":
        left_open = [k for k in algorithm.Config.by_actions if options.get(k, 0) is None]
        options = {**algorithm.Config.paper, **options}
        options |= {k: algorithm.Config.paper[k] for k in left_open}
    return algorithm.Config(**algorithm.Config.fit(options, num_envs))
