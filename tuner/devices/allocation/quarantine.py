"""Devices that look broken: quarantined, and tested again later with a small known program."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.devices.device import Device, DeviceId

_log = logging.getLogger(__name__)
#: From SIGKILL.
_END_S = 10.0

#: A test that takes longer hangs.
_LIMIT_S = 60.0
_FIRST_WAIT_S = 60.0
_LONGEST_WAIT_S = 3600.0

StartTest = Callable[[Device], "subprocess.Popen[bytes]"]


@dataclass(slots=True, kw_only=True)
class _Case:
    device: Device
    reason: str
    #: Its test, while one runs.
    test: subprocess.Popen[bytes] | None = None
    #: When the test started, or when the next is due (monotonic seconds).
    at_s: float
    wait_s: float = _FIRST_WAIT_S


class Quarantine:
    """The quarantined devices.

    Args:
        start_test: Starts a program that exits with 0 if a device works.
    """

    def __init__(self, start_test: StartTest | None = None) -> None:
        self._start_test = start_test or start_self_test
        self._cases: dict[DeviceId, _Case] = {}

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why each device is quarantined, by label."""
        return {case.device.label: case.reason for case in self._cases.values()}

    def put(self, device: Device, reason: str, now_s: float, *, is_lost: bool = False) -> None:
        """Quarantines a device. It is tested at once, or after a while if it is lost."""
        if device.id not in self._cases:
            at_s = now_s + (_FIRST_WAIT_S if is_lost else 0.0)
            self._cases[device.id] = _Case(device=device, reason=reason, at_s=at_s)

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(case.device for case in self._cases.values())

    def forget(self, device: Device) -> None:
        """Removes a device from quarantine, and ends its test if one runs."""
        case = self._cases.pop(device.id, None)
        if case is not None:
            _end(case.test)

    def holds(self, device: Device) -> bool:
        return device.id in self._cases

    def look(self, now_s: float) -> list[Device]:
        """Starts tests that are due and reads those that ended; returns the devices that passed."""
        recovered = [case for case in self._cases.values() if self._has_passed(case, now_s)]
        for case in recovered:
            del self._cases[case.device.id]
        return [case.device for case in recovered]

    def close(self) -> None:
        """Ends tests that run."""
        for case in self._cases.values():
            _end(case.test)

    def _has_passed(self, case: _Case, now_s: float) -> bool:
        if case.test is None:
            if now_s >= case.at_s:
                case.test, case.at_s = self._start_test(case.device), now_s
            return False
        code = case.test.poll()
        if code is None and now_s - case.at_s < _LIMIT_S:
            return False
        _end(case.test)
        case.test = None
        case.at_s = now_s + case.wait_s
        case.wait_s = min(2 * case.wait_s, _LONGEST_WAIT_S)
        return code == 0


def start_self_test(device: Device) -> subprocess.Popen[bytes]:
    """Runs `tuner.devices.gpu_check` on one GPU."""
    return subprocess.Popen(
        [sys.executable, "-m", "tuner.devices.gpu_check", str(os.getpid())],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": device.cuda_id},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end(test: subprocess.Popen[bytes] | None) -> None:
    if test is not None and test.poll() is None:
        os.killpg(test.pid, signal.SIGKILL)
        try:
            test.wait(_END_S)
        except subprocess.TimeoutExpired:
            # A broken GPU's driver may keep it in uninterruptible sleep.
            _log.warning("The test of a GPU (pid %d) has not ended: not waited for", test.pid)
