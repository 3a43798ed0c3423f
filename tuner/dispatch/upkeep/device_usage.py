"""Records device usage and the causes of idle time, from the sampler and the loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device, DeviceId
from tuner.devices.idle_causes import IdleCause
from tuner.devices.usage.tally import MJ_PER_KWH, Holding
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.upkeep.idle_log import IdleLog, StudyFacts, why_idle
from tuner.dispatch.upkeep.telemetry_thread import Sampler
from tuner.domain.attempt import AttemptId
from tuner.host.clock import Instant
from tuner.store.records.recorder import Recorder

_HAND_OVER_EVERY_S = 5.0
_ROLL_UP_EVERY_S = 60.0
#: Seconds until the next roll-up while old samples are left.
_ROLL_UP_NEXT_S = 2.0


class Usage:
    """Records device usage.

    Args:
        recorder: Writes the records.
        sampler: Reads devices; None if telemetry is off.
    """

    def __init__(self, recorder: Recorder, sampler: Sampler | None) -> None:
        self._recorder = recorder
        self._sampler = sampler
        self._idle = IdleLog()
        self._handed_over_at_s: float | None = None
        self._roll_up_at_s: float | None = None
        #: By attempt of this start and device, in millijoules.
        self._energy_mj: dict[tuple[AttemptId, DeviceId], int] = {}
        #: Whether leases have changed since the sampler was last updated.
        self.has_changed = False
        #: Why devices are idle now.
        self.causes: Mapping[DeviceId, IdleCause] = {}

    def note(
        self,
        now: Instant,
        live: Collection[LiveAttempt],
        idle: Mapping[DeviceId, IdleCause | None],
        study: StudyFacts,
    ) -> None:
        """Records the state at the end of one iteration of the loop.

        Args:
            now: The current time.
            live: All attempts that hold devices.
            idle: The devices that no attempt holds, each with its fault, or None.
            study: What keeps trials from starting.
        """
        of_the_study = why_idle(None, study)
        causes = {
            device_id: of_the_study if own is None else why_idle(own, study)
            for device_id, own in idle.items()
        }
        self._idle.note(now.utc, causes)
        self.causes = causes
        if self.has_changed and self._sampler is not None:
            self._sampler.hold(_holdings(live), now.monotonic_s)
        self.has_changed = False

    @property
    def energy_kwh(self) -> float:
        """Energy used by the attempts of this start; some seconds old."""
        return sum(self._energy_mj.values()) / MJ_PER_KWH

    def look_at(self, devices: Sequence[Device]) -> None:
        """Replaces the devices to read."""
        if self._sampler is not None:
            self._sampler.look_at(devices)

    def spent(
        self, cause: IdleCause, since: Instant, until: Instant, devices: Iterable[DeviceId]
    ) -> None:
        """Adds a past idle time of devices."""
        self._idle.spent(cause, since.utc, until.utc, devices)

    def poll(self, now: Instant) -> None:
        """Passes readings to the recorder and rolls up old samples, at intervals.

        Raises:
            StoreError: If the database cannot be used.
        """
        now_s = now.monotonic_s
        if self._handed_over_at_s is None or self._roll_up_at_s is None:
            self._handed_over_at_s, self._roll_up_at_s = now_s, now_s + _ROLL_UP_NEXT_S
        if now_s - self._handed_over_at_s >= _HAND_OVER_EVERY_S:
            self._handed_over_at_s = now_s
            self.hand_over()
        if self._sampler is not None and now_s >= self._roll_up_at_s:
            self._roll_up_at_s = now_s + _ROLL_UP_EVERY_S
            if self._recorder.roll_up(now.utc):
                self._roll_up_at_s = now_s + _ROLL_UP_NEXT_S

    def hand_over(self) -> None:
        """Passes all readings so far to the recorder."""
        for span in self._idle.take():
            self._recorder.usage.idle(span)
        if self._sampler is None:
            return
        samples = self._sampler.take()
        for each in samples.devices:
            self._recorder.usage.sample(each.device_id, each.start_s, each.tally)
        for (attempt_id, device_id), tally in samples.attempts.items():
            self._energy_mj[attempt_id, device_id] = tally.energy_mj or 0
            self._recorder.usage.total(attempt_id, device_id, tally)


def _holdings(live: Collection[LiveAttempt]) -> Sequence[Holding]:
    return [
        Holding(
            attempt_id=each.attempt.id,
            device_id=device.id,
            share=each.grant.lease.parts / WHOLE,
            sessions=each.pids,
            since_s=each.leased_at_s,
        )
        for each in live
        for device in each.grant.devices
    ]
