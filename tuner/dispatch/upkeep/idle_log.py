"""Causes of idle devices, and the log of idle times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tuner.devices.device import DeviceId
from tuner.devices.idle_causes import IdleCause, IdleSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFacts:
    """What keeps a study from starting trials."""

    #: No trials are left.
    is_over: bool = False
    is_paused: bool = False
    is_database_away: bool = False
    is_disk_full: bool = False
    #: The next trial needs more devices than are free.
    is_gathering: bool = False


def why_idle(own: IdleCause | None, study: StudyFacts) -> IdleCause:
    """The cause for a device that no attempt holds.

    Args:
        own: The device's own fault (TAKEN, QUARANTINED or LOST), or None.
        study: The state of the study.
    """
    if own is not None:
        return own
    if study.is_database_away:
        return IdleCause.DATABASE
    if study.is_over:
        return IdleCause.NOTHING_LEFT
    if study.is_paused:
        return IdleCause.PAUSED
    if study.is_disk_full:
        return IdleCause.DISK_FULL
    return IdleCause.GATHERING if study.is_gathering else IdleCause.NO_SUGGESTION


@dataclass(slots=True, kw_only=True)
class _Open:
    cause: IdleCause
    began_at: datetime
    is_known: bool = False


class IdleLog:
    """Collects idle times of devices, with causes, until they are written.

    Times of length 0 are dropped.
    """

    def __init__(self) -> None:
        self._open: dict[DeviceId, _Open] = {}
        #: Causes of open spans as last noted; None if changed since.
        self._noted: Mapping[DeviceId, IdleCause] | None = None
        #: All open spans have lasted at least until then.
        self._noted_at: datetime | None = None
        self._past: list[IdleSpan] = []
        #: By device: the time until which everything is accounted for.
        self._told_until: dict[DeviceId, datetime] = {}

    def note(self, at: datetime, causes: Mapping[DeviceId, IdleCause]) -> None:
        """Sets the devices that are idle from now on, each with its cause."""
        if causes != self._noted:
            self._change(at, causes)
            self._noted = causes
        self._noted_at = at if self._noted_at is None else max(at, self._noted_at)

    def spent(
        self, cause: IdleCause, since: datetime, until: datetime, devices: Iterable[DeviceId]
    ) -> None:
        """Adds a past idle time of devices."""
        if until <= since:
            return
        self._noted = None
        for device_id in devices:
            if device_id in self._open:
                self._end(device_id, since)
            began_at = max(since, self._told_until.get(device_id, since))
            if until > began_at:
                self._past.append(
                    IdleSpan(device_id=device_id, cause=cause, began_at=began_at, ended_at=until)
                )
                self._told_until[device_id] = until

    def take(self) -> list[IdleSpan]:
        """New spans since the last call; an open span is returned each time, with a later end."""
        taken, self._past = self._past, []
        for device_id, span in self._open.items():
            if self._noted_at is not None and self._noted_at > span.began_at:
                taken.append(_span(device_id, span, self._noted_at))
                span.is_known = True
        return taken

    def _change(self, at: datetime, causes: Mapping[DeviceId, IdleCause]) -> None:
        for device_id in [each for each in self._open if each not in causes]:
            self._end(device_id, at)
        for device_id, cause in causes.items():
            span = self._open.get(device_id)
            if span is not None and span.cause is cause:
                continue
            if span is not None:
                self._end(device_id, at)
            began_at = max(at, self._told_until.get(device_id, at))
            self._open[device_id] = _Open(cause=cause, began_at=began_at)

    def _end(self, device_id: DeviceId, at: datetime) -> None:
        span = self._open.pop(device_id)
        until = max(span.began_at, at, self._noted_at or at)
        self._told_until[device_id] = until
        if until > span.began_at:
            self._past.append(_span(device_id, span, until))


def _span(device_id: DeviceId, span: _Open, until: datetime) -> IdleSpan:
    return IdleSpan(
        device_id=device_id,
        cause=span.cause,
        began_at=span.began_at,
        ended_at=until,
        is_known=span.is_known,
    )
