"""The memory of a replay is computed, reported and checked before allocation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from disc import ACKTR, DDPG, DISC, PPO, PPOAMBER, SAC, SQL, TD3, TRPO, DiscError, host
from disc.learning import replay as replays
from disc.run.agent import Agent
from tests.support import environments as probes
from tests.support.rollouts import spec

# Memory needed


@pytest.mark.parametrize(("size", "s", "d"), [(1, 1, 1), (7, 3, 2), (1000, 11, 3), (64, 376, 17)])
def test_computed_memory_equals_that_of_the_arrays(size: int, s: int, d: int) -> None:
    replay = replays.init_transitions(size, spec(s, d))
    arrays = [x for x in replay if x is not replay.stored]
    assert len(arrays) == 6
    assert replays.transition_bytes(size, spec(s, d)) == sum(x.nbytes for x in arrays)


def test_computed_memory_matches_hand_calculation() -> None:
    """A million steps of Hopper: 11 + 11 + 3 + 1 floats and two flags are 106 bytes each."""
    assert replays.transition_bytes(1_000_000, spec(11, 3)) == 106_000_000


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, "0 MB"),
        (1_600_000, "2 MB"),
        (106_000_000, "106 MB"),
        (999_000_000, "999 MB"),
        (1_000_000_000, "1.0 GB"),
        (12_345_678_901, "12.3 GB"),
        (42_000_000_000_000, "42,000.0 GB"),
    ],
)
def test_bytes_are_shown_in_megabytes_or_gigabytes(number: int, says: str) -> None:
    assert host.size(number) == says


# Memory available


def free(monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: number)


def test_nine_tenths_of_the_free_memory_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free(monkeypatch, 10_000_000_000)
    host.check_memory(9_000_000_000, "a replay", "replay_size")
    with pytest.raises(DiscError) as refused:
        host.check_memory(9_100_000_000, "a replay of 3 steps", "replay_size")
    assert str(refused.value) == (
        "a replay of 3 steps takes 9.1 GB, and this machine has 10.0 GB free; lower replay_size."
    )


def test_any_size_is_allowed_if_free_memory_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free(monkeypatch, 10**9)
    with pytest.raises(DiscError):
        host.check_memory(10**18, "a replay", "replay_size")
    free(monkeypatch, None)
    host.check_memory(10**18, "a replay", "replay_size")


def files(monkeypatch: pytest.MonkeyPatch, texts: dict[str, str]) -> None:
    """A system with these files and no others."""

    def read_text(path: Path, *_: Any, **__: Any) -> str:
        if str(path) not in texts:
            raise FileNotFoundError(str(path))
        return texts[str(path)]

    monkeypatch.setattr(Path, "read_text", read_text)


MEMINFO = {
    "/proc/meminfo": "MemTotal: 16000 kB\nMemFree: 5 kB\nMemAvailable:   8000 kB\nCached: 1 kB\n"
}


def container(limit: str) -> dict[str, str]:
    group = "/sys/fs/cgroup/memory"
    stat = "anon 500\ninactive_file 100\n"
    return {
        **MEMINFO,
        f"{group}.max": f"{limit}\n",
        f"{group}.current": "900\n",
        f"{group}.stat": stat,
    }


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ({}, None),
        ({"/proc/meminfo": "MemTotal:  16000 kB\n"}, None),
        ({"/proc/meminfo": "MemAvailable: many\n"}, None),
        (MEMINFO, 8_192_000),
        (container("max"), 8_192_000),
        (container("5000"), 4_200),
        (container("5000000000"), 8_192_000),
        (container("700"), 0),
    ],
    ids=["no files", "no line", "bad number", "machine", "no limit", "limit", "wide limit", "over"],
)
def test_free_memory_is_the_smaller_of_machine_and_container(
    texts: dict[str, str], wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(monkeypatch, texts)
    assert host.available_memory() == wanted


def test_free_memory_of_this_machine_is_plausible() -> None:
    found = host.available_memory()
    assert found is None or 0 <= found < 10**15


# Errors


@pytest.mark.parametrize("kind", [DDPG, TD3, SAC, SQL])
def test_too_large_replay_raises_before_allocation(
    kind: type[Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """6 + 6 + 4 + 1 floats and two flags: 70 bytes per step."""
    free(monkeypatch, 8_000_000_000)
    with pytest.raises(DiscError) as refused:
        kind(probes.wide, replay_size=10**12, widths=(4, 4))
    assert str(refused.value) == (
        "a replay of 1,000,000,000,000 steps takes 70,000.0 GB, and this machine has 8.0 GB free; "
        "lower replay_size."
    )


def test_largest_replay_that_fits_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 steps of 70 bytes are 7000; nine tenths of 7777 are too few, of 7778 enough."""
    free(monkeypatch, 7_777)
    with pytest.raises(DiscError, match="replay_size"):
        SAC(probes.wide, replay_size=100, widths=(4,))
    free(monkeypatch, 7_778)
    with SAC(probes.wide, replay_size=100, widths=(4,)) as agent:
        assert agent.state.replay.reward.shape == (100,)


@pytest.mark.parametrize("kind", [DISC, PPOAMBER])
def test_too_large_batch_replay_raises_before_allocation(
    kind: type[Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 + 8 + 1 floats and three flags are 87 bytes per step: 17.8 GB. An update needs 20 + 30
    more floats per step, and 42 + 40 per step of the newest batch: 58.8 GB in all.
    """
    options = {"replay_length": 100_000, "horizon": 2048, "epochs": 10, "widths": (4, 4)}
    free(monkeypatch, 19_000_000_000)
    with pytest.raises(DiscError) as refused:
        kind(probes.wide, **options)
    assert str(refused.value) == (
        "a replay of 100,000 × 2,048 steps takes 17.8 GB, and this machine has 19.0 GB free; "
        "lower horizon or replay_length."
    )
    free(monkeypatch, 60_000_000_000)
    with pytest.raises(DiscError) as refused:
        kind(probes.wide, **options)
    assert str(refused.value) == (
        "a replay of 100,000 × 2,048 steps (17.8 GB), with 10 passes over it, takes 58.8 GB, and "
        "this machine has 60.0 GB free; lower horizon, replay_length or epochs."
    )


@pytest.mark.parametrize("options", [{"epochs": 2**40}, {"value_epochs": 2**40}])
def test_passes_of_either_network_count(options: dict[str, int]) -> None:
    with pytest.raises(DiscError, match=rf"1,099,511,627,776 passes .* or {next(iter(options))}"):
        DISC(probes.wide, **options)


@pytest.mark.parametrize("kind", [PPO, TRPO, ACKTR])
def test_too_large_batch_raises_before_collection(
    kind: type[Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 8_000_000_000)
    with pytest.raises(DiscError, match=r"a replay of 1 × 128,000,000 steps takes 11.1 GB, and"):
        kind(probes.wide, horizon=128_000_000, widths=(4, 4))
