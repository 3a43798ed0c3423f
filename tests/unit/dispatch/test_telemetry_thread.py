"""The end of a study whose driver does not answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from tests.fakes import FakeClock, FakeProbe
from tuner.devices.device import Device
from tuner.dispatch.upkeep.telemetry_thread import Sampler


def test_a_look_that_does_not_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tuner.dispatch.upkeep.telemetry_thread._CLOSE_S", 0.1)
    looks, answers = threading.Event(), threading.Event()

    def open_telemetry(_: Sequence[Device]) -> None:
        looks.set()
        answers.wait()

    sampler = Sampler(open_telemetry, FakeProbe(1).devices(), FakeClock(), every_s=1.0)
    sampler.start()
    assert looks.wait(60.0)
    with caplog.at_level(logging.WARNING):
        sampler.close()
    answers.set()
    assert "not waited for" in caplog.text
