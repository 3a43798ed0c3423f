"""The dispatcher's clock, which nobody sets."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from tuner.host import clock
from tuner.host.clock import Instant, SystemClock


class SetClock:
    """The machine's clock, an hour later at each look."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self, zone: object) -> datetime:
        self._now += timedelta(hours=1)
        return self._now


def test_instants_go_on_where_somebody_sets_the_machines_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "datetime", SetClock())
    seconds = iter([10.0, 11.5, 12.0])
    monkeypatch.setattr(clock, "since_boot_s", lambda: next(seconds))
    system = SystemClock()
    first, second = system.now(), system.now()
    assert first.utc == datetime(2026, 1, 1, 1, 0, 1, 500_000, tzinfo=UTC)
    assert second.utc - first.utc == timedelta(seconds=0.5)


def test_instants_are_those_of_the_machine_at_the_start() -> None:
    before = datetime.now(UTC)
    instant = SystemClock().now()
    assert before <= instant.utc <= datetime.now(UTC) + timedelta(seconds=1)


def test_a_moment_that_another_process_noted_is_told_in_the_time_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "datetime", SetClock())
    seconds = iter([10.0, 13.0])
    monkeypatch.setattr(clock, "since_boot_s", lambda: next(seconds))
    now = SystemClock().now()
    assert now.utc_at(12.5) == now.utc - timedelta(seconds=0.5)
    for unknown in (None, math.nan, -math.inf, 13.5):
        assert now.utc_at(unknown) == now.utc
    assert Instant(utc=now.utc, monotonic_s=1.0).utc_at(12.5) == now.utc
