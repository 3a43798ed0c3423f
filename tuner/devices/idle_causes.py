"""Causes of idle devices, and stored idle times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from tuner.devices.device import DeviceId
from tuner.domain.attempt import AttemptState


class IdleCause(Enum):
    """Why no trial computes on a device."""

    #: The sampler is computing the next trial.
    NO_SUGGESTION = "no_suggestion"
    #: An attempt holds the device, but its processes have not sent hello.
    STARTING = "starting"
    #: An attempt has ended, but its memory is not free yet.
    CLEARING = "waiting_for_memory"
    #: A trial waits for more devices than are free.
    GATHERING = "gathering"
    TAKEN = "taken"
    #: By the rules of the machine another user has it, or is to have it.
    SHARED = "shared"
    PAUSED = "paused"
    QUARANTINED = "quarantined"
    #: The budget is reached, the space is exhausted, or the study was stopped.
    NOTHING_LEFT = "nothing_left"
    #: The database does not answer, so that no trial may start.
    DATABASE = "database"
    #: A trial found its disk full: no trial starts until there is room.
    DISK_FULL = "disk_full"
    LOST = "lost"


#: Causes in words.
CAUSE_WORDS: Mapping[IdleCause, str] = {
    IdleCause.NO_SUGGESTION: "no suggestion ready",
    IdleCause.STARTING: "starting",
    IdleCause.CLEARING: "release of the device",
    IdleCause.GATHERING: "gathering for a wide trial",
    IdleCause.TAKEN: "used by other processes",
    IdleCause.SHARED: "share of another user",
    IdleCause.PAUSED: "paused",
    IdleCause.QUARANTINED: "quarantined",
    IdleCause.NOTHING_LEFT: "nothing left to do",
    IdleCause.DATABASE: "database away",
    IdleCause.DISK_FULL: "disk full",
    IdleCause.LOST: "lost",
}
#: A stored idle time that ended less than this many seconds ago counts as current.
FRESH_S = 20.0

#: Idle causes of a device whose attempt does not compute. Not stored: the timestamps of the attempt
#: determine them.
IDLE_STATES: Mapping[AttemptState, IdleCause] = {
    AttemptState.LEASED: IdleCause.STARTING,
    AttemptState.CLEARING: IdleCause.CLEARING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSpan:
    """A time in which a device had no trial."""

    device_id: DeviceId
    cause: IdleCause
    began_at: datetime
    ended_at: datetime
    #: Whether it is written down already, with an earlier end.
    is_known: bool = False
