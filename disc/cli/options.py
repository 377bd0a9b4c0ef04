"""The options of each command: a field's docstring is its help text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from disc.algos import ALGORITHMS
from disc.learning.config import DEFAULT_PRESET, Preset
from disc.run.training import CHECKPOINT_EVERY, EVAL_EVERY


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a policy."""

    env: Positional[str]
    """A task (`disc list`), a Gymnasium id, or package.module:factory."""
    algo: Literal[tuple(ALGORITHMS)] = "disc"  # type: ignore[valid-type]
    """The algorithm; the options below the line are its own."""
    preset: Preset = DEFAULT_PRESET
    """Where the options below the line that are not given come from: the paper's settings, or
    ours, which are provisional (docs/disc.md)."""
    steps: int = 1_000_000
    """Environment steps."""
    seed: int = 0
    """All randomness derives from it."""
    out: Path | None = None
    """The run directory; made, and must be empty if it exists. By default runs/ENV_ALGO_seedN."""
    threads: int | None = None
    """Cores to use; all there are by default. Give 1 to run several side by side."""
    num_envs: int = 1
    """Environments; the steps that are collected at once (--horizon, off-policy
    --steps-per-update) are split over them."""
    env_kwargs: Annotated[dict[str, str], arg(metavar="NAME VALUE ...")] = dataclasses.field(
        default_factory=dict
    )
    """Keyword arguments for making the environment; values are JSON, or else text."""
    eval_every: int = EVAL_EVERY
    """Steps between evaluations; 0 turns them off."""
    eval_episodes: int = 10
    """Episodes in an evaluation."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Steps between checkpoints; 0 keeps only the one at the end."""
    on_nan: Literal["stop", "rollback"] = "stop"
    """If an update gives a number that is not finite: stop, or go back to the last checkpoint with
    half the step size, up to five times."""
    video: bool = False
    """Film the policy at the end."""


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with a run, exactly as if it had not stopped."""

    run: Positional[Path]
    """The run directory."""
    steps: int | None = None
    """Steps in all; as planned when the run began by default."""
    threads: int | None = None
    """Cores to use; as when the run began by default. Another number may round large products
    differently."""
    env: str | None = None
    """The environment, for a run of a package.module:factory, which must be named here: a file
    can't choose what is imported."""
    on_nan: Literal["stop", "rollback"] | None = None
    """If an update gives a number that is not finite; as when the run began by default."""


@dataclasses.dataclass(frozen=True)
class Check:
    """Try an environment before training: what will hurt, and what to do about it."""

    env: Positional[str]
    """A task (`disc list`), a Gymnasium id, or package.module:factory."""
    env_kwargs: Annotated[dict[str, str], arg(metavar="NAME VALUE ...")] = dataclasses.field(
        default_factory=dict
    )
    """Keyword arguments for making the environment; values are JSON, or else text."""
    steps: int = 1_000
    """Random steps to take."""
    seed: int = 0
    """Of the environment and the actions."""


@dataclasses.dataclass(frozen=True)
class Sweeping:
    """What `disc sweep` and `disc reproduce` have in common."""

    out: Path | None = None
    """Where the runs go, and the report; by default runs/paper, or runs/ and the file's name, with
    the scale behind it if one is given. The same command again goes on with what is there."""
    dry_run: bool = False
    """Only list the runs, what is done already, and the hours it will take, from a short try of
    each kind on this machine."""
    scale: float = 1.0
    """Shorten every run to this share, its learning rate's annealing too; everything drawn from it
    says so."""
    steps: int | None = None
    """Cut every run at so many steps; the learning rate anneals as if it went on."""
    seeds: tuple[int, ...] = ()
    """Only these seeds, or other ones than the file's."""
    tasks: tuple[str, ...] = ()
    """Only these tasks of the file."""
    algos: tuple[str, ...] = ()
    """Only these arms of the file: labels, or names of algorithms."""
    jobs: int | None = None
    """Runs at the same time, one core each; as many as there are cores by default."""
    retries: int = 2
    """How often a run that fails is tried again from its last checkpoint."""
    ray: str | None = None
    """Run on a Ray cluster: its address, or auto. Needs the extra disc-rl[ray]."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Run all runs of an experiment file, several at a time, and report on them."""

    file: Positional[Path]
    """A TOML file that says which algorithms, options, tasks, seeds and steps; docs/sweeps.md."""
    run: OmitArgPrefixes[Sweeping] = dataclasses.field(default_factory=Sweeping)


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Run what one of the paper's tables or figures needs, and report on it."""

    name: Positional[str]
    """table1, table2, fig1 …; `disc list` shows all."""
    run: OmitArgPrefixes[Sweeping] = dataclasses.field(default_factory=Sweeping)


@dataclasses.dataclass(frozen=True)
class Report:
    """Make one HTML file of a directory of runs: tables, curves, what was run and how."""

    directory: Positional[Path]
    """Of a sweep, or of any runs."""
    out: Path | None = None
    """The file; by default report.html in the directory."""


@dataclasses.dataclass(frozen=True)
class Eval:
    """Evaluate a policy: mean, standard deviation and each return."""

    policy: Positional[Path]
    """A run directory or a policy file."""
    episodes: int = 10
    """Episodes."""
    seed: int = 0
    """Of the evaluation."""
    stochastic: bool = False
    """Sample actions, or with TD3 add its exploration noise; SQL's are always sampled."""
    env: str | None = None
    """The environment, if not the one in the file. A package.module:factory must be named here, as
    a file can't choose what is imported."""


@dataclasses.dataclass(frozen=True)
class Watch:
    """Film a policy; needs no display."""

    policy: Positional[Path]
    """A run directory or a policy file."""
    out: Path | None = None
    """An .mp4 or .gif file; by default video.mp4 in the run directory or beside the file."""
    episodes: int = 1
    """Episodes."""
    seconds: float = 20.0
    """The video's length at most."""
    seed: int = 0
    """Of the first episode."""
    stochastic: bool = False
    """Sample actions, or with TD3 add its exploration noise; SQL's are always sampled."""
    env: str | None = None
    """The environment, if not the one in the file. A package.module:factory must be named here, as
    a file can't choose what is imported."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw learning curves or importance-sampling diagnostics of runs."""

    run: Positional[tuple[Path, ...]]
    """Run directories or progress.csv files."""
    out: Path = Path("curve.png")
    """A .png or .svg file."""
    metric: str | None = None
    """A column of progress.csv; returns by default."""
    diagnostics: bool = False
    """Draw importance weights, vanished gradients and included batches instead; for runs of disc,
    ppo and ppo-amber."""


@dataclasses.dataclass(frozen=True)
class List:
    """Show the algorithms and the paper's tasks."""


@dataclasses.dataclass(frozen=True)
class Info:
    """Say what a policy file or a run is, how it was made and how well it did."""

    policy: Positional[Path]
    """A run directory or a policy file."""
