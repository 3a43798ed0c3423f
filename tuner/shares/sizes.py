"""How much of a GPU a device is: what guarantees and loans count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.shares.claims import Claim

#: Compute slices of all GPUs that have MIG, but for those of four.
_SLICES = 7
_COMPUTE = re.compile(r"(\d+)g\.")
_SLOT = re.compile(r"cpu:(\d{1,5})")
#: More GPUs and slices than these a claim has invented.
_MOST_GPUS = 512
_NONE: Mapping[DeviceId, int] = MappingProxyType({})


def parts_of_device(device: Device) -> int:
    """Parts of a whole device; a MIG slice of the profile 2g.20gb has two sevenths of them.

    Of a GPU that the rules divide into four, each share has a quarter.
    """
    if device.share_of is not None:
        return WHOLE // device.n_shares
    found = _COMPUTE.search(device.name) if device.kind is DeviceKind.MIG else None
    return WHOLE if found is None else max(1, int(found[1]) * WHOLE // _SLICES)


def sizes_of(
    claims: Iterable[Claim], n_slots: int | None = None, known: Mapping[DeviceId, int] = _NONE
) -> dict[DeviceId, int]:
    """The parts of each device that tuners of a machine name.

    What a tuner has seen itself counts more than what claims say: who calls a device smaller than
    it is, would get more of them for the own guarantee. Of claims the largest size counts.

    Args:
        claims: Of all tuners.
        n_slots: CPU slots of the machine by its rules.
        known: Parts of the devices that this process has seen.
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
