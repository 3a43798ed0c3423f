"""Measured GPU memory of attempts: whether one more fits, and what it will need."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from tuner.devices.allocation.memory_release import unclaimed_bytes
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.allocation.width import WHOLE, MemoryShare, Width, parts_on
from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus
from tuner.devices.packing.admission import (
    LEAST_CONTEXT_BYTES,
    Neighbour,
    fits,
    promised_bytes,
    room_bytes,
    used_alone,
    used_by,
)
from tuner.devices.packing.learned import Sharing
from tuner.dispatch.supply.grants import Grant
from tuner.domain.attempt import AttemptId, Outcome

_MEASURE_EVERY_S = 1.0
#: Reports after which a program has done all that it does in each step.
_REPORTS_TO_KNOW = 2


class GpuMemory:
    """Measures attempts that hold devices, and decides which more may share these.

    Args:
        pool: The devices, with the leases on them.
        watch: Reads them.
        sharing: What was learned about trials that share GPUs; None if the study file sets their
            memory.
        session_of: The session of a process.
    """

    def __init__(
        self,
        pool: DevicePool,
        watch: DeviceWatch,
        sharing: Sharing | None = None,
        session_of: Callable[[int], int] = os.getsid,
    ) -> None:
        self._pool = pool
        self._watch = watch
        self._sharing = sharing
        self._session_of = session_of
        self._grants: dict[AttemptId, Grant] = {}
        #: Memory in use on a GPU, in bytes, before the first attempt of this dispatcher.
        self._idle_bytes: dict[DeviceId, int | None] = {}
        self._measured_at_s = 0.0

    def on(self, device: Device) -> list[Grant]:
        """The grants on a device."""
        leases = self._pool.leases_on(device)
        found = (self._grants.get(AttemptId(lease.attempt_id)) for lease in leases)
        return [grant for grant in found if grant is not None]

    def note_idle(self, device: Device, status: DeviceStatus) -> None:
        """Records the memory in use on a GPU before the first attempt on it."""
        self._idle_bytes[device.id] = unclaimed_bytes(status, own_pids=frozenset())

    def add(self, grant: Grant) -> None:
        """Adds an attempt that got its devices."""
        for neighbour in self.on(grant.devices[0]):
            grant.has_had_company = neighbour.has_had_company = True
        self._grants[grant.candidate.attempt_id] = grant

    def remove(self, grant: Grant) -> None:
        """Removes an attempt that has released its devices."""
        del self._grants[grant.candidate.attempt_id]

    def admits(
        self,
        width: Width,
        device: Device,
        status: DeviceStatus,
        neighbours: Sequence[Grant],
    ) -> bool:
        """Whether a trial fits on a device with others, by measured free memory."""
        need_bytes = expected_bytes(parts_on(width, device) or WHOLE, device)
        room = room_bytes(
            status,
            device.memory_bytes,
            [
                Neighbour(expected_bytes=each.expected_bytes, used_bytes=self._used(each, status))
                for each in neighbours
            ],
            baseline_bytes=self._idle_bytes.get(device.id),
        )
        if self._sharing is None:
            # If a device does not report its memory, the study file's value is used.
            return room is None or (need_bytes or 0) <= room
        if len(neighbours) >= self._sharing.packing.limit(device.id):
            return False
        total_bytes = device.memory_bytes or 0
        return room is not None and fits(need_bytes or total_bytes, room, total_bytes)

    def _used(self, grant: Grant, status: DeviceStatus) -> int | None:
        own = frozenset(h.pid for h in status.holders if self._session(h.pid) in grant.pids)
        return used_by(status, own or grant.pids)

    def _session(self, pid: int) -> int:
        try:
            return self._session_of(pid)
        except OSError:
            return pid  # Gone, or not ours.

    def launched(self, grant: Grant, pids: frozenset[int], now_s: float) -> None:
        """Records that an attempt's processes were launched."""
        grant.pids = pids
        if self._sharing is not None:
            self._sharing.packing.started(grant.devices[0].id, grant.candidate.attempt_id, now_s)

    def reported(self, grant: Grant, now_s: float) -> None:
        """Records a report of an attempt."""
        grant.n_reports += 1
        if self._sharing is not None:
            self._sharing.packing.reported(grant.devices[0].id, grant.candidate.attempt_id, now_s)

    def measure(self, now_s: float) -> None:
        """Measures the GPU memory of each attempt, once per second."""
        if now_s - self._measured_at_s < _MEASURE_EVERY_S:
            return
        self._measured_at_s = now_s
        for device in self._pool.leased:
            status = None if device.kind is DeviceKind.CPU else self._watch.status(device)
            if status is not None:
                self._measure(device, status)

    def _measure(self, device: Device, status: DeviceStatus) -> None:
        grants = self.on(device)
        for grant in grants:
            used_bytes = self._used(grant, status)
            if used_bytes is None and len(grants) == 1:
                idle_bytes = self._idle_bytes.get(device.id)
                used_bytes = used_alone(status, baseline_bytes=idle_bytes)
            if used_bytes is not None and used_bytes > (grant.peak_bytes or 0):
                grant.peak_bytes = used_bytes
            self._make_room(grant)

    def _make_room(self, grant: Grant) -> None:
        """With `auto`, opens a device for sharing once its only trial has shown its memory use."""
        is_known = grant.n_reports >= _REPORTS_TO_KNOW and grant.peak_bytes is not None
        if self._sharing is None or not is_known or not grant.lease.is_whole:
            return
        if grant.candidate.is_alone:
            return
        device, params = grant.devices[0], grant.candidate.asked.params
        self._sharing.observe(device, params, grant.peak_bytes or 0, is_final=False)
        width = self._sharing.width_of(params)
        if isinstance(width, MemoryShare):
            grant.lease = self._pool.resize(grant.lease, width)
            grant.expected_bytes = width.memory_bytes
            grant.baselines = {}

    def ended(self, grant: Grant, outcome: Outcome, torch_bytes: int | None, now_s: float) -> None:
        """Records the peak memory of an attempt whose processes are gone.

        Args:
            grant: Its devices.
            outcome: Its outcome.
            torch_bytes: The peak that torch reported, in bytes.
            now_s: The current monotonic time in seconds.
        """
        if torch_bytes is not None:
            # The driver is asked once per second: the peak may have been between two looks.
            grant.peak_bytes = max(grant.peak_bytes or 0, torch_bytes + LEAST_CONTEXT_BYTES)
        if self._sharing is None:
            return
        device, params = grant.devices[0], grant.candidate.asked.params
        if outcome is Outcome.OUT_OF_MEMORY and grant.has_had_company:
            self._sharing.packing.out_of_memory(device.id, now_s)
        if grant.peak_bytes and outcome is Outcome.OUT_OF_MEMORY:
            self._sharing.observe_out_of_memory(device, params, grant.peak_bytes)
        elif grant.peak_bytes:
            # An attempt that crashed early has not shown its needs.
            has_shown = outcome in (Outcome.COMPLETED, Outcome.PRUNED)
            is_final = has_shown or grant.n_reports >= _REPORTS_TO_KNOW
            self._sharing.observe(device, params, grant.peak_bytes, is_final=is_final)
        self._sharing.packing.ended(device.id, grant.candidate.attempt_id, now_s)


def expected_bytes(parts: int, device: Device) -> int | None:
    """Bytes that a lease on parts of a device reserves; None if the device reports none."""
    if device.memory_bytes is None or parts == WHOLE:
        return device.memory_bytes
    return promised_bytes(parts, device.memory_bytes)


def baselines_of(
    lease: Lease, statuses: Mapping[DeviceId, DeviceStatus]
) -> dict[DeviceId, int | None]:
    """Memory in use on each device before an attempt is launched, in bytes.

    Args:
        lease: The attempt's devices. Shared devices have no baseline, because other attempts change
            their usage at any time.
        statuses: Readings of the devices.
    """
    if not lease.is_whole:
        return {}
    return {
        device.id: unclaimed_bytes(statuses[device.id], own_pids=frozenset())
        for device in lease.devices
        if device.id in statuses
    }
