"""Queued trials and the devices granted to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.devices.allocation.pool import Lease
from tuner.devices.device import Device, DeviceId
from tuner.domain.attempt import AttemptId, attempt_id
from tuner.search.asked_trial import AskedTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A trial in the queue for devices."""

    asked: AskedTrial
    attempt_number: int
    #: Whether it must not share its devices, because it ran out of memory before.
    is_alone: bool = False
    #: Devices on which it ran out of memory: it gets others if these are free.
    avoid: frozenset[DeviceId] = frozenset()
    #: Number of devices if it is widened; None for the study file's value.
    n_devices: int | None = None

    @property
    def attempt_id(self) -> AttemptId:
        return attempt_id(self.asked.number, self.attempt_number)


@dataclass(slots=True, kw_only=True)
class Grant:
    """The devices of one attempt, and its use of them."""

    candidate: Candidate
    lease: Lease
    #: Expected peak memory on its GPU, in bytes; None if it has the whole GPU.
    expected_bytes: int | None = None
    #: Process ids of its ranks, each a session leader.
    pids: frozenset[int] = frozenset()
    n_reports: int = 0
    #: Highest memory use seen on any one GPU, in bytes.
    peak_bytes: int | None = None
    #: Whether another attempt ever ran on its device at the same time.
    has_had_company: bool = False
    #: Memory in use on each of its GPUs before the launch, in bytes; empty if it shares one.
    baselines: Mapping[DeviceId, int | None] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.lease.devices
