"""Who gets which devices next: the trials that wait, by width and by real memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tuner.attempt import Outcome
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.quarantine import Quarantine
from tuner.devices.allocation.queue import WaitingLine
from tuner.devices.allocation.standby import Standby
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.allocation.width import (
    ONE,
    Devices,
    FixedWidth,
    LearnedWidth,
    Width,
    WidthRule,
    n_devices_of,
    wider,
    width_of,
)
from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus
from tuner.devices.idle_causes import IdleCause
from tuner.devices.packing.learned import Sharing
from tuner.devices.reselection import Reselected
from tuner.dispatch.supply.gpu_memory import GpuMemory, baselines_of, expected_bytes
from tuner.dispatch.supply.grants import Candidate, Grant

#: Trials that are asked for ahead, to find one that is narrow enough for what is free.
LOOKAHEAD = 8
_LOOK_EVERY_S = 5.0


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
        self._standby = standby
        self._sharing = sharing
        self._memory = memory
        self._quarantine = quarantine or Quarantine()
        self._looked_at_s = self._now_s = 0.0
        self._line: WaitingLine[Candidate] = WaitingLine()
        #: Dropped, with attempts on them; whoever claimed them hears when they are free.
        self._leaving: dict[DeviceId, Callable[[], None]] = {}
        #: Of the GPUs that were looked at for the present decision.
        self._statuses: dict[DeviceId, DeviceStatus] = {}
        #: For people; whoever shows them takes them away.
        self.notes: list[str] = []

    # -- who is next -------------------------------------------------------------------------

    @property
    def n_waiting(self) -> int:
        return len(self._line)

    @property
    def waiting(self) -> tuple[Candidate, ...]:
        """Trials that have no devices yet, the oldest first."""
        return tuple(self._line)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those that trials get, or would but for a fault."""
        others = {device.id for device in self._standby.devices} if self._standby else set()
        return tuple(device for device in self.pool.devices if device.id not in others)

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
            self._withdraw_lost()
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
        if self._may_take_up_more or isinstance(self._rule, LearnedWidth):
            return True
        try:
            width = width_of(self._rule, params)
        except ValueError:
            return True
        return self.pool.can_ever_fit(width)

    def n_devices_for(self, params: Mapping[str, object]) -> int:
        """How many devices a trial with these parameters takes; 1 where that is not known."""
        try:
            return (
                1
                if isinstance(self._rule, LearnedWidth)
                else n_devices_of(width_of(self._rule, params))
            )
        except ValueError:
            return 1

    @property
    def _may_take_up_more(self) -> bool:
        return self._standby is not None and bool(self._standby.devices)

    def unplaceable(self) -> list[Candidate]:
        """Trials that are wider than all that is left of the devices; they wait no more."""
        if self._may_take_up_more:
            return []
        return self._line.unplaceable(self.pool)

    @property
    def is_stuck(self) -> bool:
        """Whether no trial of the study can ever start here again."""
        # Who waits for one that fell off the bus waits for a reboot, most often.
        may_heal = any(each.id not in self.watch.lost for each in self._quarantine.devices)
        may_grow = self._may_take_up_more or may_heal
        return not may_grow and not any(map(self.pool.can_ever_fit, self._widths))

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
        self._withdraw_lost()
        return unclear

    def launched(self, grant: Grant, pids: frozenset[int], now_s: float) -> None:
        """The attempt's processes were started."""
        self._memory.launched(grant, pids, now_s)

    def reported(self, grant: Grant, now_s: float) -> None:
        """The attempt sent a report."""
        self._memory.reported(grant, now_s)

    def ended(self, grant: Grant, outcome: Outcome, torch_bytes: int | None, now_s: float) -> None:
        """Its processes are gone (`GpuMemory.ended`)."""
        self._memory.ended(grant, outcome, torch_bytes, now_s)

    def keep_apart(self, devices: Sequence[Device], reason: str, now_s: float) -> None:
        """Hands devices out no more until a test shows that they work."""
        for device in devices:
            if device in self.pool.devices and device.kind is not DeviceKind.CPU:
                self.pool.set_aside(device)
                self._quarantine.put(device, reason, now_s)
                self.notes.append(
                    f"{device.label} looks broken, and is kept apart until it passes a test: "
                    f"{reason}"
                )

    def close(self) -> None:
        """Ends tests of devices that run."""
        self._quarantine.close()

    def look(self, now_s: float) -> bool:
        """Measures, and looks for devices that came or went, as often as that is worth it.

        Returns:
            Whether a device is back that was lost: a trial may fit now that was too wide.
        """
        is_one_back = False
        self._now_s = now_s
        self._memory.measure(now_s)
        self._withdraw_lost()
        for device in self._quarantine.look(now_s):
            if device.id in self.watch.lost:
                is_one_back |= self._welcome_back(device)
            elif device in self.pool.devices:
                self.pool.restore(device)
                self.notes.append(f"{device.label} has passed its test and gets trials again.")
        self._take_up(now_s)
        return is_one_back

    def _welcome_back(self, device: Device) -> bool:
        """One that was lost has passed its test; says whether the driver sees it, too."""
        if self.watch.is_back(device):
            self.pool.add(device)
            self.notes.append(f"{device.label} is back, has passed its test and gets trials again.")
            return True
        reason = self.watch.lost[device.id]
        self._quarantine.put(device, reason, self._now_s, is_lost=True)
        return False

    def release(self, grant: Grant) -> None:
        """The attempt has ended and its devices are clear."""
        self.pool.release(grant.lease)
        self._memory.remove(grant)
        self._give_back()

    def change(self, chosen: Reselected, give_back: Callable[[Device], None]) -> None:
        """The study has other devices from now on. What runs goes on to its end.

        Args:
            chosen: Those that it has, and what else is needed.
            give_back: Is told of each device that it had, once nothing is on it any more.
        """
        wanted = {device.id: device for device in chosen.selection.devices}
        for device in self.pool.devices:
            if wanted.get(device.id) != device:
                self.pool.withdraw(device)
                self._quarantine.forget(device)
                self._leaving[device.id] = partial(give_back, device)
        for device in chosen.selection.devices:
            self._leaving.pop(device.id, None)
            self._take(device)
        for device, _ in chosen.selection.standby:
            self._learn_of(device)
        if chosen.probe is not None:
            self.watch.use(chosen.probe)
        self._standby = chosen.standby
        self._give_back()

    def _take(self, device: Device) -> None:
        self._learn_of(device)
        if device not in self.pool.devices:
            self.pool.add(device)
        elif not self._quarantine.holds(device):
            self.pool.restore(device)

    def _learn_of(self, device: Device) -> None:
        if self._sharing is not None:
            self._sharing.add(device)

    def _give_back(self) -> None:
        if not self._leaving:
            return
        held = {device.id for lease in self.pool.leases for device in lease.devices}
        for device_id in [each for each in self._leaving if each not in held]:
            self._leaving.pop(device_id)()

    def _may_use(self, candidate: Candidate, device: Device) -> bool:
        """Looks at a GPU before it is handed out: it must be there, not taken, and have room."""
        if device.id in candidate.avoid and self._fits_elsewhere(candidate):
            return False
        if device.kind is DeviceKind.CPU:
            return True
        neighbours = self._memory.on(device)
        if not neighbours and self._is_taken(device):
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

    def _is_taken(self, device: Device) -> bool:
        """Leaves a device alone that somebody else has begun to use."""
        reason = self._standby.is_taken(device) if self._standby else None
        if self._standby is None or reason is None:
            return False
        self.pool.set_aside(device)
        self._standby.add(device, reason)
        self.notes.append(f"{device.label} is left alone: {reason}. It is taken up once free.")
        return True

    def _take_up(self, now_s: float) -> None:
        """Looks, now and then, whether devices that others used are free."""
        if self._standby is None or now_s - self._looked_at_s < _LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        n_held = len(self.pool.devices) - len(self.pool.aside)
        for device in self._standby.look(n_held):
            if device in self.pool.devices:
                self.pool.restore(device)
            else:
                self.pool.add(device)
            self.notes.append(f"{device.label} is free and taken up.")

    @property
    def left_to_others(self) -> Mapping[str, str]:
        """Devices of the study that others use now, by label, with who does."""
        if self._standby is None:
            return {}
        reasons = self._standby.reasons
        return {device.label: reasons[device.id] for device in self._standby.devices}

    @property
    def is_gathering(self) -> bool:
        """Whether the devices that are free are too few for the next trial."""
        return bool(self._line) or not self._line.has_room_for(self.pool, self._widths)

    @property
    def idle(self) -> dict[DeviceId, IdleCause | None]:
        """Devices that no attempt holds, with what is the matter with each; None for nothing."""
        pool = self.pool
        found: dict[DeviceId, IdleCause | None] = {device.id: None for device in pool.free}
        apart = (device for device in pool.aside if not pool.leases_on(device))
        found |= dict.fromkeys((device.id for device in apart), IdleCause.QUARANTINED)
        taken = self._standby.devices if self._standby else ()
        found |= dict.fromkeys((device.id for device in taken), IdleCause.TAKEN)
        return found | dict.fromkeys(self.watch.lost, IdleCause.LOST)

    def _withdraw_lost(self) -> None:
        if not self.watch.lost:
            return
        for device in self.pool.devices:
            if device.id in self.watch.lost:
                reason = self.watch.lost[device.id]
                self.pool.withdraw(device)
                self._quarantine.put(device, reason, self._now_s, is_lost=True)
                self.notes.append(f"{reason} It gets no trials until it is back.")
