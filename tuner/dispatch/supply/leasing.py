"""Who gets which devices next: the trials that wait, by width and by real memory."""

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

#: Trials that are asked for ahead, to find one that is narrow enough for what is free.
LOOKAHEAD = 8


class Leasing:
    """Hands devices to trials, in turn and by width.

    Args:
        pool: The devices.
        watch: Reads them.
        rule: How wide a trial is.
        widths: All that a trial may have.
        standby: Looks for others on our devices, and for devices that they left; None where the
            study takes its devices whoever uses them.
        memory: What attempts really take of their GPUs.
        sharing: What was learned of trials that share GPUs; None where the file says how wide
            they are.
        quarantine: Keeps devices apart that look broken, and tests them.
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
        #: Which devices can be handed out, and what is the matter with the others.
        self.supply = DeviceSupply(
            pool=pool, watch=watch, standby=standby, sharing=sharing, quarantine=quarantine
        )
        self._now_s = 0.0
        self._line = WaitingLine[Candidate](durations=Durations(lambda: self._now_s))
        #: Of the GPUs that were looked at for the present decision.
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
        """Lets a trial wait for devices."""
        self._line.put(candidate, self._width_of(candidate), is_first=is_first)

    def take_all(self) -> list[Candidate]:
        """No trial waits any more; gives those that did."""
        return self._line.take_all()

    @property
    def may_have_room(self) -> bool:
        """Whether `next` has anything to look for: mostly all devices are at work."""
        return bool(self._line) or self._wants_more()

    def next(self, ask: Callable[[], Candidate | None]) -> Grant | None:
        """The next trial that may start now, with its devices.

        Args:
            ask: Gives a further trial; None where there is none.
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
        """How many devices a trial may go on with that has so many; None where no more."""
        return wider(self._rule, self._widths, n_devices)

    @property
    def n_devices_at_least(self) -> int:
        """The devices of the narrowest trial."""
        return min(map(n_devices_of, self._widths), default=1)

    def n_devices_for_more(self, n_trials: int) -> int:
        """How many devices more so many trials could use, with what is free on those at work.

        Of large and small devices as few as would do: if these are small ones, more are asked for
        once they are there. Else a trial for a share would take a whole GPU of another user.
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
        """With how many of so many devices a widened trial goes on; None where with none."""
        n = n_devices_of(self._width_of(replace(candidate, n_devices=None)))
        if n > n_devices:
            return None
        while (more := self.wider(n)) is not None and more <= n_devices:
            n = more
        return n

    @property
    def owes_devices(self) -> bool:
        """Whether a trial waits that was ended for a wider attempt."""
        return any(each.n_devices is not None for each in self._line)

    def n_idle_for(self, candidate: Candidate) -> int:
        """Devices that a trial could have beside its own; looks at them as before a start."""
        self._statuses.clear()
        return sum(self._may_use(candidate, device) for device in self.pool.free)

    def settle_for_less(self) -> bool:
        """A trial that was to be widened takes what there is, where that is less by now.

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
        """Whether a trial may be asked for now that starts when devices are free again."""
        # The width of one that is learned is better told later.
        return not self._line and not isinstance(self._rule, LearnedWidth)

    def could_ever_fit(self, params: Mapping[str, object]) -> bool:
        """Whether a trial with these parameters fits on the devices here once they are free.

        Args:
            params: Of a trial. Without the one that says how wide it is, it may fit.
        """
        if self.supply.may_take_up_more or isinstance(self._rule, LearnedWidth):
            return True
        try:
            width = width_of(self._rule, params)
        except ValueError:
            return True
        return self.pool.can_ever_fit(width)

    def n_devices_for(self, params: Mapping[str, object]) -> int:
        """How many devices a trial with these parameters takes; 1 where that is not known."""
        if isinstance(self._rule, LearnedWidth):
            return 1
        try:
            return n_devices_of(width_of(self._rule, params))
        except ValueError:
            return 1

    def unplaceable(self) -> list[Candidate]:
        """Trials that are wider than all that is left of the devices; they wait no more."""
        if self.supply.may_take_up_more:
            return []
        return self._line.unplaceable(self.pool)

    @property
    def is_stuck(self) -> bool:
        """Whether no trial of the study can ever start here again."""
        return not self.supply.may_grow and not any(map(self.pool.can_ever_fit, self._widths))

    def _wants_more(self) -> bool:
        """Trials of one width are asked for when there is room; of several some are ahead."""
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
        """A device that still holds something of an attempt whose processes are gone."""
        unclear = self.watch.find_unclear(grant.devices, grant.baselines, pids)
        self.supply.withdraw_lost()
        return unclear

    def launched(self, grant: Grant, pids: frozenset[int], now_s: float) -> None:
        """The attempt's processes were started."""
        self._memory.launched(grant, pids, now_s)

    def reported(self, grant: Grant, now_s: float) -> None:
        """The attempt sent a report."""
        self._memory.reported(grant, now_s)

    def ended(self, grant: Grant, outcome: Outcome, torch_bytes: int | None, now_s: float) -> None:
        """Its processes are gone (`GpuMemory.ended`)."""
        self._now_s = now_s
        self._memory.ended(grant, outcome, torch_bytes, now_s)

    def look(self, now_s: float) -> bool:
        """Measures the memory of attempts, and looks for devices that came or went.

        Returns:
            Whether a device is back that was lost: a trial may fit now that was too wide.
        """
        self._now_s = now_s
        self._memory.measure(now_s)
        return self.supply.look(now_s)

    def release(self, grant: Grant) -> None:
        """The attempt has ended and its devices are clear."""
        self.pool.release(grant.lease)
        self._line.ended(grant.lease)
        self._memory.remove(grant)
        self.supply.give_back()

    def _may_use(self, candidate: Candidate, device: Device) -> bool:
        """Looks at a GPU before it is handed out: it must be there, not taken, and have room."""
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
        """Whether it need not wait for other devices than those that it would rather avoid."""
        return self.pool.fits(self._width_of(candidate), avoid=candidate.avoid)

    @property
    def gathering(self) -> tuple[Candidate, Gathering] | None:
        """The trial that devices are kept free for, and the devices; None where none are."""
        return self._line.gathering(self.pool)

    @property
    def is_gathering(self) -> bool:
        """Whether the devices that are free are too few for the next trial."""
        return bool(self._line) or not self._line.has_room_for(self.pool, self._widths)


def _most_parts(widths: Sequence[Width], device: Device) -> int:
    """Parts of a device that the widest trial takes; all of it where that is not known."""
    return max((parts_on(each, device) or WHOLE for each in widths), default=WHOLE)
