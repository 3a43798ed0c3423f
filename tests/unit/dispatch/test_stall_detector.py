"""Which attempts are still for too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from tests.unit.dispatch.test_live_attempt import a_live_attempt
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.attempts.stall_detector import Stalls
from tuner.domain.attempt import AttemptState


class Work:
    """What the test says that attempts do."""

    def __init__(self) -> None:
        self.is_working = False

    def __call__(self, live: LiveAttempt) -> bool:
        return self.is_working


def running() -> LiveAttempt:
    live = a_live_attempt()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    live.attempt = replace(live.attempt, state=AttemptState.RUNNING, started_at=now)
    return live


def seconds_until_found(stalls: Stalls, live: LiveAttempt, *, at_most_s: int = 200) -> int | None:
    for second in range(at_most_s):
        if list(stalls.find([live], 1000.0 + second)):
            return second
    return None


def test_one_that_neither_reports_nor_works_is_found_after_the_limit() -> None:
    assert seconds_until_found(Stalls(60.0, Work()), running()) == 60


def test_one_that_works_is_never_found() -> None:
    work = Work()
    work.is_working = True
    assert seconds_until_found(Stalls(60.0, work), running()) is None


def test_a_report_counts_from_when_it_came() -> None:
    live = running()
    live.heard_at_s = 1000.0 + 30
    assert seconds_until_found(Stalls(60.0, Work()), live) == 90


def test_without_a_limit_nobody_is_asked() -> None:
    asked = []
    stalls = Stalls(None, lambda live: bool(asked.append(live)))
    assert seconds_until_found(stalls, running()) is None
    assert asked == []


def test_one_that_has_not_started_or_ends_already_is_left_alone() -> None:
    for state in (AttemptState.LEASED, AttemptState.STOPPING, AttemptState.CLEARING):
        live = running()
        live.attempt = replace(live.attempt, state=state)
        assert seconds_until_found(Stalls(60.0, Work()), live) is None


def test_dispatcher_that_stood_still_itself_begins_anew() -> None:
    live, stalls = running(), Stalls(60.0, Work())
    assert not list(stalls.find([live], 1000.0))
    assert not list(stalls.find([live], 2000.0))
    assert not list(stalls.find([live], 2010.0))
    assert list(stalls.find([live], 2020.0)) == []
    for second in range(2026, 2060, 6):
        assert not list(stalls.find([live], float(second)))
    assert list(stalls.find([live], 2066.0)) == [live]
