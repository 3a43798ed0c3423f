"""The timeline of trials of databases that record no devices."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.unit.app.columns import NAN, trials
from tuner.app.data.devices.trial_lanes import MAX_LANES, trial_lanes


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_trials_that_overlap_have_lanes_of_their_own() -> None:
    found = trial_lanes(
        trials(
            [1.0, 2.0, NAN, 4.0],
            words=["completed", "pruned", "failed", "completed"],
            started_at_s=[0.0, 5.0, 10.0, 12.0],
            ended_at_s=[10.0, 20.0, 15.0, 30.0],
        ),
        at(1e6),
    )
    assert found is not None
    lanes = {bar.trial: (bar.device_id, bar.start_s, bar.end_s, bar.word) for bar in found.bars}
    assert lanes == {
        0: (0, 0.0, 10.0, "completed"),
        1: (1, 5.0, 20.0, "pruned"),
        2: (0, 10.0, 15.0, "failed"),
        3: (2, 12.0, 30.0, "completed"),
    }
    assert (found.start_s, found.end_s, found.n_left_out) == (0.0, 30.0, 0)


@pytest.mark.parametrize(("now_s", "end_s"), [(100.0, 100.0), (1e6, 20.0)])
def test_a_trial_left_as_running_does_not_last_until_today(now_s: float, end_s: float) -> None:
    rows = trials([1.0, NAN], words=["completed", "running"], ended_at_s=[20.0, NAN])
    found = trial_lanes(rows, at(now_s))
    assert found is not None
    assert {bar.trial: bar.end_s for bar in found.bars} == {0: 20.0, 1: end_s}


def test_trials_that_never_started_have_no_timeline() -> None:
    assert trial_lanes(trials([NAN], words=["waiting"], started_at_s=[NAN]), at(0)) is None
    many = MAX_LANES + 3
    rows = trials([1.0] * many, started_at_s=[0.0] * many, ended_at_s=[9.0] * many)
    found = trial_lanes(rows, at(9))
    assert found is not None
    assert (len(found.lanes), found.n_left_out) == (MAX_LANES, 3)
