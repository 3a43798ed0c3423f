"""The `devices:` value of a study file, before the machine is read."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TypeGuard

_ALLOWED = "auto, all, cpu:N (such as cpu:4), or a list of GPU numbers and UUIDs (such as [0, 1])"
_MAX_SLOTS = 4096
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoDevices:
    """Every visible GPU that no other process uses; CPU slots if there is no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllDevices:
    """Every visible GPU, including those in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSlots:
    """So many CPU slots and no GPU."""

    n_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDevices:
    """These GPUs or MIG slices, by nvidia-smi's number or by (the beginning of) a UUID."""

    names: tuple[int | str, ...]


DeviceRequest = AutoDevices | AllDevices | CpuSlots | NamedDevices


def parse_device_request(value: object) -> DeviceRequest:
    """Parses the value of `devices:` from YAML.

    Raises:
        ValueError: If it is none of the allowed forms. The text starts with "is", to follow the
            name of the key.
    """
    if isinstance(value, list):
        return NamedDevices(names=_names(value))
    if value == "auto":
        return AutoDevices()
    if value == "all":
        return AllDevices()
    if isinstance(value, str) and value.startswith("cpu"):
        return CpuSlots(n_slots=_n_slots(value))
    if _is_name(value):
        raise ValueError(
            f"is {value}, which is not a list. To use that one device, write [{value}]."
        )
    raise ValueError(f"is {value!r}. Allowed: {_ALLOWED}.{_meant(value)}")


def _meant(value: object) -> str:
    """A correction for names that other programs use for a device."""
    found = re.fullmatch(r"(?:cuda|gpu)(?::?(\d{1,4}))?", str(value).lower())
    if found is None:
        return ""
    return " Write auto for every idle GPU." if found[1] is None else f" Write [{found[1]}]."


def _n_slots(text: str) -> int:
    slots = re.fullmatch(r"cpu:([0-9]{1,6})", text)
    if slots is None or not 1 <= int(slots[1]) <= _MAX_SLOTS:
        raise ValueError(
            f"is {text!r}, but cpu: needs a whole number from 1 to {_MAX_SLOTS}, as in cpu:4."
        )
    return int(slots[1])


def _names(values: list[object]) -> tuple[int | str, ...]:
    if not values:
        raise ValueError("is an empty list. Name at least one device as in [0], or write auto.")
    names = tuple(_name(value) for value in values)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"is a list that names {twice[0]} twice. Name each device once.")
    return names


def _name(value: object) -> int | str:
    if _is_name(value):
        return value
    allowed = (
        "Allowed in a list: GPU numbers as nvidia-smi shows them (0, 1, ...) and UUIDs that start "
        "with GPU- or MIG-."
    )
    if isinstance(value, str) and value.startswith("cpu"):
        allowed = f"{allowed} For two slots without a GPU, write devices: cpu:2."
    raise ValueError(f"is a list with {value!r} in it. {allowed}")


def _is_name(value: object) -> TypeGuard[int | str]:
    # YAML's `yes` and `true` are bools, which Python counts as ints.
    if isinstance(value, int) and not isinstance(value, bool):
        return value >= 0
    return isinstance(value, str) and _UUID.fullmatch(value) is not None
