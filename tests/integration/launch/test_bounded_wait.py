"""Waits for a process that does not end have a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tuner.devices.allocation import quarantine
from tuner.launch.local_host import guardian as guardian_module
from tuner.launch.local_host.bounded_wait import ends_in_time
from tuner.launch.local_host.guardian import Guardian


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait(10)


def test_process_that_goes_on_is_left(sleeper: subprocess.Popen[bytes]) -> None:
    assert not ends_in_time(sleeper, what="It", within_s=0.05)
    sleeper.kill()
    assert ends_in_time(sleeper, what="It")


def test_guardian_that_is_stopped_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardian_module, "_CLOSE_S", 0.2)
    guardian = Guardian(0.1)
    os.kill(guardian._process.pid, signal.SIGSTOP)
    monkeypatch.setattr(guardian_module, "_CLOSE_S", 0.2)
    guardian.close()
    assert guardian._process.wait(10) == -signal.SIGKILL


def test_gpu_test_that_does_not_end_is_left(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(quarantine, "_END_S", 0.05)
    monkeypatch.setattr(quarantine.os, "killpg", lambda group, number: None)
    quarantine._end(sleeper)
    assert sleeper.poll() is None
