"""The replay R: ring buffers of whole rollouts, short chunks or single steps, on the device.

PPO also uses it, with L = 1. Slots are written in place (the buffers are donated) and shapes
never change.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from disc.learning import device
from disc.learning.types import BatchReplay, ChunkReplay, TransitionReplay
from disc.types import Rollout, Spec


def init(length: int, horizon: int, spec: Spec) -> BatchReplay:
    """An empty replay."""
    s, d = spec.observation_size, spec.action_size

    zeros = partial(device.zeros, length)

    return BatchReplay(
        observation=zeros(horizon, s),
        next_observation=zeros(horizon, s),
        action=zeros(horizon, d),
        mean=zeros(horizon, spec.outputs),
        log_std=zeros(d),
        reward=zeros(horizon),
        terminated=zeros(horizon, dtype=np.bool_),
        truncated=zeros(horizon, dtype=np.bool_),
        border=zeros(horizon, dtype=np.bool_),
        age=device.put(np.full(length, -1, np.int32)),
    )


def push(replay: BatchReplay, rollout: Rollout, iteration: int) -> BatchReplay:
    """Overwrite the oldest rollout. The replay passed in must not be used again."""
    batch = {name: getattr(rollout, name) for name in BatchReplay._fields if name != "age"}
    return _write(replay, batch, iteration % replay.length)


@partial(jax.jit, donate_argnums=0)
def _write(replay: BatchReplay, batch: dict[str, jax.Array], slot: int) -> BatchReplay:
    fields = {
        name: jax.lax.dynamic_update_index_in_dim(getattr(replay, name), value, slot, axis=0)
        for name, value in batch.items()
    }
    age = jnp.where(replay.age >= 0, replay.age + 1, -1).at[slot].set(0)
    return BatchReplay(**fields, age=age)


def init_chunks(length: int, steps: int, spec: Spec) -> ChunkReplay:
    """An empty replay of `length` chunks of `steps` steps."""
    s, d = spec.observation_size, spec.action_size

    zeros = partial(device.zeros, length, steps)

    return ChunkReplay(
        observation=zeros(s),
        next_observation=zeros(s),
        action=zeros(d),
        reward=zeros(),
        terminated=zeros(dtype=np.bool_),
        truncated=zeros(dtype=np.bool_),
        border=zeros(dtype=np.bool_),
        number=device.put(np.full(length, -1, np.int32)),
    )


def push_chunks(replay: ChunkReplay, rollout: Rollout) -> ChunkReplay:
    """Cut a rollout into chunks and overwrite the oldest ones.

    The replay passed in must not be used again.
    """
    length, steps = replay.observation.shape[:2]
    chunks = {
        name: getattr(rollout, name).reshape(-1, steps, *getattr(rollout, name).shape[1:])[-length:]
        for name in ChunkReplay._fields
        if name != "number"
    }
    return _write_chunks(replay, chunks)


@partial(jax.jit, donate_argnums=0)
def _write_chunks(replay: ChunkReplay, chunks: dict[str, jax.Array]) -> ChunkReplay:
    number = jnp.max(replay.number) + 1 + jnp.arange(len(chunks["reward"]), dtype=jnp.int32)
    slots = number % len(replay.number)
    fields = {name: getattr(replay, name).at[slots].set(x) for name, x in chunks.items()}
    return ChunkReplay(**fields, number=replay.number.at[slots].set(number))


def draw_recent(
    rng: np.random.Generator, number: NDArray[np.int32], alpha: float, shape: tuple[int, ...]
) -> NDArray[np.int32]:
    """Slots of stored chunks, drawn with replacement: P(i) ∝ exp(α (number_i − newest)).

    Args:
        rng: the source of randomness.
        number: (C,) as in `ChunkReplay`.
        alpha: α; 0 draws uniformly.
        shape: of the result.
    """
    recency = (number - np.max(number)).astype(np.float64)
    weight = np.where(number >= 0, np.exp(alpha * recency), 0.0)
    upper = np.cumsum(weight)
    drawn = np.searchsorted(upper, rng.random(shape) * upper[-1], side="right")
    return drawn.astype(np.int32)


def transition_bytes(size: int, spec: Spec) -> int:
    """Bytes of a replay of `size` steps."""
    numbers = 2 * spec.observation_size + spec.action_size + 1
    return size * (4 * numbers + 2)


def init_transitions(size: int, spec: Spec) -> TransitionReplay:
    """An empty replay of `size` steps."""
    s, d = spec.observation_size, spec.action_size

    zeros = partial(device.zeros, size)

    return TransitionReplay(
        observation=zeros(s),
        next_observation=zeros(s),
        action=zeros(d),
        reward=zeros(),
        terminated=zeros(dtype=np.bool_),
        truncated=zeros(dtype=np.bool_),
        stored=device.zeros(dtype=np.int32),
    )


def push_transitions(replay: TransitionReplay, rollout: Rollout) -> TransitionReplay:
    """Overwrite the oldest steps with those of a rollout.

    The replay passed in must not be used again.
    """
    columns = (
        rollout.observation,
        rollout.next_observation,
        rollout.action,
        rollout.reward[:, None],
        rollout.terminated[:, None],
        rollout.truncated[:, None],
    )
    return _write_transitions(replay, np.concatenate(columns, axis=1, dtype=np.float32))


@partial(jax.jit, donate_argnums=0)
def _write_transitions(replay: TransitionReplay, rows: jax.Array) -> TransitionReplay:
    """Rows hold all fields: transferring one array to the device is faster than six."""
    size, length, s = len(replay.reward), len(rows), replay.observation.shape[1]
    kept = min(size, length)  # the newest, if not all fit
    slots = (replay.stored + jnp.arange(length - kept, length, dtype=jnp.int32)) % size
    rows = rows[-kept:]
    return TransitionReplay(
        observation=replay.observation.at[slots].set(rows[:, :s]),
        next_observation=replay.next_observation.at[slots].set(rows[:, s : 2 * s]),
        action=replay.action.at[slots].set(rows[:, 2 * s : -3]),
        reward=replay.reward.at[slots].set(rows[:, -3]),
        terminated=replay.terminated.at[slots].set(rows[:, -2] > 0.0),
        truncated=replay.truncated.at[slots].set(rows[:, -1] > 0.0),
        stored=replay.stored + length,
    )
