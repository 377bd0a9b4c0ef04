"""Index sampling and the compiled update loop.

A minibatch holds m = N / gradient_steps rows of the newest batch and m·(n − 1) rows of the
n − 1 included old ones. Its size varies with n, while all array shapes stay fixed: rows are
processed in chunks, by a loop with a dynamic trip count that sums gradients. A loss of the form

    numerator / stop_gradient(denominator) + penalty

(sums over all rows; the penalty uses the newest rows only) can be summed over chunks, because
the division comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from disc.equations import advantages
from disc.learning import normalize, optim
from disc.learning.types import Parts, Rows, Table

CHUNK_BATCHES = 2
"""A chunk has the rows of this many old batches in a minibatch: 128 rows by default."""


Loss = Callable[[Any, Any, Rows, Any], Parts]
"""(config, parameters, rows, coefficients) → Parts"""


class Draw(NamedTuple):
    """The rows of every minibatch of an iteration."""

    rows: Any  # (steps, m + padded m·(L − 1)) indices into the table's L·N rows
    batches: int  # rows of a minibatch divided by m: n, unless it is limited

    def first(self, steps: int) -> Draw:
        """The minibatches of the first gradient steps."""
        return self._replace(rows=self.rows[:steps])


def draw(
    rng: np.random.Generator,
    ages: NDArray[np.int32],
    included: NDArray[np.bool_],
    horizon: int,
    epochs: int,
    gradient_steps: int,
    most: int | None = None,
) -> Draw:
    """Choose the rows of all minibatches.

    The newest batch is reshuffled for each epoch and split into minibatches of m rows; m·(n − 1)
    rows of the n − 1 included old batches are drawn uniformly, with replacement.

    Args:
        rng: the source of randomness.
        ages: (L,) age of each slot.
        included: (L,) which slots to draw from.
        horizon: N.
        epochs: passes over the newest batch.
        gradient_steps: minibatches per pass.
        most: a minibatch has at most m · most rows of old batches; no limit if None.
    """
    rows = horizon // gradient_steps
    most = min(len(ages) - 1, len(ages) if most is None else most)
    chunks = -(-most // CHUNK_BATCHES)
    index = np.zeros((epochs * gradient_steps, rows * (1 + CHUNK_BATCHES * chunks)), np.int32)
    order = np.tile(np.arange(horizon, dtype=np.int32), (epochs, 1))
    newest = int(np.flatnonzero(ages == 0)[0])
    index[:, :rows] = newest * horizon + rng.permuted(order, axis=1).reshape(-1, rows)
    old = np.flatnonzero(included & (ages > 0)).astype(np.int32)
    several = min(len(old), most)
    if several:
        drawn = rng.integers(len(old) * horizon, size=(len(index), rows * several), dtype=np.int32)
        index[:, rows : rows * (1 + several)] = old[drawn // horizon] * horizon + drawn % horizon
    return Draw(index, 1 + several)


@partial(jax.jit, static_argnames=("loss", "config", "rows"))
def descend(
    loss: Loss,
    config: Hashable,
    rows: int,
    learner: optim.Learner,
    table: Table,
    drawn: Draw,
    learning_rate: Any,
    coefficients: Any,
) -> tuple[optim.Learner, dict[str, jax.Array]]:
    """All gradient steps of an iteration for one network.

    Args:
        loss: gives the `Parts` of a loss for some rows.
        config: passed to the loss; static.
        rows: m, rows of the newest batch in a minibatch; static.
        learner: parameters and optimiser.
        table: the samples to learn from.
        drawn: the minibatches.
        learning_rate: Adam's, for all parameters or a tree as for `optim.step`.
        coefficients: passed to the loss; may change without recompilation.

    Returns:
        The new learner, and the metrics of the loss, (steps,) each: the mean over the rows of each
        minibatch under the metric's name, and the mean over the newest rows under `newest/…`.
    """
    columns, count = _columns(table), drawn.batches * rows
    chunks = (drawn.batches - 1 + CHUNK_BATCHES - 1) // CHUNK_BATCHES

    def parts(parameters: Any, some: Rows) -> Parts:
        return loss(config, parameters, some, coefficients)

    def step(learner: optim.Learner, index: jax.Array) -> tuple[optim.Learner, Measured]:
        mask = (jnp.arange(len(index)) < count).astype(jnp.float32)
        advantage = advantages.standardize(columns.advantage[index], columns.weight[index], mask)
        minibatch = _Minibatch(table, columns, index, advantage, mask)
        newest = _take(minibatch, 0, rows)
        old = None
        if len(index) > rows:
            old = _add_old(parts, learner.parameters, minibatch, rows, chunks)
        gradient, measured = _gradient(parts, learner.parameters, newest, old, count)
        return optim.step(learner, gradient, learning_rate), measured

    return jax.lax.scan(step, learner, drawn.rows)


Measured = dict[str, jax.Array]
PartsOf = Callable[[Any, Rows], Parts]
"""A loss with its config and coefficients: (parameters, rows) → Parts"""


class _Minibatch(NamedTuple):
    """The rows of one gradient step: the newest batch's, the old ones', padding."""

    table: Table
    columns: _Columns
    at: jax.Array  # (M,) rows of the columns
    advantage: jax.Array  # (M,) standardised
    mask: jax.Array  # (M,)


class _Sums(NamedTuple):
    """Sums over the chunks of old rows."""

    gradient: Any  # of the numerator, as the parameters
    denominator: jax.Array  # ()
    measured: Measured  # () each


def _take(minibatch: _Minibatch, start: jax.Array | int, size: int) -> Rows:
    """`size` rows of a minibatch, starting at `start`."""
    table, columns, *by_row = minibatch
    at, advantage, mask = (jax.lax.dynamic_slice_in_dim(x, start, size) for x in by_row)
    return Rows(
        normalize.observations(table.scale, columns.observation[at]),
        columns.action[at],
        columns.mean[at],
        table.estimate.reference.log_std[at // table.replay.horizon],
        advantage,
        columns.target[at],
        columns.value[at],
        columns.weight[at],
        mask,
    )


def _add_old(
    parts: PartsOf, parameters: Any, minibatch: _Minibatch, rows: int, chunks: Any
) -> _Sums:
    """The sums over all rows of old batches, chunk by chunk."""
    width = CHUNK_BATCHES * rows

    def numerator(parameters: Any, chunk: Rows) -> tuple[jax.Array, Parts]:
        found = parts(parameters, chunk)
        return found.numerator, found

    def add(i: jax.Array, sums: _Sums) -> _Sums:
        chunk = _take(minibatch, rows + i * width, width)
        gradient, found = jax.grad(numerator, has_aux=True)(parameters, chunk)
        measured = {k: jnp.sum(chunk.mask * v) for k, v in found.measured.items()}
        return jax.tree.map(jnp.add, sums, _Sums(gradient, found.denominator, measured))

    names = jax.eval_shape(partial(parts, parameters), _take(minibatch, 0, rows)).measured
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    zero = _Sums(zeros, jnp.zeros(()), {name: jnp.zeros(()) for name in names})
    return jax.lax.fori_loop(0, chunks, add, zero)


def _gradient(
    parts: PartsOf, parameters: Any, newest: Rows, old: _Sums | None, count: Any
) -> tuple[Any, Measured]:
    """The gradient of the whole loss over all `count` rows, and its metrics."""

    def whole_loss(parameters: Any) -> tuple[jax.Array, tuple[jax.Array, Parts]]:
        found = parts(parameters, newest)
        denominator = found.denominator if old is None else old.denominator + found.denominator
        denominator = jax.lax.stop_gradient(denominator)
        return found.numerator / denominator + found.penalty, (denominator, found)

    gradient, (denominator, found) = jax.grad(whole_loss, has_aux=True)(parameters)
    sums = {k: jnp.sum(v) for k, v in found.measured.items()}
    if old is not None:
        gradient = jax.tree.map(lambda new, rest: new + rest / denominator, gradient, old.gradient)
        sums = {k: v + old.measured[k] for k, v in sums.items()}
    return gradient, {
        **{k: v / count for k, v in sums.items()},
        **{f"newest/{k}": jnp.mean(v) for k, v in found.measured.items()},
    }


@jax.jit
def whole(table: Table) -> Rows:
    """All N rows of a replay with L = 1, with advantages standardised over them."""
    replay, found = table.replay, table.estimate
    assert replay.length == 1, "only for a replay of one batch"
    one = jnp.ones(replay.horizon)
    return Rows(
        observation=normalize.observations(table.scale, replay.observation[0]),
        action=replay.action[0],
        mean=found.reference.mean[0],
        log_std=jnp.broadcast_to(found.reference.log_std, replay.action[0].shape),
        advantage=advantages.standardize(found.advantage[0], one, one),
        target=found.target[0],
        value=found.value[0],
        weight=one,
        mask=one,
    )


class _Columns(NamedTuple):
    observation: jax.Array  # (L·N, S)
    action: jax.Array  # (L·N, D)
    mean: jax.Array  # (L·N, P)
    advantage: jax.Array  # (L·N,)
    weight: jax.Array  # (L·N,)
    target: jax.Array  # (L·N,)
    value: jax.Array  # (L·N,)


def _columns(table: Table) -> _Columns:
    r, e = table.replay, table.estimate
    columns = (r.observation, r.action, e.reference.mean, e.advantage, e.weight, e.target, e.value)
    return _Columns(*(x.reshape(-1, *x.shape[2:]) for x in columns))


First = TypeVar("First")
Second = TypeVar("Second")
_pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disc-update")


def together(
    threads: int, first: Callable[[], First], second: Callable[[], Second]
) -> tuple[First, Second]:
    """Run two independent updates, in parallel if `threads` is 2 or more."""
    if threads < 2:
        return jax.block_until_ready(first()), jax.block_until_ready(second())
    future = _pool.submit(lambda: jax.block_until_ready(first()))
    result = jax.block_until_ready(second())
    return future.result(), result
