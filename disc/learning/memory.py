"""What the arrays of a run will take of memory, asked before any of them is made.

Options may be from a stranger's file, or a slip of the finger.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from disc import host
from disc.types import Spec

SMALL = 10**8  # bytes about which nobody is asked
COPIES = 8  # of a network: drawing it, its gradient, Adam's moments, its target
FLOAT = 4  # bytes


def _check(needed: int, what: str, option: str) -> None:
    if needed > SMALL:
        host.check_memory(needed, what, option)


def check_layers(sizes: Sequence[int]) -> None:
    """A network of these widths, inputs and outputs included.

    Raises:
        DiscError: there is no room for it; so with all below.
    """
    weights = sum((rows + 1) * columns for rows, columns in pairwise(sizes))
    _check(FLOAT * COPIES * weights, f"a network of {_by(sizes)}", "widths")


def check_factors(sizes: Sequence[int]) -> None:
    """K-FAC's factors of a network, and their eigenvectors."""
    entries = sum((rows + 1) ** 2 + columns**2 for rows, columns in pairwise(sizes))
    _check(2 * FLOAT * entries, f"K-FAC of a network of {_by(sizes)}", "widths")


def check_batches(config: Any, length: int, spec: Spec) -> None:
    """A replay of whole batches, and what is made of it in an update, as measured.

    That is 20 numbers a step, 3 more for each pass over them (the rows of the minibatches), and
    the newest batch on its way through the networks.
    """
    check_layers((spec.observation_size, *config.widths, spec.action_size))
    rows, horizon = length * config.horizon, config.horizon
    numbers = 2 * spec.observation_size + 2 * spec.action_size + 1
    stored = rows * (FLOAT * numbers + 3)
    what = f"a replay of {length:,} × {horizon:,} steps"
    options = ["horizon"] if length == 1 else ["horizon", "replay_length"]
    _check(stored, what, " or ".join(options))
    name = next(x for x in ("epochs", "value_epochs", "value_steps") if hasattr(config, x))
    passes = getattr(config, name)
    learning = rows * (20 + 3 * passes) + horizon * (2 * numbers + 5 * sum(config.widths))
    what = f"{what} ({host.size(stored)}), with {passes:,} passes over it,"
    _check(stored + FLOAT * learning, what, f"{', '.join(options)} or {name}")


def check_chunks(config: Any, spec: Spec) -> None:
    """Trust-PCL's replay, the chunks that it draws from it, and the returns that it remembers."""
    check_layers((spec.observation_size, *config.widths, spec.action_size))
    length, count = config.chunk_length, config.replay_chunks
    numbers = 2 * spec.observation_size + spec.action_size + 1
    what = f"a replay of {count:,} × {length:,} steps"
    _check(length * count * (FLOAT * numbers + 3), what, "replay_chunks")
    returns = f"a memory of {config.lambda_episodes:,} returns"
    _check(2 * FLOAT * config.lambda_episodes, returns, "lambda_episodes")
    drawn = config.batch_chunks * (config.horizon // length)
    _check(2 * FLOAT * drawn, f"a draw of {drawn:,} chunks", "batch_chunks or horizon")
    check_rows(config.batch_chunks * length, config.widths, spec, "batch_chunks")


def check_transitions(config: Any, spec: Spec) -> None:
    """What DDPG, TD3, SAC and SQL collect at once and learn from at once; their replay is apart."""
    steps, numbers = config.steps_per_update, 2 * spec.observation_size + 2 * spec.action_size + 1
    _check(FLOAT * steps * numbers, f"a rollout of {steps:,} steps", "steps_per_update")
    check_rows(config.rows, config.widths, spec, "batch_size")


def check_rows(rows: int, widths: Sequence[int], spec: Spec, option: str) -> None:
    """Rows of one gradient step on their way through a network and back."""
    numbers = 2 * (2 * spec.observation_size + spec.action_size + sum(widths))
    _check(rows * numbers * FLOAT, f"a gradient step on {rows:,} rows", option)


def _by(sizes: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)
