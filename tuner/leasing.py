"""Who gets which devices next: the trials that wait, by width, and the pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.attempt import AttemptId, attempt_id
from tuner.devices.clearing import unclaimed_bytes
from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus
from tuner.devices.pool import DevicePool, Lease
from tuner.devices.standby import Standby
from tuner.devices.waiting import WaitingLine
from tuner.devices.watch import DeviceWatch
from tuner.devices.width import (
    FixedWidth,
    LearnedWidth,
    Width,
    WidthRule,
    width_of,
)
from tuner.search.study import AskedTrial

#: Trials that are asked for ahead, to find one that is narrow enough for what is free.
LOOKAHEAD = 8
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A trial that waits for devices."""

    asked: AskedTrial
    attempt_number: int

    @property
    def attempt_id(self) -> AttemptId:
        return attempt_id(self.asked.number, self.attempt_number)


@dataclass(slots=True, kw_only=True)
class Grant:
    """The devices that one attempt got."""

    candidate: Candidate
    lease: Lease
    #: Memory in use on each of its GPUs before the launch; none where it shares one.
    baselines: Mapping[DeviceId, int | None] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.lease.devices


class Leasing:
    """Hands devices to trials, in turn and by width.

    Args:
        pool: The devices.
        watch: Reads them.
        rule: How wide a trial is.
        widths: All that a trial may have.
        standby: Looks for others on our devices, and for devices that they left; None where the
            study takes its devices whoever uses them.
    """

    def __init__(
        self,
        *,
        pool: DevicePool,
        watch: DeviceWatch,
        rule: WidthRule,
        widths: Sequence[Width],
        standby: Standby | None = None,
    ) -> None:
        self.pool = pool
        self._watch = watch
        self._rule = rule
        self._widths = tuple(widths)
        self._standby = standby
        self._looked_at_s = 0.0
        self._line: WaitingLine[Candidate] = WaitingLine()
        #: Of the GPUs that were looked at for the present decision.
        self._statuses: dict[DeviceId, DeviceStatus] = {}
        #: For people; whoever shows them takes them away.
        self.notes: list[str] = []

    # -- who is next -------------------------------------------------------------------------

    @property
    def n_waiting(self) -> int:
        return len(self._line)

    def put(self, candidate: Candidate, *, is_first: bool = False) -> None:
        """Lets a trial wait for devices."""
        self._line.put(candidate, self._width_of(candidate), is_first=is_first)

    def take_all(self) -> list[Candidate]:
        """No trial waits any more; gives those that did."""
        return self._line.take_all()

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
                candidate, lease = started
                return Grant(candidate=candidate, lease=lease, baselines=self._baselines(lease))
            further = ask() if self._wants_more() else None
            if further is None:
                return None
            self.put(further)

    def unplaceable(self) -> list[Candidate]:
        """Trials that are wider than all that is left of the devices; they wait no more."""
        if self._standby is not None and self._standby.devices:
            return []
        return self._line.unplaceable(self.pool)

    @property
    def is_stuck(self) -> bool:
        """Whether no trial of the study can ever start here again."""
        may_grow = self._standby is not None and bool(self._standby.devices)
        return not may_grow and not any(map(self.pool.can_ever_fit, self._widths))

    def _wants_more(self) -> bool:
        """Trials of one width are asked for when there is room; of several some are ahead."""
        n_ahead = 1 if isinstance(self._rule, FixedWidth) else LOOKAHEAD
        return len(self._line) < n_ahead and self._line.has_room_for(self.pool, self._widths)

    def _width_of(self, candidate: Candidate) -> Width:
        assert not isinstance(self._rule, LearnedWidth)
        return width_of(self._rule, candidate.asked.params)

    # -- devices -----------------------------------------------------------------------------

    def find_unclear(self, grant: Grant, pids: frozenset[int]) -> Device | None:
        """A device that still holds something of an attempt whose processes are gone."""
        unclear = self._watch.find_unclear(grant.devices, grant.baselines, pids)
        self._withdraw_lost()
        return unclear

    def release(self, grant: Grant) -> None:
        """The attempt has ended and its devices are clear."""
        self.pool.release(grant.lease)

    def _may_use(self, _candidate: Candidate, device: Device) -> bool:
        """Looks at a GPU before it is handed out; one that is lost is not."""
        if device.kind is DeviceKind.CPU:
            return True
        if not self.pool.leases_on(device) and self._is_taken(device):
            return False
        status = self._watch.status(device)
        if status is not None:
            self._statuses[device.id] = status
        return status is not None

    def _is_taken(self, device: Device) -> bool:
        """Leaves a device alone that somebody else has begun to use."""
        reason = self._standby.is_taken(device) if self._standby else None
        if self._standby is None or reason is None:
            return False
        self.pool.set_aside(device)
        self._standby.add(device, reason)
        self.notes.append(f"{device.label} is left alone: {reason}. It is taken up once free.")
        return True

    def take_up(self, now_s: float) -> None:
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

    def _baselines(self, lease: Lease) -> dict[DeviceId, int | None]:
        """What a device carries beside an attempt that shares it changes as it likes."""
        if not lease.is_whole:
            return {}
        return {
            device.id: unclaimed_bytes(self._statuses[device.id], own_pids=frozenset())
            for device in lease.devices
            if device.id in self._statuses
        }

    def _withdraw_lost(self) -> None:
        for device in self.pool.devices:
            if device.id in self._watch.lost:
                self.pool.withdraw(device)
                self.notes.append(f"{self._watch.lost[device.id]} It gets no more trials.")
