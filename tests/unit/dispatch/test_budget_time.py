"""The time that a study has spent: not that in which it waits for its first device."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.dispatch.supply.budget_tracker import BudgetTracker
from tuner.domain.budget import Budget, EndedUses
from tuner.host.clock import Instant

BEFORE_S = 10.0
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> Instant:
    return Instant(utc=BEGIN + timedelta(seconds=seconds), monotonic_s=100.0 + seconds)


class Study:
    """What a budget of time reads of a dispatcher."""

    def __init__(self) -> None:
        self.live: dict[Any, Any] = {}
        self.others = False
        past = SimpleNamespace(time_s=BEFORE_S, trials=EndedUses())
        recorder: Any = SimpleNamespace(past=past, fleet=SimpleNamespace(device_s_elsewhere=0.0))
        search: Any = SimpleNamespace(counts=SimpleNamespace(n_begun=0))
        usage: Any = SimpleNamespace(energy_kwh=0.0)
        self.spending = BudgetTracker(
            Budget(time_s=BEFORE_S + 60.0),
            search=search,
            recorder=recorder,
            usage=usage,
            live=self.live,
            started_at=at(0),
            are_others_here=lambda: self.others,
            say=print,
        )

    def spent_s(self, seconds: float) -> float:
        return self.spending.spent(at(seconds)).time_s - BEFORE_S

    def begin(self, seconds: float) -> None:
        self.live["1.1"] = SimpleNamespace(leased_at_s=at(seconds).monotonic_s)


@pytest.fixture
def study() -> Study:
    return Study()


def test_the_wait_for_the_first_device_is_not_spent_and_later_ones_are(study: Study) -> None:
    assert study.spent_s(1000) == 0
    assert study.spending.why_no_more(at(1000), is_new_trial=True) is None
    study.begin(1001)
    assert study.spent_s(1011) == 10
    study.live.clear()
    assert study.spent_s(1051) == 50
    assert study.spending.why_no_more(at(1062), is_new_trial=True) is not None


def test_the_time_of_the_study_passes_while_other_dispatchers_work(study: Study) -> None:
    study.others = True
    assert study.spent_s(40) == 40
    study.others = False
    assert study.spent_s(50) == 50
