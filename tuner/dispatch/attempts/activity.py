"""Whether an attempt does anything: processor time of its processes, utilization of its GPUs."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.device import DeviceKind
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.domain.attempt import AttemptId

#: Of one core. An idle interpreter with the threads of torch takes far less.
_BUSY_SHARE = 0.02


class Activity:
    """Looks at the processes and the devices of attempts.

    Args:
        watch: Reads devices.
        now_s: The monotonic clock.
    """

    def __init__(self, watch: DeviceWatch, now_s: Callable[[], float]) -> None:
        self._watch = watch
        self._now_s = now_s
        #: By attempt: when it was looked at, and the processor seconds that it had taken by then.
        self._before: dict[AttemptId, tuple[float, float]] = {}

    def is_working(self, live: LiveAttempt) -> bool:
        """Whether it did something since the last question; at the first one it counts as so."""
        now_s, taken_s = self._now_s(), sum(map(_processor_s, live.pids))
        before = self._before.get(live.attempt.id)
        self._before[live.attempt.id] = (now_s, taken_s)
        if before is None:
            return True
        # A process that has ended took its time along: less than before is something, too.
        used_s, passed_s = abs(taken_s - before[1]), now_s - before[0]
        return used_s > _BUSY_SHARE * passed_s or self._uses_a_gpu(live)

    def forget(self, attempt_id: AttemptId) -> None:
        """The attempt is over."""
        self._before.pop(attempt_id, None)

    def _uses_a_gpu(self, live: LiveAttempt) -> bool:
        for device in live.grant.devices:
            status = None if device.kind is DeviceKind.CPU else self._watch.status(device)
            if status is not None and status.utilization_pct:
                return True
        return False


def _processor_s(pid: int) -> float:
    """Seconds that a process and all below it have taken; 0 where it is gone."""
    try:
        process = psutil.Process(pid)
        times = [each.cpu_times() for each in [process, *process.children(recursive=True)]]
    except psutil.Error:
        return 0.0
    return sum(each.user + each.system for each in times)
