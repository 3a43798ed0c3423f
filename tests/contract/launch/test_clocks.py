"""What the dispatcher may expect of a clock."""

from __future__ import annotations

from datetime import UTC

import pytest

from tests.fakes import FakeClock
from tuner.host.clock import Clock, SystemClock


@pytest.mark.parametrize("clock", [FakeClock(), SystemClock()], ids=["fake", "system"])
def test_now_is_in_utc_and_never_goes_back(clock: Clock):
    first, second = clock.now(), clock.now()
    assert first.utc.tzinfo is UTC
    assert second.monotonic_s >= first.monotonic_s
