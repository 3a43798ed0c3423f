"""Facts on devices that claims cannot change: their sizes, and which process holds each lock."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.devices.locks import lock_holders
from tuner.host.process_identity import pid_namespace
from tuner.shares.claims import Claim

#: Compute slices of all GPUs with MIG, except those with four.
_SLICES = 7
_COMPUTE = re.compile(r"(\d+)g\.")
_SLOT = re.compile(r"cpu:(\d{1,5})")
#: More GPUs and slices than these a claim has invented.
_MOST_GPUS = 512
_NONE: Mapping[DeviceId, int] = MappingProxyType({})


def parts_of_device(device: Device) -> int:
    """Size of a device in parts; a MIG slice of the profile 2g.20gb has two sevenths of a GPU.

    A share of a GPU that the rules divide into four is a quarter.
    """
    if device.share_of is not None:
        return WHOLE // device.n_shares
    found = _COMPUTE.search(device.name) if device.kind is DeviceKind.MIG else None
    return WHOLE if found is None else max(1, int(found[1]) * WHOLE // _SLICES)


def sizes_of(
    claims: Iterable[Claim], n_slots: int | None = None, known: Mapping[DeviceId, int] = _NONE
) -> dict[DeviceId, int]:
    """The sizes of the devices in the claims of a machine's tuners.

    Sizes that this process has read itself take precedence over claims: a tuner that understates
    sizes would get more devices for its guarantee. Among claims the largest size counts.

    Args:
        claims: Claims of all tuners.
        n_slots: Number of CPU slots in the machine's rules.
        known: Sizes of the devices that this process has read, in parts.
    """
    found: dict[DeviceId, int] = {}
    n_gpus = 0
    for claim in claims:
        for device_id, parts in claim.suits.items():
            if device_id not in found:
                slot = _SLOT.fullmatch(device_id)
                if slot is not None and n_slots is not None and int(slot[1]) >= n_slots:
                    continue
                if slot is None and device_id not in known:
                    n_gpus += 1
                    if n_gpus > _MOST_GPUS:
                        continue
            found[device_id] = known.get(device_id, max(parts, found.get(device_id, 0)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """A device that a claim names as its tuner's, and another process keeps locked."""

    claim: Claim
    device_id: DeviceId
    pid: int


def all_held(claims: Iterable[Claim]) -> frozenset[DeviceId]:
    """Devices that claims name as their tuners'."""
    return frozenset(device_id for claim in claims for device_id in claim.holds)


def disputed(claims: Iterable[Claim]) -> frozenset[DeviceId]:
    """Devices that several tuners say they have."""
    n_holders = Counter(device_id for claim in claims for device_id in claim.holds)
    return frozenset(device_id for device_id, n in n_holders.items() if n > 1)


def with_locks(
    claims: Sequence[Claim], folder: Path, device_ids: Collection[DeviceId]
) -> tuple[tuple[Claim, ...], list[Lie]]:
    """Claims without the devices that another process keeps locked, as far as the kernel tells.

    Args:
        claims: Of all tuners.
        folder: That of claims and locks.
        device_ids: The devices to look at.
    """
    holders = lock_holders(folder, device_ids) if device_ids else {}
    if not holders:
        return tuple(claims), []
    lies = [
        Lie(claim=claim, device_id=device_id, pid=holders[device_id])
        for claim in claims
        if claim.pid_namespace == pid_namespace()
        for device_id in claim.holds
        if holders.get(device_id, claim.pid) != claim.pid
    ]
    false = {(lie.claim.name, lie.device_id) for lie in lies}
    believed = (
        replace(claim, holds={k: v for k, v in claim.holds.items() if (claim.name, k) not in false})
        for claim in claims
    )
    return tuple(believed), lies
