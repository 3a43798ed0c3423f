"""Waiting lines in front of a pool of four GPUs."""

from __future__ import annotations

from tests.fakes import a_gpu
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.queue import WaitingLine
from tuner.devices.allocation.width import WHOLE, Devices, Share, Width

TWO, FOUR, FIVE = (Devices(n_devices=n) for n in (2, 4, 5))
GPUS = tuple(a_gpu(index) for index in range(4))
HALF = Share(parts=WHOLE // 2)
MOST = Share(parts=WHOLE * 8 // 10)


def start(line: WaitingLine[str], pool: DevicePool, may_use=lambda item, device: True):
    return line.start_next(pool, name=str, may_use=may_use)


def start_all(line: WaitingLine[str], pool: DevicePool) -> dict[str, Lease]:
    started = {}
    while (one := start(line, pool)) is not None:
        started[one[0]] = one[1]
    return started


def a_line(*items: tuple[str, Width], patience: float = 1.0) -> WaitingLine[str]:
    line = WaitingLine[str](patience)
    for item, width in items:
        line.put(item, width)
    return line
