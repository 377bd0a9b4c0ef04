"""Estimates of the memory a run needs, checked before any array is allocated.

Options may come from an untrusted file, or contain a typo.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from disc import host
from disc.learning.replay import transition_bytes
from disc.types import Spec

SMALL = 10**8  # bytes; smaller amounts are not checked
COPIES = 8  # of a network: initialisation, gradient, Adam's moments, target
FLOAT = 4  # bytes


def _check(needed: int, what: str, option: str) -> None:
    if needed > SMALL:
        host.check_memory(needed, what, option)


def check_layers(sizes: Sequence[int]) -> None:
    """Check a network with these layer sizes, including inputs and outputs.

    Raises:
        DiscError: it does not fit into memory, as for all functions below.
    """
    weights = sum((rows + 1) * columns for rows, columns in pairwise(sizes))
    _check(FLOAT * COPIES * weights, f"a network of {_by(sizes)}", "widths")


def check_factors(sizes: Sequence[int]) -> None:
    """Check K-FAC's factors of a network, and their eigenvectors."""
    entries = sum((rows + 1) ** 2 + columns**2 for rows, columns in pairwise(sizes))
    _check(2 * FLOAT * entries, f"K-FAC of a network of {_by(sizes)}", "widths")


def check_batches(config: Any, length: int, spec: Spec) -> None:
    """Check a replay of whole batches, and the arrays of an update, as measured.

    An update needs 20 numbers per step, 3 more for each pass (the rows of the minibatches), and
    the activations of the newest batch.
    """
    check_layers((spec.observation_size, *config.widths, spec.outputs))
    rows, horizon = length * config.horizon, config.horizon
    numbers = 2 * spec.observation_size + spec.action_size + spec.outputs + 1
    stored = rows * (FLOAT * numbers + 3)
    what = f"a replay of {length:,} × {horizon:,} steps"
    options = ["horizon"] if length == 1 else ["horizon", "replay_length"]
    _check(stored, what, " or ".join(options))
    counts = {x: getattr(config, x, None) or 0 for x in ("epochs", "value_epochs", "value_steps")}
    name, passes = max(counts.items(), key=lambda item: item[1])
    learning = rows * (20 + 3 * passes) + horizon * (2 * numbers + 5 * sum(config.widths))
    what = f"{what} ({host.size(stored)}), with {passes:,} passes over it,"
    _check(stored + FLOAT * learning, what, f"{', '.join(options)} or {name}")


def check_chunks(config: Any, spec: Spec) -> None:
    """Check Trust-PCL's replay, the chunks it draws, and the returns it stores."""
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
    """Check the replay, a rollout and a gradient step of DDPG, TD3, SAC or SQL."""
    size = config.replay_size
    needed = transition_bytes(size, spec)
    host.check_memory(needed, f"a replay of {size:,} steps", "replay_size")
    steps, numbers = config.steps_per_update, 2 * spec.observation_size + 2 * spec.action_size + 1
    _check(FLOAT * steps * numbers, f"a rollout of {steps:,} steps", "steps_per_update")
    check_rows(config.rows, config.widths, spec, "batch_size")


def check_rows(rows: int, widths: Sequence[int], spec: Spec, option: str) -> None:
    """Check the forward and backward pass of one gradient step."""
    numbers = 2 * (2 * spec.observation_size + spec.action_size + sum(widths))
    _check(rows * numbers * FLOAT, f"a gradient step on {rows:,} rows", option)


def _by(sizes: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)
