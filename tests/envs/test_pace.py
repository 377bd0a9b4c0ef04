"""Environment threads are used only if they are faster; results do not depend on them."""

from __future__ import annotations

import pytest

from disc.envs.pool import Pace


@pytest.mark.parametrize(("threaded", "plain", "best"), [(1.0, 2.0, True), (2.0, 1.0, False)])
def test_faster_of_threaded_and_plain_stepping_is_kept(
    threaded: float, plain: float, best: bool
) -> None:
    pace, tried = Pace(), []
    for _ in range(5):
        way = pace.faster()
        tried.append(way)
        pace.note(way, threaded if way else plain)
    assert tried == [True, False, best, best, best]
