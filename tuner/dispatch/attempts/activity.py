"""Detects whether an attempt is working, from CPU time of its processes and GPU utilization."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.device import DeviceKind
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.domain.attempt import AttemptId

#: Share of one core. An idle interpreter with torch's threads uses far less.
_BUSY_SHARE = 0.02


class Activity:
    """Reads CPU time and GPU utilization of attempts.

    Args:
        watch: Reads devices.
        now_s: The monotonic clock, in seconds.
    """

    def __init__(self, watch: DeviceWatch, now_s: Callable[[], float]) -> None:
        self._watch = watch
        self._now_s = now_s
        #: By attempt: when it was last read (monotonic seconds), and its CPU time in seconds by
        #: then.
        self._before: dict[AttemptId, tuple[float, float]] = {}

    def is_working(self, live: LiveAttempt) -> bool:
        """Whether an attempt used CPU or GPU since the last call; true on the first call."""
        now_s, taken_s = self._now_s(), sum(map(_processor_s, live.pids))
        before = self._before.get(live.attempt.id)
        self._before[live.attempt.id] = (now_s, taken_s)
        if before is None:
            return True
        # A process that has ended took its time along: less than before is something, too.
        used_s, passed_s = abs(taken_s - before[1]), now_s - before[0]
        return used_s > _BUSY_SHARE * passed_s or self._uses_a_gpu(live)

    def forget(self, attempt_id: AttemptId) -> None:
        """Drops the readings of an attempt that has ended."""
        self._before.pop(attempt_id, None)

    def _uses_a_gpu(self, live: LiveAttempt) -> bool:
        for device in live.grant.devices:
            status = None if device.kind is DeviceKind.CPU else self._watch.status(device)
            if status is not None and status.utilization_pct:
                return True
        return False


def _processor_s(pid: int) -> float:
    """CPU time of a process and its descendants, in seconds; 0 if the process is gone."""
    try:
        process = psutil.Process(pid)
        times = [each.cpu_times() for each in [process, *process.children(recursive=True)]]
    except psutil.Error:
        return 0.0
    return sum(each.user + each.system for each in times)
