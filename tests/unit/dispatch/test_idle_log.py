"""Why a device is idle, and for how long it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tuner.devices.device import DeviceId
from tuner.devices.idle_causes import IdleCause
from tuner.dispatch.upkeep.idle_log import IdleLog, StudyFacts, why_idle

A, B = DeviceId("GPU-a"), DeviceId("GPU-b")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize("own", [IdleCause.TAKEN, IdleCause.QUARANTINED, IdleCause.LOST])
def test_what_is_the_matter_with_a_device_comes_first(own: IdleCause) -> None:
    study = StudyFacts(is_over=True, is_paused=True, is_database_away=True, is_gathering=True)
    assert why_idle(own, study) is own


@pytest.mark.parametrize(
    ("study", "cause"),
    [
        (StudyFacts(), IdleCause.NO_SUGGESTION),
        (StudyFacts(is_gathering=True), IdleCause.GATHERING),
        (StudyFacts(is_disk_full=True, is_gathering=True), IdleCause.DISK_FULL),
        (StudyFacts(is_paused=True, is_gathering=True, is_disk_full=True), IdleCause.PAUSED),
        (StudyFacts(is_over=True, is_paused=True), IdleCause.NOTHING_LEFT),
        (StudyFacts(is_database_away=True, is_over=True), IdleCause.DATABASE),
    ],
    ids=["asking", "waiting", "disk", "paused", "over", "outage"],
)
def test_else_the_study_tells(study: StudyFacts, cause: IdleCause) -> None:
    assert why_idle(None, study) is cause


def told(log: IdleLog) -> list[tuple[str, str, float, float, bool]]:
    return [
        (
            each.device_id,
            each.cause.value,
            (each.began_at - NOW).total_seconds(),
            (each.ended_at - NOW).total_seconds(),
            each.is_known,
        )
        for each in log.take()
    ]


def test_a_span_lasts_until_its_device_is_used() -> None:
    log = IdleLog()
    log.note(at(0), {A: IdleCause.PAUSED, B: IdleCause.PAUSED})
    log.note(at(1), {A: IdleCause.PAUSED})
    log.note(at(3), {})
    assert told(log) == [(B, "paused", 0, 1, False), (A, "paused", 0, 3, False)]
    assert told(log) == []


def test_another_cause_is_another_span() -> None:
    log = IdleLog()
    log.note(at(0), {A: IdleCause.GATHERING})
    log.note(at(2), {A: IdleCause.NOTHING_LEFT})
    log.note(at(5), {})
    assert told(log) == [(A, "gathering", 0, 2, False), (A, "nothing_left", 2, 5, False)]


def test_what_lasts_is_told_again_with_a_later_end() -> None:
    log = IdleLog()
    log.note(at(0), {A: IdleCause.PAUSED})
    log.note(at(5), {A: IdleCause.PAUSED})
    assert told(log) == [(A, "paused", 0, 5, False)]
    log.note(at(7), {A: IdleCause.PAUSED})
    assert told(log) == [(A, "paused", 0, 7, True)]
    log.note(at(8), {})
    assert told(log) == [(A, "paused", 0, 8, True)]


def test_what_has_no_length_is_not_told() -> None:
    log = IdleLog()
    log.note(at(0), {A: IdleCause.NO_SUGGESTION})
    log.note(at(0), {})
    log.spent(IdleCause.NO_SUGGESTION, at(1), at(1), [A])
    assert told(log) == []


def test_time_that_is_told_is_not_told_twice() -> None:
    log = IdleLog()
    log.note(at(0), {A: IdleCause.PAUSED})
    log.spent(IdleCause.NO_SUGGESTION, at(2), at(5), [A, B])
    log.spent(IdleCause.NO_SUGGESTION, at(4), at(6), [A])
    # The round that asked began at 2.
    log.note(at(2), {A: IdleCause.NOTHING_LEFT})
    log.note(at(9), {})
    assert told(log) == [
        (A, "paused", 0, 2, False),
        (A, "no_suggestion", 2, 5, False),
        (B, "no_suggestion", 2, 5, False),
        (A, "no_suggestion", 5, 6, False),
        (A, "nothing_left", 6, 9, False),
    ]
