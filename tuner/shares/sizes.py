"""How much of a GPU a device is: what guarantees and loans count."""

from __future__ import annotations

import re

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device, DeviceKind

#: Compute slices of all GPUs that have MIG, but for those of four.
_SLICES = 7
_COMPUTE = re.compile(r"(\d+)g\.")


def parts_of_device(device: Device) -> int:
    """Parts of a whole device; a MIG slice of the profile 2g.20gb has two sevenths of them.

    Of a GPU that the rules divide into four, each share has a quarter.
    """
    if device.share_of is not None:
        return WHOLE // device.n_shares
    found = _COMPUTE.search(device.name) if device.kind is DeviceKind.MIG else None
    return WHOLE if found is None else max(1, int(found[1]) * WHOLE // _SLICES)
