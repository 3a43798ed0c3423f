"""What trials take for a step, and to start, is measured from their reports."""

from __future__ import annotations

import pytest

from tuner.search.rungs.step_time import Measured, Pace


def test_nothing_is_known_before_a_step_was_timed() -> None:
    pace = Pace()
    pace.reported(3, 1, 7.0, known=[1])
    assert pace.measured(3) is None
    assert (pace.of_step(3), pace.of_step(None), pace.of_start) == (1.0, 1.0, 0.0)
    assert pace.unit == "step"


def test_two_reports_tell_a_step_and_a_start() -> None:
    pace = Pace()
    pace.reported(3, 1, 7.0, known=[1])
    pace.reported(3, 5, 15.0, known=[1, 5])
    assert pace.measured(3) == Measured(of_step=2.0, of_start=5.0)


def test_a_resumed_trial_pays_for_the_steps_of_this_attempt_alone() -> None:
    pace = Pace()
    pace.reported(3, 8, 100.0, known=[8])
    pace.begins(3)
    pace.reported(3, 10, 9.0, known=[8, 10])
    pace.reported(3, 12, 13.0, known=[8, 10, 12])
    assert pace.measured(3) == Measured(of_step=2.0, of_start=5.0)


def test_a_report_that_comes_again_changes_nothing() -> None:
    pace = Pace()
    pace.reported(3, 1, 7.0, known=[1])
    pace.reported(3, 1, 9.0, known=[1])
    assert pace.measured(3) is None


def test_each_has_its_own_and_who_has_none_the_median() -> None:
    pace = Pace()
    for number, of_step in enumerate((2.0, 50.0, 4.0)):
        pace.take_in(number, Measured(of_step=of_step, of_start=of_step / 2))
    assert pace.of_step(1) == 50.0
    assert pace.of_step(17) == pace.of_step(None) == 4.0
    assert pace.of_start == 2.0
    assert pace.unit == "second"


def test_a_trial_counts_once_in_the_median_and_its_newest_for_itself() -> None:
    pace = Pace()
    pace.take_in(0, Measured(of_step=1.0, of_start=0.0))
    for of_step in (10.0, 11.0, 12.0):
        pace.take_in(1, Measured(of_step=of_step, of_start=0.0))
    assert pace.of_step(1) == 12.0
    assert pace.of_step(None) == pytest.approx(10.0)


def test_clocks_that_stand_still_cost_nothing() -> None:
    pace = Pace()
    pace.reported(0, 1, 5.0, known=[1])
    pace.reported(0, 2, 5.0, known=[1, 2])
    assert pace.measured(0) == Measured(of_step=0.0, of_start=5.0)
