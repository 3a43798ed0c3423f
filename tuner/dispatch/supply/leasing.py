"""Leases devices to queued trials, by width and by measured memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tuner.devices.allocation.durations import Durations
from tuner.devices.allocation.gathering import Gathering
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.quarantine import Quarantine
from tuner.devices.allocation.queue import WaitingLine
from tuner.devices.allocation.standby import Standby
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.allocation.width import (
    ONE,
    WHOLE,
    Devices,
    FixedWidth,
    LearnedWidth,
    Width,
    WidthRule,
    n_devices_of,
    parts_on,
    wider,
    width_of,
)
from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus
from tuner.devices.packing.learned import Sharing
from tuner.dispatch.supply.device_supply import DeviceSupply
from tuner.dispatch.supply.gpu_memory import GpuMemory, baselines_of, expected_bytes
from tuner.dispatch.supply.grants import Candidate, Grant
from tuner.domain.attempt import Outcome

#: Trials requested ahead, to find one that is narrow enough for the free devices.
LOOKAHEAD = 8


class Leasing:
    """Leases devices to trials, in queue order and by width.

    Args:
        pool: The devices.
        watch: Reads them.
        rule: How wide a trial is.
        widths: All widths that trials may have.
        standby: Detects other users on the devices, and devices that they have left; None if the
            study ignores other users.
        memory: Measures the GPU memory of attempts.
        sharing: What was learned about trials that share GPUs; None if the study file sets their
            width.
        quarantine: Isolates devices that look broken, and tests them.
    """

    def __init__(
        self,
        *,
        pool: DevicePool,
        watch: DeviceWatch,
        rule: WidthRule,
        widths: Sequence[Width],
        memory: GpuMemory,
        standby: Standby | None = None,
        sharing: Sharing | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.pool = pool
        self.watch = watch
        self._rule = rule
        self._widths = tuple(widths)
        self._sharing = sharing
        self._memory = memory
        #: Which devices can be leased out, and the faults of the others.
        self.supply = DeviceSupply(
            pool=pool, watch=watch, standby=standby, sharing=sharing, quarantine=quarantine
        )
        self._now_s = 0.0
        self._line = WaitingLine[Candidate](durations=Durations(lambda: self._now_s))
        #: Readings of GPUs for the current decision.
        self._statuses: dict[DeviceId, DeviceStatus] = {}

    # -- who is next -------------------------------------------------------------------------

    @property
    def n_waiting(self) -> int:
        return len(self._line)

    @property
    def waiting(self) -> tuple[Candidate, ...]:
        """Trials that have no devices yet, the oldest first."""
        return tuple(self._line)

    def put(self, candidate: Candidate, *, is_first: bool = False) -> None:
        """Adds a trial to the queue."""
        self._line.put(candidate, self._width_of(candidate), is_first=is_first)

    def take_all(self) -> list[Candidate]:
        """Empties the queue; returns its trials."""
        return self._line.take_all()

    @property
    def may_have_room(self) -> bool:
        """Whether `next` may find a trial to start; mostly all devices are busy."""
        return bool(self._line) or self._wants_more()

    def next(self, ask: Callable[[], Candidate | None]) -> Grant | None:
        """The next trial that can start now, with its devices.

        Args:
            ask: Supplies a further trial; None if there is none.
        """
        self._statuses.clear()
        while True:
            started = self._line.start_next(
                self.pool, name=lambda candidate: candidate.attempt_id, may_use=self._may_use
            )
            self.supply.withdraw_lost()
            if started is not None:
                return self._grant(*started)
            further = ask() if self._wants_more() else None
            if further is None:
                return None
            self.put(further)

    # -- trials that are widened -------------------------------------------------------------

    def wider(self, n_devices: int) -> int | None:
        """The next larger number of devices for a trial with `n_devices`; None if there is none."""
        return wider(self._rule, self._widths, n_devices)

    @property
    def n_devices_at_least(self) -> int:
        """Number of devices of the narrowest trial."""
        return min(map(n_devices_of, self._widths), default=1)

    def n_devices_for_more(self, n_trials: int) -> int:
        """How many more devices `n_trials` trials could use, beyond free parts of devices in use.

        If devices differ in size, the smallest sufficient number is returned; more are requested
        later if the new devices are small. Otherwise a trial for a share would take a whole GPU of
        another user.
        """
        shares = [each for each in self._widths if not isinstance(each, Devices)]
        if not shares or isinstance(self._rule, LearnedWidth):
            return n_trials * self.n_devices_at_least
        room = sum(
            self.pool.free_parts(each) // _most_parts(shares, each) for each in self.pool.leased
        )
        devices = (*self.supply.devices, *self.supply.standby_devices)
        on_each = max((WHOLE // _most_parts(shares, each) for each in devices), default=1)
        return math.ceil(max(0, n_trials - room) / on_each)

    def narrowed_to(self, candidate: Candidate, n_devices: int) -> int | None:
        """On how many of `n_devices` devices a widened trial continues; None if too few."""
        n = n_devices_of(self._width_of(replace(candidate, n_devices=None)))
        if n > n_devices:
            return None
        while (more := self.wider(n)) is not None and more <= n_devices:
            n = more
        return n

    @property
    def owes_devices(self) -> bool:
        """Whether a trial is queued whose attempt was ended to widen it."""
        return any(each.n_devices is not None for each in self._line)

    def n_idle_for(self, candidate: Candidate) -> int:
        """Number of free devices that a trial could use; reads them as before a start."""
        self._statuses.clear()
        return sum(self._may_use(candidate, device) for device in self.pool.free)

    def settle_for_less(self) -> bool:
        """Reduces queued widened trials to the devices that are free, if these are fewer by now.

        Returns:
            Whether there is such a trial.
        """
        if all(each.n_devices is None or self._fits(each) for each in self._line):
            return False
        for each in self._line.take_all():
            self.put(self._narrowed(each))
        return True

    def _narrowed(self, candidate: Candidate) -> Candidate:
        own = replace(candidate, n_devices=None)
        n_own = n = n_devices_of(self._width_of(own))
        while (more := self.wider(n)) is not None and more <= len(self.pool.free):
            n = more
        if candidate.n_devices is None or n == n_own:
            return own
        return replace(candidate, n_devices=min(n, candidate.n_devices))

    def _fits(self, candidate: Candidate) -> bool:
        return self.pool.fits(self._width_of(candidate))

    # -- looking ahead -----------------------------------------------------------------------

    @property
    def may_look_ahead(self) -> bool:
        """Whether a trial may be requested ahead, to start when devices become free."""
        # A learned width is more accurate later.
        return not self._line and not isinstance(self._rule, LearnedWidth)

    def could_ever_fit(self, params: Mapping[str, object]) -> bool:
        """Whether a trial with these parameters fits on the devices here once they are free.

        Args:
            params: A trial's parameters. True if the one that sets its width is missing.
        """
        if self.supply.may_take_up_more or isinstance(self._rule, LearnedWidth):
            return True
        try:
            width = width_of(self._rule, params)
        except ValueError:
            return True
        return self.pool.can_ever_fit(width)

    def n_devices_for(self, params: Mapping[str, object]) -> int:
        """Number of devices for a trial with these parameters; 1 if unknown."""
        if isinstance(self._rule, LearnedWidth):
            return 1
        try:
            return n_devices_of(width_of(self._rule, params))
        except ValueError:
            return 1

    def unplaceable(self) -> list[Candidate]:
        """Removes and returns queued trials that are wider than all remaining devices."""
        if self.supply.may_take_up_more:
            return []
        return self._line.unplaceable(self.pool)

    @property
    def is_stuck(self) -> bool:
        """Whether no trial of the study can ever start here again."""
        return not self.supply.may_grow and not any(map(self.pool.can_ever_fit, self._widths))

    def _wants_more(self) -> bool:
        """Whether to request a trial: for free devices if all are equally wide, else some ahead."""
        if isinstance(self._rule, LearnedWidth):
            return not self._line and any(map(self._may_share, self.pool.devices))
        n_ahead = 1 if isinstance(self._rule, FixedWidth) else LOOKAHEAD
        return len(self._line) < n_ahead and self._line.has_room_for(self.pool, self._widths)

    def _may_share(self, device: Device) -> bool:
        assert self._sharing is not None
        n_here = len(self.pool.leases_on(device))
        is_below_limit = n_here < self._sharing.packing.limit(device.id)
        return is_below_limit and self.pool.free_parts(device) > 0

    def _width_of(self, candidate: Candidate) -> Width:
        if candidate.n_devices is not None:
            return Devices(n_devices=candidate.n_devices)
        if isinstance(self._rule, LearnedWidth):
            assert self._sharing is not None, "a width that is learned needs somebody who learns"
            return ONE if candidate.is_alone else self._sharing.width_of(candidate.asked.params)
        width = width_of(self._rule, candidate.asked.params)
        return ONE if candidate.is_alone and not isinstance(width, Devices) else width

    def _grant(self, candidate: Candidate, lease: Lease) -> Grant:
        grant = Grant(
            candidate=candidate,
            lease=lease,
            baselines=baselines_of(lease, self._statuses),
            expected_bytes=expected_bytes(lease.parts, lease.devices[0]),
        )
        self._memory.add(grant)
        return grant

    # -- devices -----------------------------------------------------------------------------

    def find_unclear(self, grant: Grant, pids: frozenset[int]) -> Device | None:
        """A device that still has memory or processes of an attempt whose processes are gone."""
        unclear = self.watch.find_unclear(grant.devices, grant.baselines, pids)
        self.supply.withdraw_lost()
        return unclear

    def launched(self, grant: Grant, pids: frozenset[int], now_s: float) -> None:
        """Records that an attempt's processes were launched."""
        self._memory.launched(grant, pids, now_s)

    def reported(self, grant: Grant, now_s: float) -> None:
        """Records a report of an attempt."""
        self._memory.reported(grant, now_s)

    def ended(self, grant: Grant, outcome: Outcome, torch_bytes: int | None, now_s: float) -> None:
        """Records the end of an attempt's processes (`GpuMemory.ended`)."""
        self._now_s = now_s
        self._memory.ended(grant, outcome, torch_bytes, now_s)

    def look(self, now_s: float) -> bool:
        """Measures the memory of attempts, and checks for lost and returned devices.

        Returns:
            Whether a lost device is back: trials that were too wide may fit now.
        """
        self._now_s = now_s
        self._memory.measure(now_s)
        return self.supply.look(now_s)

    def release(self, grant: Grant) -> None:
        """Releases the devices of an attempt that has ended."""
        self.pool.release(grant.lease)
        self._line.ended(grant.lease)
        self._memory.remove(grant)
        self.supply.give_back()

    def _may_use(self, candidate: Candidate, device: Device) -> bool:
        """Reads a GPU before it is leased: it must be present, free and have room."""
        if device.id in candidate.avoid and self._fits_elsewhere(candidate):
            return False
        if device.kind is DeviceKind.CPU:
            return True
        neighbours = self._memory.on(device)
        if not neighbours and self.supply.is_taken(device):
            return False
        status = self.watch.status(device)
        if status is None:
            return False
        self._statuses[device.id] = status
        if not neighbours:
            self._memory.note_idle(device, status)
            return True
        return self._memory.admits(self._width_of(candidate), device, status, neighbours)

    def _fits_elsewhere(self, candidate: Candidate) -> bool:
        """Whether a trial fits without the devices that it should avoid."""
        return self.pool.fits(self._width_of(candidate), avoid=candidate.avoid)

    @property
    def gathering(self) -> tuple[Candidate, Gathering] | None:
        """The trial for which devices are kept free, and these devices; None if there is none."""
        return self._line.gathering(self.pool)

    @property
    def is_gathering(self) -> bool:
        """Whether too few devices are free for the next trial."""
        return bool(self._line) or not self._line.has_room_for(self.pool, self._widths)


def _most_parts(widths: Sequence[Width], device: Device) -> int:
    """Parts of a device that the widest trial takes; all of it if unknown."""
    return max((parts_on(each, device) or WHOLE for each in widths), default=WHOLE)
