"""The options of each command: a field's docstring is its help text."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from tyro.conf import OmitArgPrefixes, Positional, arg

from disc.algos import ALGORITHMS
from disc.learning.config import DEFAULT_PRESET, Preset, make_config
from disc.options import RANGES, Checker
from disc.run.trackers import check_track
from disc.run.training import (
    CHECKPOINT_EVERY,
    DEFAULT_TRACK,
    EVAL_EVERY,
    PLANNED,
    BestBy,
    OnNan,
    Plan,
    Track,
)

Workers = Annotated[str | None, arg(metavar="threads|processes|ray[:ADDRESS]")]


def parse_values(texts: dict[str, str]) -> dict[str, Any]:
    """Parse keyword arguments from the command line: JSON, or else text."""
    values: dict[str, Any] = dict(texts)
    for name, text in texts.items():
        with suppress(ValueError):
            values[name] = json.loads(text)
    return values


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a policy."""

    env: Positional[str]
    """A task (`disc list`), a Gymnasium id, package:Id-v0 (an id that a package registers, such as
    shimmy:dm_control/walker-walk-v0), or package.module:factory."""
    algo: Literal[tuple(ALGORITHMS)] = "disc"  # type: ignore[valid-type]
    """The algorithm; its options are the config options below."""
    preset: Preset = DEFAULT_PRESET
    """Defaults of the config options: the paper's settings, or ours, which are provisional
    (docs/disc.md)."""
    steps: int = 1_000_000
    """Environment steps."""
    seed: int = 0
    """Random seed; all randomness derives from it."""
    out: Path | None = None
    """The run directory, which must be new or empty. By default runs/ENV_ALGO_seedN."""
    threads: int | None = None
    """Cores to use; all by default. Use 1 for several runs in parallel."""
    num_envs: int = 1
    """Number of environments. The steps collected per update (--horizon; for off-policy algorithms
    --steps-per-update, which is adapted) are split over them."""
    workers: Workers = None
    """Where several environments are stepped: threads, processes, ray or ray:ADDRESS (a cluster).
    By default a short trial decides between threads and processes. The results are the same."""
    env_kwargs: Annotated[dict[str, str], arg(metavar="NAME VALUE ...")] = dataclasses.field(
        default_factory=dict
    )
    """Keyword arguments for creating the environment; values are JSON, or else text."""
    eval_every: int = EVAL_EVERY
    """Steps between evaluations; 0 turns them off."""
    eval_episodes: int = 10
    """Episodes in an evaluation."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Steps between checkpoints; 0 keeps only the one at the end."""
    on_nan: OnNan = "stop"
    """What to do if an update produces a non-finite value: stop, or return to the last checkpoint
    with half the step size, up to five times."""
    track: tuple[Track, ...] = DEFAULT_TRACK
    """Trackers that receive each row of progress.csv. wandb and mlflow need the extra
    disc-rl[track] and are configured by their own variables (docs/tracking.md); --track without
    a name turns all trackers off."""
    best: BestBy = "mean"
    """Which evaluation counts as the best (its policy is kept in best.disc): the one with the
    highest mean return, or with the highest lower confidence bound (two standard errors below the
    mean)."""
    stop_at: float | None = None
    """End the run when an evaluation reaches this return, compared as in --best."""
    patience: int = 0
    """End the run after this many evaluations without a new best; 0 turns this off."""
    check: bool = True
    """Before training, try the environment for about a second and print the warnings of
    `disc check`. This does not change results."""
    plots: bool = True
    """At the end, draw curve.png and weights.png; `disc plot` can do so at any time."""
    video: bool = False
    """Record a video of the policy at the end."""
    renderer: Literal["raycast", "own"] | None = None
    """Renderer of the video: raycast (MuJoCo only, needs no graphics library), or the environment's
    own; by default raycast for MuJoCo."""

    def __post_init__(self) -> None:
        Plan(**self.plan)  # which checks it

    @property
    def plan(self) -> dict[str, Any]:
        """The options of `Plan`."""
        return {name: getattr(self, name) for name in PLANNED}


@dataclasses.dataclass(frozen=True)
class Resume:
    """Resume a run, exactly as if it had not stopped."""

    run: Positional[Path]
    """The run directory."""
    steps: int | None = None
    """Total steps; by default the number planned when the run began."""
    threads: int | None = None
    """Cores to use; by default as many as when the run began. With another number, large matrix
    products may be rounded differently."""
    workers: Workers = None
    """Where several environments are stepped; by default as when the run began. The results are
    the same. Give a cluster's address again, because a file must not choose it."""
    env: str | None = None
    """The environment. Required for a run with a package.module:factory or package:Id-v0, because a
    file must not choose what is imported."""
    on_nan: OnNan | None = None
    """What to do if an update produces a non-finite value; by default as when the run began."""
    stop_at: float | None = None
    """End the run when an evaluation reaches this return; by default as when the run began, inf
    turns it off. To continue a run that stopped early, give more --steps, or another --stop-at or
    --patience; both then count only later evaluations."""
    patience: int | None = None
    """End the run after this many evaluations without a new best; by default as when the run
    began, 0 turns it off."""
    plots: bool = True
    """At the end, draw curve.png and weights.png; `disc plot` can do so at any time."""


@dataclasses.dataclass(frozen=True)
class Check:
    """Test an environment before training: report problems and how to fix them."""

    env: Positional[str]
    """A task (`disc list`), a Gymnasium id, package:Id-v0 (an id that a package registers, such as
    shimmy:dm_control/walker-walk-v0), or package.module:factory."""
    env_kwargs: Annotated[dict[str, str], arg(metavar="NAME VALUE ...")] = dataclasses.field(
        default_factory=dict
    )
    """Keyword arguments for creating the environment; values are JSON, or else text."""
    steps: int = 1_000
    """Random steps to take."""
    seed: int = 0
    """Seed of the environment and the actions."""

    def __post_init__(self) -> None:
        Checker(self).counts("steps", "seed")


@dataclasses.dataclass(frozen=True)
class Running:
    """How runs are executed: options shared by `disc sweep`, `disc reproduce` and `disc tune`."""

    jobs: int | None = None
    """Parallel runs, one core each; by default the number of cores."""
    retries: int = 2
    """How often a failed run is retried from its last checkpoint."""
    track: tuple[Track, ...] = DEFAULT_TRACK
    """Trackers of every new run: tensorboard, wandb, mlflow (docs/tracking.md)."""
    ray: str | None = None
    """Address of a Ray cluster to run on, or auto. Needs the extra disc-rl[ray]."""

    def __post_init__(self) -> None:
        Checker(self).counts("jobs", "retries")
        check_track(self.track)


@dataclasses.dataclass(frozen=True)
class Sweeping(Running):
    """Options shared by `disc sweep` and `disc reproduce`."""

    out: Path | None = None
    """Directory of the runs and the report; by default runs/paper, or runs/ and the file's name,
    followed by the scale if given. Running the same command again resumes unfinished runs."""
    dry_run: bool = False
    """Only list the runs, their progress, and the hours left, estimated from a short trial of each
    kind of run on this machine."""
    scale: float = 1.0
    """Shorten every run to this fraction, including the annealing of its learning rate; reports
    and figures state it."""
    steps: int | None = None
    """Stop every run after this many steps; the learning rate anneals as in the full run."""
    seeds: tuple[int, ...] = ()
    """Only these seeds; they may differ from the file's."""
    tasks: tuple[str, ...] = ()
    """Only these tasks of the experiment."""
    algos: tuple[str, ...] = ()
    """Only these arms of the experiment: labels, or names of algorithms."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Run all runs of an experiment file, several in parallel, and write a report."""

    file: Positional[Path]
    """A TOML file with algorithms, options, tasks, seeds and steps (docs/sweeps.md)."""
    run: OmitArgPrefixes[Sweeping] = dataclasses.field(default_factory=Sweeping)


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Run the experiment of a table or figure of the paper, and write a report."""

    name: Positional[str]
    """table1, table2, fig1 …; `disc list` shows all."""
    run: OmitArgPrefixes[Sweeping] = dataclasses.field(default_factory=Sweeping)


@dataclasses.dataclass(frozen=True)
class Tune:
    """Search for better options of an algorithm on a task, and test the best ones on fresh seeds.

    The first trial has the defaults. Trials that are below the median are paused early and can be
    resumed. The best three and the defaults then run on seeds that the search did not use, and
    only these numbers are results. The study writes a report (tuning.html), all numbers
    (summary.json) and the arms for `disc sweep` (best.toml). Running the same
    command again resumes a study. Needs the extra disc-rl[tune].
    """

    file: Positional[Path]
    """A TOML file with an algorithm, a task, steps and optionally a search space
    (docs/tune.md)."""
    out: Path | None = None
    """Directory of the study; by default runs/ and the file's name."""
    dry_run: bool = False
    """Only show the searched options, and the most hours that the study can take, estimated from a
    short trial on this machine."""
    run: OmitArgPrefixes[Running] = dataclasses.field(default_factory=Running)


@dataclasses.dataclass(frozen=True)
class Report:
    """Write an HTML report on a directory of runs: tables, curves, commands and versions."""

    directory: Positional[Path]
    """Directory of a sweep, or of any runs."""
    out: Path | None = None
    """The HTML file; by default report.html in the directory."""


@dataclasses.dataclass(frozen=True)
class Eval:
    """Evaluate a policy: mean, standard deviation and all returns."""

    policy: Positional[Path]
    """A run directory, a policy file, or zoo:NAME (`disc list --zoo`)."""
    best: bool = False
    """Use the policy of the run's best evaluation instead of its last policy."""
    episodes: int = 10
    """Episodes."""
    seed: int = 0
    """Seed of the evaluation."""
    stochastic: bool = False
    """Sample actions (TD3: add its exploration noise). SQL always samples."""
    env: str | None = None
    """The environment, if not the one in the file. A package.module:factory or package:Id-v0 must
    be named here, because a file must not choose what is imported."""

    def __post_init__(self) -> None:
        Checker(self).counts("episodes", "seed")


@dataclasses.dataclass(frozen=True)
class Watch:
    """Record a video of a policy; needs no display."""

    policy: Positional[Path]
    """A run directory, a policy file, or zoo:NAME (`disc list --zoo`)."""
    best: bool = False
    """Use the policy of the run's best evaluation instead of its last policy."""
    out: Path | None = None
    """An .mp4 or .gif file; by default video.mp4 (with --best, best.mp4) in the directory of the
    policy file; NAME.mp4 here if it is from the zoo."""
    episodes: int = 1
    """Episodes."""
    seconds: float = 20.0
    """Maximum length of the video."""
    seed: int = 0
    """Seed of the first episode."""
    stochastic: bool = False
    """Sample actions (TD3: add its exploration noise). SQL always samples."""
    env: str | None = None
    """The environment, if not the one in the file. A package.module:factory or package:Id-v0 must
    be named here, because a file must not choose what is imported."""
    env_kwargs: Annotated[dict[str, str], arg(metavar="NAME VALUE ...")] = dataclasses.field(
        default_factory=dict
    )
    """More keyword arguments for creating the environment, such as those that turn on its renderer;
    values are JSON, or else text."""
    renderer: Literal["raycast", "own"] | None = None
    """raycast (MuJoCo only, needs no graphics library), or the environment's own, which needs a
    render_mode parameter if it is created by a factory; by default raycast for MuJoCo."""

    def __post_init__(self) -> None:
        Checker(self).counts("episodes", "seed")
        Checker(self).above_zero("seconds")


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a policy as an ONNX model, a C header or numpy arrays (docs/export.md)."""

    policy: Positional[Path]
    """A run directory, a policy file, or zoo:NAME (`disc list --zoo`)."""
    to: Path
    """The new file. Its suffix chooses the format: .onnx (needs the extra disc-rl[onnx]), .h (one
    C99 header) or .npz (for numpy). All take raw, flat observations and return flat actions,
    clipped to their bounds."""
    best: bool = False
    """Use the policy of the run's best evaluation instead of its last policy."""
    stochastic: bool = False
    """Sample actions, with noise that the caller supplies. SQL always samples."""
    overwrite: bool = False
    """Replace an existing file."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """Plot learning curves or importance-sampling diagnostics of runs."""

    run: Positional[tuple[Path, ...]]
    """Run directories or progress.csv files."""
    out: Path = Path("curve.png")
    """A .png or .svg file."""
    metric: str | None = None
    """A column of progress.csv; returns by default."""
    diagnostics: bool = False
    """Plot importance weights, vanished gradients and included batches instead; for runs of disc,
    ppo and ppo-amber."""


@dataclasses.dataclass(frozen=True)
class List:
    """List the algorithms, and the paper's tasks and experiments."""

    zoo: bool = False
    """List the trained policies that come with the package instead (docs/zoo.md)."""


@dataclasses.dataclass(frozen=True)
class Info:
    """Describe a policy file or a run: algorithm, options, versions and scores."""

    policy: Positional[Path]
    """A run directory, a policy file, or zoo:NAME (`disc list --zoo`)."""


def with_options(cli_args: list[str]) -> type:
    """`Train` with the options of the chosen algorithm and preset."""
    algorithm = ALGORITHMS[_chosen(cli_args, "--algo", ALGORITHMS, Train.algo)]
    preset = _chosen(cli_args, "--preset", get_args(Preset), Train.preset)
    config = make_config(algorithm, {}, preset, _num_envs(cli_args))
    return dataclasses.make_dataclass(
        "Train",
        [
            ("run", Annotated[Train, OmitArgPrefixes]),
            (
                "config",
                Annotated[algorithm.Config, OmitArgPrefixes],
                dataclasses.field(default_factory=lambda: config),
            ),
        ],
        frozen=True,
    )


def _chosen(cli_args: list[str], option: str, choices: Collection[str], default: str) -> str:
    """The value of an option, before the command line is parsed."""
    for word, following in itertools.pairwise([*cli_args, ""]):
        name, _, value = word.partition("=")
        if name == option and (value or following) in choices:
            default = value or following
    return default


def _num_envs(cli_args: list[str]) -> int:
    """The number of environments, before the command line is parsed; 1 if it is not valid."""
    for word, following in itertools.pairwise([*cli_args, ""]):
        name, _, value = word.partition("=")
        if name in ("--num-envs", "--num_envs") and (value or following).isdecimal():
            return max(1, min(int(value or following), RANGES["num_envs"][1]))
    return Train.num_envs
