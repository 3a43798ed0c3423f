"""Selects a study's devices, with a reason for each one that it does not get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device, DeviceId, DeviceProbe
from tuner.devices.limits import GpuLimits, memory_text, type_text
from tuner.devices.occupancy import other_tuner, use_by_others
from tuner.devices.request import (
    AllDevices,
    AutoDevices,
    CpuSlots,
    DeviceRequest,
    NamedDevices,
)
from tuner.errors import DeviceError

_NO_LIMITS = GpuLimits()
_USE_CPU = "use the CPU with `devices: cpu:4`"


class NotNow(DeviceError):
    """Another user has the device now; the text, to follow the device's name, says who.

    Args:
        text: For users.
        left_out: All devices, if the study gets none of them.
    """

    def __init__(self, text: str, left_out: Sequence[LeftOut] = ()) -> None:
        super().__init__(text)
        self.left_out = tuple(left_out)


class GpuProbe(DeviceProbe, Protocol):
    """A GPU probe that can explain why some GPUs are not visible."""

    @property
    def cuda_visible_devices(self) -> str | None:
        """The variable that hides GPUs; None if it was not set."""

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each GPU that exists but could not be read."""


class Locks(Protocol):
    """Claims on devices against other tuners on this host."""

    def acquire(self, device: Device) -> bool:
        """Claims a device; False if another tuner has it.

        Raises:
            NotNow: If it is another user's share.
        """

    def release(self, device: Device) -> None:
        """Releases a claim; does nothing if there is none."""

    def owner_pid(self, device: Device) -> int | None:
        """The process that last claimed a device, if it is alive and known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A visible device that the study does not get."""

    device: Device
    #: A full sentence that names the device.
    reason: str
    #: Why the study cannot have it now: `another tuner (pid 7) uses it`. None if this is permanent.
    for_now: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The devices of a study: GPUs and MIG slices, or else CPU slots."""

    devices: tuple[Device, ...]
    left_out: tuple[LeftOut, ...] = ()
    #: Full sentences.
    warnings: tuple[str, ...] = ()

    @property
    def standby(self) -> tuple[tuple[Device, str], ...]:
        """Devices that the study may get later, each with the current obstacle.

        Only with `auto`, or if the machine is divided among its users: otherwise the user has named
        the devices, or wants all.
        """
        return tuple((one.device, one.for_now) for one in self.left_out if one.for_now is not None)


def select_devices(
    request: DeviceRequest,
    *,
    gpus: GpuProbe | None,
    limits: GpuLimits = _NO_LIMITS,
    own_pids: frozenset[int] = frozenset(),
    own_ids: frozenset[DeviceId] = frozenset(),
    locks: Locks | None = None,
    cpu: Callable[[int | None], DeviceProbe] = CpuProbe,
) -> Selection:
    """Finds the devices of a request, and claims them.

    Args:
        request: The request of the study file.
        gpus: The GPUs of this host; None if it has no NVIDIA driver.
        limits: Which GPUs suit the study, and their maximum number.
        own_pids: Processes whose use of a GPU does not count.
        own_ids: Devices that the study already has: their use is its own.
        locks: Claims GPUs; None for no claims. After an error the caller closes it.
        cpu: Makes the probe for a number of CPU slots (None: one per core, at most eight).

    Raises:
        DeviceError: If a requested device does not exist or another tuner has it, or if no device
            is left.
    """
    chooser = _Chooser(gpus=gpus, limits=limits, own_pids=own_pids, own_ids=own_ids, locks=locks)
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
    limits: GpuLimits
    own_pids: frozenset[int]
    own_ids: frozenset[DeviceId]
    locks: Locks | None

    def auto(self) -> Selection | None:
        """The unused GPUs; None if there is no GPU."""
        if not self._visible:
            if self._problems:
                raise DeviceError(
                    f"No GPU can be used.{_sentences(self._problems)} You can {_USE_CPU}."
                )
            if self.limits.demands:
                raise DeviceError(
                    f"No GPU suits the study: {self.limits.demands}. {self._existing()}"
                )
            return None
        self._suitable(self._visible)
        devices: list[Device] = []
        left_out: list[LeftOut] = []
        for device in self._visible:
            if one := self._left_out(device, n_claimed=len(devices)):
                left_out.append(one)
            else:
                devices.append(device)
        if not devices:
            suited = [one for one in left_out if self._suits(one.device)]
            raise NotNow(_nothing_free(suited), left_out)
        return Selection(devices=tuple(devices), left_out=tuple(left_out), warnings=self._problems)

    def all(self) -> Selection:
        if not self._visible:
            raise DeviceError(f"devices: all finds no GPU. {self._existing()}")
        return self._take(self._visible)

    def named(self, names: tuple[int | str, ...]) -> Selection:
        matches = {name: [one for one in self._visible if _is_meant(name, one)] for name in names}
        missing = [str(name) for name, devices in matches.items() if not devices]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise DeviceError(f"devices: {', '.join(missing)} {are} not here. {self._existing()}")
        for name, devices in matches.items():
            if isinstance(name, str) and len(devices) > 1:
                raise DeviceError(f"devices: {name} is the beginning of several: {_list(devices)}.")
        return self._take(_once(one for devices in matches.values() for one in devices))

    @property
    def _visible(self) -> tuple[Device, ...]:
        return self.gpus.devices() if self.gpus else ()

    @property
    def _problems(self) -> tuple[str, ...]:
        return self.gpus.problems if self.gpus else ()

    def _suits(self, device: Device) -> bool:
        return self.limits.refusal(device) is None

    def _suitable(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        suitable = tuple(filter(self._suits, devices))
        if not suitable:
            raise DeviceError(
                f"No GPU suits the study: {self.limits.demands}, but there is only "
                f"{_types(devices)}. Ask for less, or for other devices."
            )
        return suitable

    def _left_out(self, device: Device, *, n_claimed: int) -> LeftOut | None:
        """Why `auto` does not take a device; None once it is claimed."""
        if refusal := self.limits.refusal(device):
            return LeftOut(device=device, reason=refusal)
        if n_claimed == self.limits.max_devices:
            return _for_now(device, self._maximum)
        try:
            why = self._use(device) or self._other_tuner(device)
        except NotNow as error:
            return _for_now(device, str(error))
        except DeviceError as error:
            return LeftOut(device=device, reason=f"{device.label} is left out: {error}")
        return _for_now(device, why) if why else None

    @property
    def _maximum(self) -> str:
        return f"{self.limits.maximum_key} is {self.limits.max_devices}"

    def _take(self, devices: tuple[Device, ...]) -> Selection:
        """Takes the requested devices that suit the study."""
        suitable = self._suitable(devices)
        chosen = suitable[: self.limits.max_devices]
        reasons = {device.id: self.limits.refusal(device) for device in devices}
        left_out = tuple(
            LeftOut(device=device, reason=reasons[device.id] or _sentence(device, self._maximum))
            for device in devices
            if device not in chosen
        )
        claimed = self._claim(chosen)
        return replace(claimed, left_out=(*claimed.left_out, *left_out))

    def _claim(self, devices: tuple[Device, ...]) -> Selection:
        """Takes devices requested by name, including busy ones."""
        uses = [(device, self._use(device)) for device in devices]
        shared_out: list[LeftOut] = []
        for device in devices:
            try:
                other = self._other_tuner(device)
            except NotNow as error:
                shared_out.append(_for_now(device, str(error)))
                continue
            if other is not None:
                raise DeviceError(
                    f"{device.label} ({device.id}) is not free: {other}. "
                    "Wait until it ends, or name other devices."
                )
        if len(shared_out) == len(devices):
            raise NotNow(" ".join(one.reason for one in shared_out), shared_out)
        left = [one.device for one in shared_out]
        taken = tuple(device for device in devices if device not in left)
        warnings = tuple(
            f"{device.label} is in use: {use}. Trials on it may be slow or run out of memory."
            for device, use in uses
            if use is not None and device in taken
        )
        return Selection(
            devices=taken, left_out=tuple(shared_out), warnings=self._problems + warnings
        )

    def _use(self, device: Device) -> str | None:
        if self.gpus is None:
            return None
        # Read in any case: this detects a lost device.
        use = use_by_others(self.gpus.status(device), own_pids=self.own_pids)
        return None if device.id in self.own_ids else use

    def _other_tuner(self, device: Device) -> str | None:
        if self.locks is None or self.locks.acquire(device):
            return None
        return other_tuner(self.locks.owner_pid(device))

    def _existing(self) -> str:
        if self.gpus is None:
            return f"This machine has no NVIDIA driver, so no GPU can be used; {_USE_CPU}."
        devices = _list(self._visible) if self._visible else "no GPU that can be used"
        variable = self.gpus.cuda_visible_devices
        hidden = "" if variable is None else f" CUDA_VISIBLE_DEVICES is {variable!r}."
        return f"This machine has {devices}.{hidden}{_sentences(self._problems)}"


def meant_devices(request: DeviceRequest, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The GPUs that a request names; all if it names none."""
    if not isinstance(request, NamedDevices):
        return tuple(devices)
    return tuple(one for one in devices if any(_is_meant(name, one) for name in request.names))


def _is_meant(name: int | str, device: Device) -> bool:
    if isinstance(name, int):
        return device.index == name
    return device.id.lower().startswith(name.lower())


def _once(devices: Iterable[Device]) -> tuple[Device, ...]:
    """A GPU named by its number and by its UUID is one device."""
    return tuple({device.id: device for device in devices}.values())


def _for_now(device: Device, why: str) -> LeftOut:
    return LeftOut(device=device, reason=_sentence(device, why), for_now=why)


def _sentence(device: Device, why: str) -> str:
    return f"{device.label} is left out: {why}."


def _nothing_free(left_out: Sequence[LeftOut]) -> str:
    reasons = " ".join(one.reason for one in left_out)
    numbers = sorted({one.device.index for one in left_out})
    return (
        f"No free device: {reasons} Wait until one is free, share them anyway by naming them "
        f"(`devices: {numbers}`) or with `devices: all`, or {_USE_CPU}."
    )


def _list(devices: Iterable[Device]) -> str:
    return ", ".join(f"{device.label} ({device.id})" for device in devices)


def _types(devices: Iterable[Device]) -> str:
    return ", ".join(f"{one.label} ({type_text(one)}, {memory_text(one)})" for one in devices)


def _sentences(sentences: tuple[str, ...]) -> str:
    return "".join(f" {sentence}" for sentence in sentences)
