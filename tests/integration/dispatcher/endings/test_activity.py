"""Whether real processes do something."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.study_folder import wait_until
from tests.fakes import FakeProbe
from tests.unit.dispatch.test_live_attempt import a_live_attempt
from tuner.devices.allocation.watch import DeviceWatch
from tuner.dispatch.attempts.activity import Activity
from tuner.dispatch.attempts.live_attempt import LiveAttempt, Rank


@contextmanager
def attempt_of(code: str) -> Iterator[LiveAttempt]:
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    live = a_live_attempt()
    live.ranks = [Rank(number=0, pid=process.pid)]
    try:
        yield live
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # With what it has started.
        process.wait()
        process.stdout.close()


class Seconds:
    """A clock that moves by a second at each look."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += 1.0
        return self._now_s


def activity() -> Activity:
    return Activity(DeviceWatch(FakeProbe(1)), Seconds())


def test_one_that_sleeps_does_nothing() -> None:
    looks = activity()
    with attempt_of("import time; print(flush=True); time.sleep(600)") as live:
        assert looks.is_working(live), "at first nothing is known"
        assert not looks.is_working(live)
        assert not looks.is_working(live)


def test_one_that_computes_works() -> None:
    looks = activity()
    with attempt_of("print(flush=True)\nwhile True: pass") as live:
        looks.is_working(live)
        wait_until(lambda: looks.is_working(live), "it is seen to work")


def test_children_count() -> None:
    code = (
        "import subprocess, sys, time; print(flush=True)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "time.sleep(600)"
    )
    looks = activity()
    with attempt_of(code) as live:
        looks.is_working(live)
        wait_until(lambda: looks.is_working(live), "its child is seen to work")


def test_one_that_is_gone_does_nothing() -> None:
    looks = activity()
    live = a_live_attempt()
    live.ranks = [Rank(number=0, pid=4_999_999)]
    looks.is_working(live)
    assert not looks.is_working(live)
    looks.forget(live.attempt.id)
    assert looks.is_working(live)
