"""The width of an attempt: whole devices, or a part of one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from tuner.devices.device import Device

#: Parts that a device has. A whole number, so that ten times a tenth is exactly one.
WHOLE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """A number of whole devices, leased together or not at all."""

    n_devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of one device."""

    #: 1 to WHOLE - 1.
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShare:
    """A part of one GPU, as much as its memory demands."""

    memory_bytes: int


Width: TypeAlias = Devices | Share | MemoryShare
ONE = Devices(n_devices=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWidth:
    """Every trial takes the same."""

    width: Width


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthByParameter:
    """One of a trial's parameters sets its width: 2 devices, or 0.5 of one."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedWidth:
    """A trial's width is predicted from the measured GPU memory of similar trials."""


WidthRule: TypeAlias = FixedWidth | WidthByParameter | LearnedWidth


def wider(rule: WidthRule, widths: Iterable[Width], n_devices: int) -> int | None:
    """The next larger number of devices for a trial; None if there is none.

    Args:
        rule: The rule for widths. One by a parameter allows the parameter's values.
        widths: All widths that it allows.
        n_devices: Current number, at least 1.
    """
    match rule:
        case FixedWidth():
            return 2 * n_devices
        case WidthByParameter():
            more = (each.n_devices for each in widths if isinstance(each, Devices))
            return min((each for each in more if each > n_devices), default=None)
        case LearnedWidth():
            return None
        case _:
            assert_never(rule)


def width_of_number(value: object) -> Width:
    """Whole devices from 1 on; below 1 a share of one.

    Raises:
        ValueError: If the number is invalid; worded to follow "is" and the value.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("must be a number above 0")
    if value < 1:
        return Share(parts=parts_of(value))
    if value != int(value):
        raise ValueError("must be a whole number of devices, or a share of one below 1")
    return Devices(n_devices=int(value))


def width_of(rule: FixedWidth | WidthByParameter, params: Mapping[str, object]) -> Width:
    """The width of a trial with these parameters.

    Raises:
        ValueError: If the parameter is missing or no number of devices.
    """
    if isinstance(rule, FixedWidth):
        return rule.width
    if rule.name not in params:
        raise ValueError(f"The trial has no parameter {rule.name!r}, which says how wide it is.")
    return width_of_number(params[rule.name])


def parts_of(share: float) -> int:
    """`0.25` in parts of a device; at least one."""
    return max(1, round(share * WHOLE))


def parts_on(width: Width, device: Device) -> int | None:
    """Parts of each of its devices that a width takes; None if this one is too small."""
    match width:
        case Devices():
            return WHOLE
        case Share(parts=parts):
            # Of a whole GPU, of which the device may be a share.
            return parts * device.n_shares if parts * device.n_shares <= WHOLE else None
        case MemoryShare(memory_bytes=memory_bytes):
            if device.memory_bytes is None or memory_bytes > device.memory_bytes:
                return None
            return max(1, math.ceil(memory_bytes * WHOLE / device.memory_bytes))
        case _:
            assert_never(width)


def n_devices_of(width: Width) -> int:
    """Number of devices that it uses."""
    return width.n_devices if isinstance(width, Devices) else 1
