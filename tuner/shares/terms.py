"""Values for requests and assignments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.devices.device import DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The request of one tuner."""

    #: Unique.
    name: str
    uid: int
    #: Counts among the studies of one user, 0 to 100.
    priority: int = 50
    #: When it was first made, in seconds UTC.
    since_s: float = 0.0
    #: When it started to need more devices than it has, in seconds UTC.
    waits_since_s: float = 0.0
    #: Its devices, with when it got each, in seconds UTC.
    holds: Mapping[DeviceId, float] = field(default_factory=dict)
    #: Number of devices that it could use now, including held ones.
    wants: int
    #: The devices of one trial: it can use multiples only.
    unit: int = 1
    #: The devices that it can use.
    suits: frozenset[DeviceId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A device that a tuner must return."""

    device_id: DeviceId
    giver: str
    #: The tuner that gets it; None if the giver's user has more than the rules allow.
    taker: str | None
    #: Whether the taker is below its guarantee. If not, the giver has had it for `hold`, or does
    #: not need it.
    is_by_right: bool
    #: Whether the giver has more devices than it can use.
    is_spare: bool
    #: Devices of the giver that would do as well.
    among: frozenset[DeviceId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The amounts of a user, in parts of a device."""

    held: int = 0
    wanted: int = 0
    #: The guaranteed part.
    by_right: int = 0
    #: The share that the user may hold now.
    part: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    #: By tuner: the devices that it may have. A tuner that holds more keeps them until others need
    #: them.
    allotted: Mapping[str, frozenset[DeviceId]]
    moves: tuple[Move, ...]
    standings: Mapping[int, Standing]
