"""From what a study asks for to the devices it gets, with a sentence on every one it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, assert_never

from tuner.devices.cpu import CpuProbe
from tuner.devices.device import Device, DeviceProbe
from tuner.devices.request import (
    AllDevices,
    AutoDevices,
    CpuSlots,
    DeviceRequest,
    NamedDevices,
)
from tuner.devices.usage import use_by_others
from tuner.errors import DeviceError

_USE_CPU = "use the CPU with `devices: cpu:4`"


class GpuProbe(DeviceProbe, Protocol):
    """A probe of GPUs that can say why some of them are not seen."""

    @property
    def cuda_visible_devices(self) -> str | None:
        """The variable that hides GPUs, as it was set; None where it was not."""

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each GPU that is there but could not be read at all."""


class Locks(Protocol):
    """Claims on devices against other tuners on this host."""

    def acquire(self, device: Device) -> bool:
        """Claims a device; False where another tuner has it."""

    def owner_pid(self, device: Device) -> int | None:
        """The process that claimed a device last, where it lives and is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A visible device that the study does not get."""

    device: Device
    #: A full sentence that names the device.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The devices of a study: GPUs and MIG slices, or else CPU slots."""

    devices: tuple[Device, ...]
    left_out: tuple[LeftOut, ...] = ()
    #: Full sentences.
    warnings: tuple[str, ...] = ()


def select_devices(
    request: DeviceRequest,
    *,
    gpus: GpuProbe | None,
    own_pids: frozenset[int] = frozenset(),
    locks: Locks | None = None,
    cpu: Callable[[int | None], DeviceProbe] = CpuProbe,
) -> Selection:
    """Finds the devices that a request means, and claims them.

    Args:
        request: What the study file asks for.
        gpus: The GPUs of this host; None where it has no NVIDIA driver.
        own_pids: Processes whose use of a GPU does not count.
        locks: Where GPUs are claimed; None for no claims. After an error the caller closes it.
        cpu: Makes the probe for so many CPU slots (None: one per core, at most eight).

    Raises:
        DeviceError: If a device asked for is not there or has another tuner on it, or if
            no device is left.
    """
    chooser = _Chooser(gpus=gpus, own_pids=own_pids, locks=locks)
    match request:
        case CpuSlots(n_slots=n_slots):
            return Selection(devices=cpu(n_slots).devices())
        case AutoDevices():
            return chooser.auto() or Selection(devices=cpu(None).devices())
        case AllDevices():
            return chooser.all()
        case NamedDevices(names=names):
            return chooser.named(names)
        case _:
            assert_never(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chooser:
    gpus: GpuProbe | None
    own_pids: frozenset[int]
    locks: Locks | None

    def auto(self) -> Selection | None:
        """The GPUs that nobody uses; None where there is no GPU."""
        if not self._visible:
            if self._problems:
                raise DeviceError(
                    f"No GPU can be used.{_sentences(self._problems)} You can {_USE_CPU}."
                )
            return None
        left_out = tuple(self._left_out(self._visible))
        ids_left_out = {one.device.id for one in left_out}
        devices = tuple(device for device in self._visible if device.id not in ids_left_out)
        if not devices:
            raise DeviceError(_nothing_free(left_out))
        return Selection(devices=devices, left_out=left_out, warnings=self._problems)

    def all(self) -> Selection:
        if not self._visible:
            raise DeviceError(f"devices: all finds no GPU. {self._existing()}")
        return self._claim(self._visible)

    def named(self, names: tuple[int | str, ...]) -> Selection:
        matches = {name: [one for one in self._visible if _is_meant(name, one)] for name in names}
        missing = [str(name) for name, devices in matches.items() if not devices]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise DeviceError(f"devices: {', '.join(missing)} {are} not here. {self._existing()}")
        for name, devices in matches.items():
            if isinstance(name, str) and len(devices) > 1:
                raise DeviceError(f"devices: {name} is the beginning of several: {_list(devices)}.")
        return self._claim(_once(one for devices in matches.values() for one in devices))

    @property
    def _visible(self) -> tuple[Device, ...]:
        return self.gpus.devices() if self.gpus else ()

    @property
    def _problems(self) -> tuple[str, ...]:
        return self.gpus.problems if self.gpus else ()

    def _left_out(self, devices: tuple[Device, ...]) -> Iterable[LeftOut]:
        for device in devices:
            reason = self._reason_against(device)
            if reason is not None:
                yield LeftOut(device=device, reason=reason)

    def _reason_against(self, device: Device) -> str | None:
        try:
            use = self._use(device)
        except DeviceError as error:
            return f"{device.label} is left out: {error}"
        use = use or self._other_tuner(device)
        return f"{device.label} is left out: {use}." if use else None

    def _claim(self, devices: tuple[Device, ...]) -> Selection:
        """Takes devices that were asked for by name, also busy ones."""
        uses = [(device, self._use(device)) for device in devices]
        for device in devices:
            other = self._other_tuner(device)
            if other is not None:
                raise DeviceError(
                    f"{device.label} ({device.id}) is not free: {other}. "
                    "Wait until it ends, or name other devices."
                )
        warnings = tuple(
            f"{device.label} is in use: {use}. Trials on it may be slow or run out of memory."
            for device, use in uses
            if use is not None
        )
        return Selection(devices=devices, warnings=self._problems + warnings)

    def _use(self, device: Device) -> str | None:
        if self.gpus is None:
            return None
        return use_by_others(self.gpus.status(device), own_pids=self.own_pids)

    def _other_tuner(self, device: Device) -> str | None:
        if self.locks is None or self.locks.acquire(device):
            return None
        pid = self.locks.owner_pid(device)
        return f"another tuner{f' (pid {pid})' if pid is not None else ''} uses it"

    def _existing(self) -> str:
        if self.gpus is None:
            return f"This machine has no NVIDIA driver, so no GPU can be used; {_USE_CPU}."
        devices = _list(self._visible) if self._visible else "no GPU that can be used"
        variable = self.gpus.cuda_visible_devices
        hidden = "" if variable is None else f" CUDA_VISIBLE_DEVICES is {variable!r}."
        return f"This machine has {devices}.{hidden}{_sentences(self._problems)}"


def _is_meant(name: int | str, device: Device) -> bool:
    if isinstance(name, int):
        return device.index == name
    return device.id.lower().startswith(name.lower())


def _once(devices: Iterable[Device]) -> tuple[Device, ...]:
    """A GPU named by its number and by its UUID is one device."""
    return tuple({device.id: device for device in devices}.values())


def _nothing_free(left_out: tuple[LeftOut, ...]) -> str:
    reasons = " ".join(one.reason for one in left_out)
    numbers = sorted({one.device.index for one in left_out})
    return (
        f"No free device: {reasons} Wait until one is free, share them anyway by naming them "
        f"(`devices: {numbers}`) or with `devices: all`, or {_USE_CPU}."
    )


def _list(devices: Iterable[Device]) -> str:
    return ", ".join(f"{device.label} ({device.id})" for device in devices)


def _sentences(sentences: tuple[str, ...]) -> str:
    return "".join(f" {sentence}" for sentence in sentences)
