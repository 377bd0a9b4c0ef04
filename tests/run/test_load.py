"""Under load: memory, open files and compiled programs stay within bounds."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from disc import SAC, DiscError, host
from disc.algos import BUILT_IN
from disc.envs.factory import Maker
from disc.envs.pool import Environments
from disc.learning import replay as replays
from disc.learning.types import TransitionReplay
from disc.run import agents, checkpoint
from disc.run import resume as resuming
from faults import load, soak
from tests.support import environments as probes
from tests.support.compare import assert_equal_trees, bits
from tests.support.rollouts import rollout_of, spec
from tests.support.small import QUIET, small

S, D, ROWS = 30, 2, 100_000

# Saving and loading a large replay


def full(jump: int = 500) -> TransitionReplay:
    """A full replay in which an episode ends every `jump` steps."""
    here = np.arange(ROWS, dtype=np.float32)[:, None] + np.zeros(S, np.float32)
    there = here + 1.0
    there[::jump] = -1.0
    nothing = np.zeros(ROWS, np.float32)
    columns = {
        "observation": here,
        "next_observation": there,
        "action": np.zeros((ROWS, D), np.float32),
        "reward": nothing,
        "terminated": nothing > 0.0,
        "truncated": nothing > 0.0,
    }
    return replays.push_transitions(empty(), rollout_of(columns))


def empty() -> TransitionReplay:
    return replays.init_transitions(ROWS, spec(S, D))


def places(replay: Any) -> list[int]:
    return [x.unsafe_buffer_pointer() for x in replay if x.ndim]


def test_replay_is_unpacked_in_place() -> None:
    replay, other = full(), full(jump=7)  # a new one shares NumPy's zeros until it is written
    before = places(other)
    restored = checkpoint.unpack(checkpoint.pack(replay), other)
    assert places(restored) == before
    assert bits(restored) == bits(replay)


def test_replay_without_consecutive_rows_is_saved_without_a_copy() -> None:
    """As with single steps of several environments in turn."""
    replay = full(jump=1)
    packed = checkpoint.pack(replay)
    assert np.shares_memory(packed["jump_observation"], np.asarray(replay.next_observation))
    assert bits(checkpoint.unpack(packed, empty())) == bits(replay)


def load_peak(directory: Path) -> float:
    """Peak memory of reading a checkpoint, as a share of the file's size."""
    agent = SAC(probes.wide, replay_size=10, widths=(4,))
    state = dataclasses.replace(agent.state, replay=full(), step=ROWS)
    sizes = {
        "actions_since_reset": np.zeros((1, 0, D), np.float32),
        "observations": np.zeros((1, S), np.float32),
    }
    contents = checkpoint.Checkpoint(state, **sizes, info={"elapsed": 0.0})
    path = checkpoint.save(directory, contents)
    checkpoint.load(path, dataclasses.replace(agent.state, replay=empty()))  # compiles
    fresh = dataclasses.replace(agent.state, replay=empty())
    tracemalloc.start()
    try:
        found = checkpoint.load(path, fresh)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bits(found.state.replay) == bits(state.replay)
    return peak / path.stat().st_size


def test_checkpoint_is_read_without_a_second_replay_in_memory(tmp_path: Path) -> None:
    """In a separate process, as threads of other tests allocate memory too."""
    code = (
        "import pathlib, sys; from tests.run.test_load import load_peak; "
        "print(load_peak(pathlib.Path(sys.argv[1])))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.25  # a tenth of the rows at once


def spoil(**changes: Any) -> dict[str, Any]:
    packed = checkpoint.pack(replays.push_transitions(small_replay(), short_rollout()))
    return {**packed, **changes}


def small_replay() -> TransitionReplay:
    return replays.init_transitions(4, spec(3, 2))


def short_rollout() -> Any:
    shapes = {"observation": (3, 3), "next_observation": (3, 3), "action": (3, 2), "reward": (3,)}
    ends = {name: np.zeros(3, bool) for name in ("terminated", "truncated")}
    return rollout_of({**{n: np.ones(x, np.float32) for n, x in shapes.items()}, **ends})


@pytest.mark.parametrize(
    "changes",
    [
        {"observation": np.ones((3, 1), np.float32)},
        {"observation": np.ones((5, 3), np.float32)},
        {"reward": np.ones(3, np.float64)},
        {"action": np.ones((2, 2), np.float32)},
        {"stored": np.ones(1, np.int32)},
        {"jump_row": np.array([-1])},
        {"jump_row": np.array([3])},
        {"jump_row": np.array([1])},
        {"jump_row": np.array([2, 2]), "jump_observation": np.ones((2, 3), np.float32)},
        {"jump_row": np.array([], np.int64), "jump_observation": np.ones((0, 3), np.float32)},
        {"jump_observation": np.ones((1, 2), np.float32)},
    ],
)
def test_arrays_of_another_replay_raise_before_overwriting(
    changes: dict[str, Any],
) -> None:
    fresh = small_replay()
    before = bits(fresh)
    with pytest.raises(ValueError, match="replay"):
        checkpoint.unpack(spoil(**changes), fresh)
    assert bits(fresh) == before
    checkpoint.unpack(spoil(), fresh)


def test_resume_without_memory_for_the_replay_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """700 steps of 70 bytes."""
    run = tmp_path / "run"
    with small(SAC) as agent:
        agent.learn(256, out=run, **QUIET)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    monkeypatch.setattr(host, "available_memory", lambda: 50_000)
    with pytest.raises(DiscError, match=r"700 steps takes 0 MB, and this machine has 0 MB free"):
        agents.resume(run, 512, env=probes.wide, progress=False)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_rollback_frees_the_old_replay(tmp_path: Path) -> None:
    nothing: Any = SimpleNamespace(
        checkpoints=tmp_path,
        rewind=lambda *_: None,
        note_rollback=lambda *_: None,
        plan=None,
        step=256,
        what="",
    )
    with small(env=probes.Cycle) as agent:
        agent.learn(256, **QUIET)
        old = agent.state.replay
        resuming.roll_back(agent.training, nothing, nothing, print)
        assert agent.state.step == 0
        agent.learn(256, **QUIET)
    assert all(array.is_deleted() for array in old)


# Long runs


def test_actions_of_single_steps_are_merged() -> None:
    env = Environments(Maker(probes.wide), 1)
    env.reset(0, 0)
    actions = np.arange(4 * 2500, dtype=np.float32).reshape(1, 2500, 4)
    for t in range(2500):
        env.past.keep(actions[:, t : t + 1])
    assert len(env.actions_since_reset) <= 1001
    np.testing.assert_array_equal(np.concatenate(env.actions_since_reset, axis=1), actions)
    env.close()


# Many different agents


def test_compiled_programs_are_cleared_before_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And recompiled programs give the same results."""
    forget, forgotten, states = jax.clear_caches, [0, 0], []
    for i, most in enumerate((10**9, 10)):

        def count(i: int = i) -> None:
            forgotten[i] += 1
            forget()

        monkeypatch.setattr(jax, "clear_caches", count)
        monkeypatch.setattr(host, "MOST_MAPS", most)
        with small(env=probes.Cycle) as agent:
            agent.learn(256, **QUIET).learn(256, **QUIET)
        states.append(agent.state.parameters())
    assert forgotten == [0, 3]
    assert_equal_trees(*states)


def test_programs_are_kept_if_memory_maps_cannot_be_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(path: Path) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(host, "MOST_MAPS", 0)
    monkeypatch.setattr(jax, "clear_caches", pytest.fail)
    monkeypatch.setattr(Path, "read_bytes", missing)
    host.forget_programs()


# The benchmark


def samples(memory: list[float], files: int = 7) -> list[soak.Sample]:
    return [soak.Sample("short", i, x, files, 3, 1000) for i, x in enumerate(memory, 1)]


def test_soak_detects_growth() -> None:
    flat = [300.0 + i % 5 for i in range(90)]
    assert soak.growth(samples(flat)).flat
    assert soak.growth(samples([500.0 - i for i in range(90)])).flat
    assert soak.growth(samples([100.0 + 10 * i for i in range(30)] + [400.0] * 60)).flat
    leaking = soak.growth(samples([300.0 + 0.3 * i for i in range(90)]))
    assert leaking.memory == pytest.approx(0.3 * 60 / 318, rel=0.05)
    assert not leaking.flat
    for name in ("files", "threads", "maps"):
        more = [x._replace(**{name: 2000 + i}) for i, x in enumerate(samples(flat))]
        grown = soak.growth(more)
        assert getattr(grown, name) > 0
        assert grown.flat == (name == "maps" and grown.maps < soak.GROWTH)


def test_short_soak_leaves_nothing_open(tmp_path: Path) -> None:
    found = [*soak.soak("short", 3, tmp_path), *soak.soak("sac", 3, tmp_path)]
    assert [x.at for x in found] == [1, 2, 3] * 2
    assert found[1].files == found[2].files
    assert found[4].files == found[5].files
    assert list(tmp_path.iterdir()) == []
    soak.write(found, tmp_path / "soak.csv")
    assert soak.read(tmp_path / "soak.csv") == found
    soak.draw(found, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")


def test_replays_beyond_memory_raise() -> None:
    outcome = load.refused()
    assert outcome.good, outcome


def test_concurrent_runs_equal_runs_alone(tmp_path: Path) -> None:
    outcome = load.at_once(tmp_path, 1, 3)
    assert outcome.good, outcome


def test_every_built_in_algorithm_has_options_for_the_benchmark() -> None:
    assert load.OPTIONS.keys() == {x.NAME for x in BUILT_IN}
