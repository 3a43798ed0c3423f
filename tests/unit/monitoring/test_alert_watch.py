"""When a running study asks for a look: after a minute, once, and again after it was over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.devices.idle_causes import IdleCause
from tuner.dispatch.notices import RunningTrial, Snapshot
from tuner.monitoring.alert_watch import AlertWatch
from tuner.queries.alerts import AlertKind

QUIET = Snapshot(
    n_completed=0,
    n_pruned=0,
    n_failed=0,
    n_waiting=0,
    n_begun=0,
    n_trials=8,
    running=(),
    idle_devices=(),
    left_to_others={},
    best=None,
    elapsed_s=0.0,
    fraction=None,
    left_s=None,
    is_stopping=False,
)
RUNNING = RunningTrial(
    number=0,
    attempt_number=1,
    devices=("cpu:0",),
    state="training",
    elapsed_s=1.0,
    step=1,
    values={},
    params={},
)


def idle(cause: IdleCause, *, is_busy: bool = True) -> Snapshot:
    running = (RUNNING,) if is_busy else ()
    return replace(QUIET, idle_causes={"cpu:1": cause.value}, running=running)


@pytest.mark.parametrize(
    "cause", [IdleCause.GATHERING, IdleCause.NO_SUGGESTION, IdleCause.DISK_FULL]
)
def test_idle_device_is_told_after_a_minute_and_once(cause: IdleCause) -> None:
    watch, shown = AlertWatch(), idle(cause)
    assert watch.look(shown, 0.0) == []
    assert watch.look(shown, 59.0) == []
    (alert,) = watch.look(shown, 60.0)
    assert alert.kind is AlertKind.IDLE_DEVICES
    assert "cpu:1. To fix it, " in alert.text
    assert watch.look(shown, 3600.0) == []


def test_it_is_told_again_after_it_was_over() -> None:
    watch, shown = AlertWatch(), idle(IdleCause.GATHERING)
    watch.look(shown, 0.0)
    assert watch.look(shown, 60.0)
    watch.look(replace(QUIET, running=(RUNNING,)), 61.0)
    assert watch.look(shown, 62.0) == []
    assert watch.look(shown, 122.0)


@pytest.mark.parametrize("cause", [IdleCause.TAKEN, IdleCause.NOTHING_LEFT, IdleCause.PAUSED])
def test_causes_that_nobody_has_to_remove_are_no_alert(cause: IdleCause) -> None:
    watch = AlertWatch()
    assert not [each for at_s in (0.0, 100.0) for each in watch.look(idle(cause), at_s)]


def test_a_study_without_a_trial_stands_still() -> None:
    watch, shown = AlertWatch(), idle(IdleCause.DATABASE, is_busy=False)
    watch.look(shown, 0.0)
    (alert,) = watch.look(shown, 60.0)
    assert alert.kind is AlertKind.STANDSTILL
    assert alert.text == "no trial has run for over a minute (database away)"


@pytest.mark.parametrize("cause", [IdleCause.NOTHING_LEFT, IdleCause.PAUSED])
def test_a_study_that_is_paused_or_over_does_not(cause: IdleCause) -> None:
    watch, shown = AlertWatch(), idle(cause, is_busy=False)
    watch.look(shown, 0.0)
    assert watch.look(shown, 60.0) == []


def test_nothing_is_told_of_a_study_that_ends() -> None:
    watch = AlertWatch()
    failed = replace(QUIET, n_failed=5, is_stopping=True)
    assert watch.look(failed, 0.0) == []


@pytest.mark.parametrize(("n_failed", "is_told"), [(0, False), (1, True), (5, True)])
def test_a_fifth_of_the_trials_failed(n_failed: int, is_told: bool) -> None:
    shown = replace(QUIET, n_completed=5 - n_failed, n_failed=n_failed)
    assert bool(AlertWatch().look(shown, 0.0)) is is_told
