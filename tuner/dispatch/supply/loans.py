"""Returns devices to other users on a machine that is divided among users.

A trial on a returned device saves, ends as interrupted, and continues later where there is room.
This costs no retry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tuner.checkpoints.layout import newest_whole
from tuner.checkpoints.paths import StudyFiles
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device, DeviceId
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.attempts.stopping import AttemptStop
from tuner.dispatch.notices import UserShare
from tuner.dispatch.supply.leasing import Leasing
from tuner.host.clock import Instant
from tuner.shares.seat import Due, Seat
from tuner.store.records.recorder import Recorder

GIVEN_BACK = "given_back"
"""Name of the event."""

LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Return:
    """A device that is being returned."""

    device: Device
    reason: str


class Loans:
    """Returns devices one by one, those that cost least first.

    Args:
        seat: This dispatcher's place among the tuners of the machine.
        leasing: Its devices.
        stopping: Ends attempts.
        recorder: Records events.
        files: Paths of checkpoints.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        *,
        seat: Seat,
        leasing: Leasing,
        stopping: AttemptStop,
        recorder: Recorder,
        files: StudyFiles,
        say: Callable[[str], None],
    ) -> None:
        self._seat = seat
        self._leasing = leasing
        self._stopping = stopping
        self._recorder = recorder
        self._files = files
        self._say = say
        self._looked_at_s = -math.inf
        self._returns: dict[DeviceId, _Return] = {}

    @property
    def share(self) -> UserShare:
        """The user's share, by the last decision."""
        standing = self._seat.standing
        return UserShare(
            held=standing.held / WHOLE,
            by_right=standing.by_right / WHOLE,
            part=standing.part / WHOLE,
        )

    def set_priority(self, priority: int) -> None:
        """Sets the study's priority among the user's studies, 0 to 100."""
        self._seat.priority = priority

    def poll(
        self, now: Instant, lives: Collection[LiveAttempt], count_startable: Callable[[], int]
    ) -> None:
        """Claims the devices that the study can use, and returns those due to others.

        Args:
            now: The current time.
            lives: All attempts that hold devices.
            count_startable: Counts further trials that the study could start now.
        """
        self._finish(now)
        is_due = now.monotonic_s - self._looked_at_s >= LOOK_EVERY_S
        if not is_due and not self._seat.has_news:
            return
        self._looked_at_s = now.monotonic_s
        self._seat.look(wants=self._wants(lives, count_startable()), leaving=self._returns)
        due = self._seat.due
        self._cancel(len(due))
        for each in due[len(self._returns) :]:
            if device := self._cheapest(each, lives, now):
                self._give_back(device, each, lives, now)
        self._finish(now)
        self._note_shares()
        for note in self._seat.notes:
            self._say(note)
        self._seat.notes.clear()

    def _wants(self, lives: Collection[LiveAttempt], n_startable: int) -> int:
        """Devices in use that are not being returned, plus one unit per trial that may start."""
        staying = {
            device.id
            for live in lives
            for device in live.grant.devices
            if live.may_be_told and device.id not in self._returns
        }
        return len(staying) + self._leasing.n_devices_for_more(n_startable)

    def _cheapest(self, due: Due, lives: Collection[LiveAttempt], now: Instant) -> Device | None:
        candidates = [
            device
            for device in self._leasing.supply.devices
            if device.id in due.among
            and device.id not in self._returns
            and not self._leasing.supply.is_apart(device)
        ]
        return min(candidates, key=lambda each: self._cost(each, lives, now), default=None)

    def _cost(
        self, device: Device, lives: Collection[LiveAttempt], now: Instant
    ) -> tuple[bool, float, int]:
        """Seconds of unsaved work on a device; trials without a checkpoint cost most."""
        at_work = [each for each in lives if device in each.grant.devices and each.may_be_told]
        unsaved_s = [self._unsaved_s(each, now) for each in at_work]
        has_none = any(each is None for each in unsaved_s)
        held_s = sum(now.monotonic_s - each.leased_at_s for each in at_work)
        cost_s = held_s if has_none else sum(each or 0.0 for each in unsaved_s)
        # A wide trial ends on all of its devices.
        cost_s *= max((len(each.grant.devices) for each in at_work), default=0)
        return has_none, cost_s, device.index

    def _unsaved_s(self, live: LiveAttempt, now: Instant) -> float | None:
        """Seconds since its newest checkpoint; None without a checkpoint."""
        saved = newest_whole(self._files.checkpoints(live.attempt.trial_number))
        if saved is None:
            return None
        try:
            return max(0.0, now.utc.timestamp() - saved.stat().st_mtime)
        except FileNotFoundError:
            return 0.0  # It has just been replaced by a newer one.

    def _give_back(
        self, device: Device, due: Due, lives: Collection[LiveAttempt], now: Instant
    ) -> None:
        self._returns[device.id] = _Return(device=device, reason=due.reason)
        self._leasing.supply.reserve(device)
        at_work = [each for each in lives if device in each.grant.devices and each.may_be_told]
        what = f"{device.label} is {due.reason}"
        self._say(f"{what}.{_pauses_text(at_work)}")
        for live in at_work:
            detail = f"trial {live.attempt.trial_number}: {what}."
            self._recorder.note(GIVEN_BACK, at=now.utc, detail=detail)
            self._stopping.request_return(
                live,
                now,
                f"{what}.",
                grace_s=self._seat.rules.grace,
                n_devices=self._narrower(live),
            )

    def _narrower(self, live: LiveAttempt) -> int | None:
        """On how many devices a widened trial continues; None if it is queued instead."""
        if live.grant.candidate.n_devices is None:
            return None
        left = [each for each in live.grant.devices if each.id not in self._returns]
        return self._leasing.narrowed_to(live.grant.candidate, len(left))

    def _finish(self, now: Instant) -> None:
        """Hands over devices on which nothing runs any more."""
        held = {device.id for lease in self._leasing.pool.leases for device in lease.devices}
        for device_id in [each for each in self._returns if each not in held]:
            back = self._returns.pop(device_id)
            self._leasing.supply.lend(back.device, back.reason)

    def _cancel(self, n_due: int) -> None:
        """Keeps devices whose return is no longer requested."""
        surplus: Sequence[DeviceId] = list(self._returns)[n_due:]
        for device_id in surplus:
            self._leasing.supply.keep(self._returns.pop(device_id).device)

    def _note_shares(self) -> None:
        supply = self._leasing.supply
        supply.note_shares(
            {
                device.id: self._seat.why_not(device)
                for device in supply.standby_devices
                if self._seat.is_shared_out(device)
            }
        )


def _pauses_text(lives: Sequence[LiveAttempt]) -> str:
    numbers = sorted(each.attempt.trial_number for each in lives)
    if not numbers:
        return ""
    if len(numbers) == 1:
        return f" Trial {numbers[0]} saves, and continues where there is room."
    listed = ", ".join(map(str, numbers))
    return f" Trials {listed} save, and continue where there is room."
