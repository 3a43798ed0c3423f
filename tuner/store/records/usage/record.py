"""Device usage, buffered until it is written with other records."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.devices.device import DeviceId
from tuner.devices.idle_causes import IdleSpan
from tuner.devices.usage.tally import Tally
from tuner.domain.attempt import AttemptId
from tuner.store.records.usage.rows import UsageRows

#: While the database is away.
MOST_WAITING = 50_000


class UsageRecord:
    """Collects usage for one dispatcher. Data about unknown devices is dropped.

    Args:
        device_ids: The records of its devices; may grow.
    """

    def __init__(self, device_ids: Mapping[DeviceId, int]) -> None:
        self._device_ids = device_ids
        self._pending = UsageRows()
        #: Whose totals were taken before.
        self._known: set[tuple[AttemptId, DeviceId]] = set()

    def __bool__(self) -> bool:
        return bool(self._pending)

    def sample(self, device_id: DeviceId, start_s: int, tally: Tally) -> None:
        """Adds a device's readings in one second, which began at `start_s` since the epoch."""
        if device_id in self._device_ids and len(self._pending.samples) < MOST_WAITING:
            self._pending.add_sample(self._device_ids[device_id], start_s, tally)

    def total(self, attempt_id: AttemptId, device_id: DeviceId, tally: Tally) -> None:
        """All that an attempt, which was leased before, has taken of a device so far."""
        key = (attempt_id, device_id)
        is_new = key not in self._known
        self._pending.add_total(attempt_id, self._device_ids[device_id], tally, is_new=is_new)
        self._known.add(key)

    def idle(self, span: IdleSpan) -> None:
        """A device was idle."""
        if span.device_id in self._device_ids:
            self._pending.add_idle(self._device_ids[span.device_id], span)

    def take(self) -> UsageRows:
        """All that was collected since the last time."""
        taken, self._pending = self._pending, UsageRows()
        return taken
