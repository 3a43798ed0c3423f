"""Which states of a study raise an alert, and which do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from optuna.trial import TrialState

from tuner.devices.idle_causes import IdleCause
from tuner.queries.alerts import AlertKind, find_alerts
from tuner.queries.idle import IdleNow
from tuner.queries.studies import StudySummary
from tuner.queries.study_state import Standing

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def study(*, completed: int = 0, failed: int = 0) -> StudySummary:
    counts = dict.fromkeys(TrialState, 0)
    counts |= {TrialState.COMPLETE: completed, TrialState.FAIL: failed}
    return StudySummary(
        id=1,
        name="s",
        objectives=(),
        trials=counts,
        n_paused=0,
        best={},
        dispatchers=(),
        started_at=None,
        active_at=None,
    )


def idle(cause: IdleCause, idle_s: float) -> IdleNow:
    since = NOW - timedelta(seconds=idle_s)
    return IdleNow(host="node1", device="GPU 0", cause=cause, since=since, dispatcher_id=1)


def kinds(about: StudySummary, standing: Standing, *devices: IdleNow) -> list[AlertKind]:
    return [each.kind for each in find_alerts(about, standing, "because", devices, NOW)]


def test_a_silent_study_stands_still() -> None:
    (alert,) = find_alerts(study(), Standing.SILENT, "node1 (pid 7) hangs", (), NOW)
    assert alert.kind is AlertKind.STANDSTILL
    assert alert.text == "the study makes no progress: node1 (pid 7) hangs"
    assert kinds(study(), Standing.RUNNING) == []


@pytest.mark.parametrize("cause", list(IdleCause), ids=lambda cause: cause.value)
def test_only_a_cause_that_the_user_can_remove_raises_an_alert(cause: IdleCause) -> None:
    curable = cause in {IdleCause.NO_SUGGESTION, IdleCause.GATHERING, IdleCause.DISK_FULL}
    expected = [AlertKind.IDLE_DEVICES] if curable else []
    assert kinds(study(), Standing.RUNNING, idle(cause, 61)) == expected
    assert kinds(study(), Standing.RUNNING, idle(cause, 59)) == []


@pytest.mark.parametrize(
    ("completed", "failed", "is_alert"),
    [(4, 1, True), (3, 1, False), (9, 2, False), (8, 2, True), (0, 5, True), (100, 0, False)],
)
def test_a_failure_rate_of_a_fifth_raises_an_alert(
    completed: int, failed: int, is_alert: bool
) -> None:
    found = kinds(study(completed=completed, failed=failed), Standing.RUNNING)
    assert found == ([AlertKind.FAILURES] if is_alert else [])
