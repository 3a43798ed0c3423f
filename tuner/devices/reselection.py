"""Chooses other devices for a running study, as at its start, given its present ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tuner.devices.allocation.standby import Standby
from tuner.devices.device import Device, DeviceProbe
from tuner.devices.limits import GpuLimits
from tuner.devices.request import AutoDevices, CpuSlots, DeviceRequest
from tuner.devices.selection import GpuProbe, Locks, Selection, select_devices
from tuner.errors import DeviceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reselected:
    """The devices that a study has from now on."""

    selection: Selection
    #: Looks for GPUs that others leave, under `auto`.
    standby: Standby | None
    #: Reads its GPUs; None if it has CPU slots.
    probe: DeviceProbe | None


class Reselection:
    """Chooses devices for a study that has some.

    Args:
        open_gpus: Opens the GPUs of this host; None if it has no NVIDIA driver.
        locks: Claims GPUs against other tuners.
        limits: Which GPUs suit the study, and their maximum number.
        read: Parses a `devices` value of a study file; raises ValueError if it is wrong.
        check: Raises an error if trials of the study do not fit on devices.
        gpus: GPUs that are open already.
        is_divided: Whether other users of the machine have a right to devices, including named
            ones.
    """

    def __init__(
        self,
        open_gpus: Callable[[], GpuProbe | None],
        locks: Locks,
        limits: GpuLimits,
        read: Callable[[object], DeviceRequest],
        check: Callable[[Sequence[Device]], None],
        gpus: GpuProbe | None = None,
        *,
        is_divided: bool = False,
    ) -> None:
        self._open_gpus = open_gpus
        self._locks = locks
        self._limits = limits
        self._read = read
        self._check = check
        self._gpus = gpus
        self._is_divided = is_divided

    def choose(self, value: object, own: Collection[Device]) -> Reselected:
        """Finds the requested devices, and claims those that are not claimed yet.

        Args:
            value: As `devices` in a study file.
            own: The devices that the study has.

        Raises:
            ValueError: If the value is none of the allowed forms; the text starts with "is".
            TunerError: If they do not exist, are not free, or do not suit the study. Then no
                further device is claimed.
        """
        request = self._read(value)
        if isinstance(request, CpuSlots) and self._limits.demands:
            raise DeviceError(f"Its trials need GPUs: {self._limits.demands}.")
        if not isinstance(request, CpuSlots):
            self._gpus = self._gpus or self._open_gpus()
        own_ids = frozenset(device.id for device in own)
        try:
            selection = select_devices(
                request, gpus=self._gpus, limits=self._limits, own_ids=own_ids, locks=self._locks
            )
            self._check([*selection.devices, *(device for device, _ in selection.standby)])
        except BaseException:
            for device in self._gpus.devices() if self._gpus else ():
                if device.id not in own_ids:
                    self._locks.release(device)
            raise
        return Reselected(
            selection=selection,
            standby=self._standby(request, selection),
            probe=None if isinstance(request, CpuSlots) else self._gpus,
        )

    def release(self, device: Device) -> None:
        """Releases the claim on a device that the study no longer uses."""
        self._locks.release(device)

    def close(self) -> None:
        """Lets the driver go. Safe to call twice."""
        if self._gpus is not None:
            self._gpus.close()

    def _standby(self, request: DeviceRequest, selection: Selection) -> Standby | None:
        is_auto = isinstance(request, AutoDevices)
        if not (is_auto or self._is_divided) or self._gpus is None:
            return None
        standby = Standby(
            self._gpus,
            self._locks,
            max_devices=self._limits.max_devices,
            minds_others=is_auto,
        )
        for device, reason in selection.standby:
            standby.add(device, reason)
        return standby
