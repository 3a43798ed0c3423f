"""How far the best ones are apart, the line of a study, and the time that is left."""

from __future__ import annotations

import pytest

from tests.unit.app.columns import trials
from tuner.app.data.convergence.spread import sparkline, spread_of, time_left_s


def test_spread_of_the_best() -> None:
    found = spread_of(trials([5.0, 1.0, 2.0, 9.0]), is_maximized=False, n=3)
    assert found is not None
    assert (found.numbers, found.values) == ((1, 2, 0), (1.0, 2.0, 5.0))
    assert (found.width, found.share) == (4.0, 0.5)


def test_spread_takes_two() -> None:
    assert spread_of(trials([1.0]), is_maximized=True) is None
    alike = spread_of(trials([1.0, 1.0]), is_maximized=True)
    assert alike is not None
    assert alike.share == 0.0


def test_sparkline_is_the_best_so_far_and_short() -> None:
    assert sparkline(trials([3.0, 5.0, 1.0]), is_maximized=False) == [3.0, 3.0, 1.0]
    assert sparkline(trials([]), is_maximized=False) == []
    line = sparkline(trials(list(range(1000))), is_maximized=True)
    assert len(line) == 40
    assert line[-1] == 999.0


@pytest.mark.parametrize(
    ("fraction", "is_running", "left"),
    [(0.25, True, 30.0), (0.25, False, None), (None, True, None), (0.0, True, None)],
    ids=["a quarter", "stopped", "open", "nothing yet"],
)
def test_time_that_is_left(fraction: float | None, is_running: bool, left: float | None) -> None:
    assert time_left_s(fraction, 10.0, is_running=is_running) == left
