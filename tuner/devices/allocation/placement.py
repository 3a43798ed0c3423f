"""Chooses the devices for a trial: well connected ones, without breaking groups for wider trials.

It only chooses among free devices; it never makes a trial wait. Several devices come from one
NVLink island if possible, else from one NUMA node, else they are of one type. At each of these
levels, the group with the fewest free devices that are enough is taken (best fit), so that a single
trial uses an island that is already broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from tuner.devices.device import Device, DeviceId

_Level: TypeAlias = Callable[[Device], int | str | None]


def index_order(device: Device) -> tuple[int, DeviceId]:
    """The order of devices wherever there is one; MIG slices of one GPU share its index."""
    return (device.index, device.id)


def _island(device: Device) -> int | None:
    return device.island


def _numa_node(device: Device) -> int | None:
    return device.numa_node


def _type(device: Device) -> str:
    return device.name


_LEVELS: tuple[_Level, ...] = (_island, _numa_node, _type)


def choose_devices(n_devices: int, free: Sequence[Device]) -> tuple[Device, ...]:
    """Whole devices for one trial, in index order; empty if too few are free.

    Args:
        n_devices: At least 1.
        free: The free devices, in index order.
    """
    if len(free) < n_devices:
        return ()
    return tuple(sorted(_best(n_devices, free, _LEVELS), key=index_order))


def choose_shared(rooms: Iterable[tuple[int, Device]]) -> Device | None:
    """The device for a share: the fullest shared one that has room.

    Args:
        rooms: Room in parts, and the device; only devices with enough room.
    """
    fullest = min(rooms, key=lambda each: (each[0], index_order(each[1])), default=None)
    return fullest[1] if fullest else None


def _best(n_devices: int, free: Sequence[Device], levels: tuple[_Level, ...]) -> Iterable[Device]:
    for depth, level in enumerate(levels, start=1):
        if group := _smallest_that_suffices(n_devices, free, level):
            return _best(n_devices, group, levels[depth:])
    if n_devices == 1:
        return free[:1]  # They are alike by now.
    return islice(_largest_groups_first(free, _LEVELS), n_devices)


def _smallest_that_suffices(
    n_devices: int, free: Sequence[Device], level: _Level
) -> Sequence[Device]:
    groups, loose = _groups(free, level)
    if n_devices == 1 and loose:
        # They can be no part of a group, so a single trial on one of them breaks none.
        return loose
    enough = (group for group in groups if len(group) >= n_devices)
    return min(enough, key=len, default=())


def _largest_groups_first(free: Sequence[Device], levels: tuple[_Level, ...]) -> Iterator[Device]:
    """An order in which the first devices are on few islands, and there on few NUMA nodes."""
    if not levels:
        yield from free
        return
    groups, loose = _groups(free, levels[0])
    for group in (*sorted(groups, key=len, reverse=True), loose):
        yield from _largest_groups_first(group, levels[1:])


def _groups(free: Sequence[Device], level: _Level) -> tuple[list[list[Device]], list[Device]]:
    """The groups of a level, the one with the lowest index first; and the devices in no group."""
    groups: dict[int | str | None, list[Device]] = {}
    for device in free:
        groups.setdefault(level(device), []).append(device)
    loose = groups.pop(None, [])
    return list(groups.values()), loose
