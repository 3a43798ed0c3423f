"""Start of a study on a machine whose devices are divided among its users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from tuner.config import StudyConfig
from tuner.config.sections.resources import possible_widths
from tuner.devices.allocation.width import ONE, FixedWidth, n_devices_of
from tuner.devices.cpu_slots.probe import CpuProbe, DividedSlots
from tuner.devices.device import Device
from tuner.devices.limits import GpuLimits
from tuner.devices.locks import DeviceLocks
from tuner.devices.occupancy import use_by_others
from tuner.devices.request import AutoDevices, CpuSlots, DeviceRequest
from tuner.devices.selection import GpuProbe, NotNow, Selection, meant_devices, select_devices
from tuner.errors import DeviceError
from tuner.shares.locks import SharedLocks
from tuner.shares.rules import read_rules, rules_file
from tuner.shares.rules_watch import RulesWatch
from tuner.shares.seat import Seat


def open_seat(config: StudyConfig, environ: Mapping[str, str]) -> Seat | None:
    """The study's place among the tuners of this machine; None if nothing is divided.

    Raises:
        ConfigError: If the machine's rules are wrong.
        DeviceError: If the folder of claims cannot be used.
    """
    path = rules_file(environ)
    rules = None if path is None else read_rules(path)
    if path is None or rules is None:
        return None
    is_of_slots = isinstance(config.devices, CpuSlots) or _wants_cpus(config)
    if is_of_slots and rules.cpu_slots is None:
        return None
    resources = config.trial.resources
    rule = resources.rule if resources else FixedWidth(width=ONE)
    unit = min(map(n_devices_of, possible_widths(rule, config.search_space)), default=1)
    return Seat(
        RulesWatch(path, rules), unit=unit, priority=config.priority, takes_idle=config.widen
    )


def _wants_cpus(config: StudyConfig) -> bool:
    resources = config.trial.resources
    return resources is not None and resources.cpus is not None


def open_locks(stack: ExitStack, seat: Seat | None) -> DeviceLocks:
    """Locks that respect the shares of other users, if there are any."""
    if seat is None:
        return DeviceLocks()
    stack.callback(seat.close)
    return SharedLocks(seat)


def divided_slots(request: DeviceRequest, gpus: GpuProbe | None, seat: Seat) -> DividedSlots | None:
    """All CPU slots of the machine, if the study wants some and they are divided."""
    n_slots = seat.rules.cpu_slots
    has_gpus = gpus is not None and bool(gpus.devices())
    is_of_slots = isinstance(request, CpuSlots) or (
        isinstance(request, AutoDevices) and not has_gpus
    )
    return DividedSlots(n_slots) if is_of_slots and n_slots is not None else None


def slots_limits(request: DeviceRequest, slots: DividedSlots) -> GpuLimits:
    """Limits of a machine's slots for a study: as many as it would have without shares."""
    own = request.n_slots if isinstance(request, CpuSlots) else len(CpuProbe().devices())
    most = min(own, len(slots.devices()))
    return GpuLimits(max_devices=most, maximum_key="the study's number of slots")


def suited_devices(request: DeviceRequest, probe: GpuProbe, limits: GpuLimits) -> Sequence[Device]:
    """All devices that a study could use, including those of others."""
    meant = meant_devices(request, probe.devices())
    return [device for device in meant if limits.refusal(device) is None]


def take_seat(
    seat: Seat,
    request: DeviceRequest,
    probe: GpuProbe | None,
    limits: GpuLimits,
    *,
    wants: int | None = None,
) -> None:
    """Claims the devices that suit a study, and decides which it may have now.

    Args:
        seat: The place of this tuner.
        request: The `devices` of the study file.
        probe: The devices of the machine; None for none.
        limits: Which of them suit, and how many the study may have.
        wants: Number that the study could use; None for all that suit.

    Raises:
        DeviceError: If the claim cannot be written.
    """
    if probe is None:
        return
    suited = suited_devices(request, probe, limits)
    minds = isinstance(request, AutoDevices)
    seat.offer(
        suited,
        partial(_is_foreign, probe) if minds else None,
        most=limits.max_devices,
        seen=probe.devices(),
    )
    seat.look(wants=wants)


def _is_foreign(probe: GpuProbe, device: Device) -> bool:
    try:
        return use_by_others(probe.status(device)) is not None
    except DeviceError:
        return True


def select_or_wait(
    request: DeviceRequest, probe: GpuProbe | None, limits: GpuLimits, locks: DeviceLocks | None
) -> Selection:
    """Chooses devices; none but those on standby where all are shares of other users.

    Raises:
        DeviceError: As `select_devices`.
    """
    try:
        return select_devices(request, gpus=probe, limits=limits, locks=locks)
    except NotNow as error:
        waiting = Selection(devices=(), left_out=error.left_out)
        if isinstance(locks, SharedLocks) and waiting.standby:
            return waiting
        raise


def waits_text(seat: Seat) -> str:
    """For people: why a study that starts has no device yet."""
    waits_for = seat.waits_for or "all of them are in use"
    return f"No device is free for this study: {waits_for}. It starts when one is."
