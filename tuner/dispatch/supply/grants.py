"""A trial that waits for devices, and what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.devices.allocation.pool import Lease
from tuner.devices.device import Device, DeviceId
from tuner.domain.attempt import AttemptId, attempt_id
from tuner.search.asked_trial import AskedTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A trial that waits for devices."""

    asked: AskedTrial
    attempt_number: int
    #: Whether it shares its devices with nobody: it ran out of memory before.
    is_alone: bool = False
    #: Where it ran out of memory: it gets other devices, if such are free.
    avoid: frozenset[DeviceId] = frozenset()
    #: What it takes where it was widened; None for what the study file says.
    n_devices: int | None = None

    @property
    def attempt_id(self) -> AttemptId:
        return attempt_id(self.asked.number, self.attempt_number)


@dataclass(slots=True, kw_only=True)
class Grant:
    """The devices that one attempt got, and what it makes of them."""

    candidate: Candidate
    lease: Lease
    #: What it is expected to take of its GPU at its peak; None where it has all of it.
    expected_bytes: int | None = None
    #: Its ranks, each the head of a session.
    pids: frozenset[int] = frozenset()
    n_reports: int = 0
    #: The most that it was seen to take of any one GPU.
    peak_bytes: int | None = None
    #: Whether another attempt was ever on its device at the same time.
    has_had_company: bool = False
    #: Memory in use on each of its GPUs before the launch; none where it shares one.
    baselines: Mapping[DeviceId, int | None] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.lease.devices
