"""Several environments are stepped in the fastest way; results do not depend on it."""

from __future__ import annotations

import pytest

from disc.envs.pace import IN_PROCESSES, IN_THREADS, IN_TURN, Pace, Way

STEPS = 1000  # of a batch


def tried(
    seconds: dict[Way, float],
    remaining: int = 10**6,
    threads: int = 2,
    processes: bool = True,
    computing: float = 1.0,
) -> list[Way]:
    """The ways of the first six batches, given what a step takes in each."""
    pace, ways = Pace(2, processes), list[Way]()
    for batch in range(6):
        way = pace.way(STEPS, threads, remaining, batch * STEPS)
        ways.append(way)
        pace.note(way, STEPS, STEPS * seconds[way], computing * STEPS * seconds[way])
    return ways


def test_threads_that_halve_the_time_are_kept_without_trying_processes() -> None:
    seconds = {IN_TURN: 2e-4, IN_THREADS: 1e-4}
    assert tried(seconds) == [IN_TURN, *[IN_THREADS] * 5]


@pytest.mark.parametrize(("processes", "best"), [(1.1e-4, IN_PROCESSES), (3e-4, IN_TURN)])
def test_processes_are_tried_where_python_holds_the_lock(processes: float, best: Way) -> None:
    seconds = {IN_TURN: 2e-4, IN_THREADS: 2.5e-4, IN_PROCESSES: processes}
    expected = [IN_TURN, IN_THREADS, IN_PROCESSES, IN_PROCESSES, best, best]
    assert tried(seconds) == expected


@pytest.mark.parametrize(
    "options",
    [{"remaining": 50_000}, {"remaining": 0}, {"processes": False}],
    ids=["short run", "unknown length", "not possible"],
)
def test_processes_are_not_started_where_they_gain_little(options: dict[str, int]) -> None:
    seconds = {IN_TURN: 2e-4, IN_THREADS: 2.5e-4}
    assert tried(seconds, **options) == [IN_TURN, IN_THREADS, *[IN_TURN] * 4]


def test_one_core_and_short_batches_need_no_trial() -> None:
    assert tried({IN_TURN: 1.0}, threads=1) == [IN_TURN] * 6
    assert tried({IN_TURN: 1e-7}) == [IN_TURN] * 6


def test_environments_that_wait_get_a_thread_each() -> None:
    pace = Pace(8, True)
    pace.note(IN_TURN, STEPS, 2.0, 1.9)
    assert pace.parallel(2) == 2
    pace.note(IN_TURN, STEPS, 2.0, 0.1)
    assert pace.parallel(2) == 8


def test_choice_is_reported_in_one_line() -> None:
    pace = Pace(2, False)
    assert pace.summary() is None
    pace.note(IN_TURN, STEPS, 2.0, 2.0)
    pace.note(IN_THREADS, STEPS, 1.0)
    pace.way(STEPS, 2)
    assert pace.summary() == (
        "2 environments are stepped in threads, 2.0 times as fast as one after the other (found "
        "by a trial; --workers sets it)."
    )
