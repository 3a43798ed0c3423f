"""GPUs that a machine's rules divide into equal shares, each a device of its own.

Trials of several users may share such a GPU, as under MIG, but without its isolation: torch limits
the memory, and a GPU error ends all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus, id_of_share
from tuner.devices.selection import GpuProbe

NumberOfShares = Mapping[str, int]
"""By index (`0`) or by the beginning of an id: into how many shares a GPU is divided."""


def shares_of(device: Device, n_shares: NumberOfShares) -> int:
    """Number of shares of a GPU; 1 if it is not divided."""
    if device.kind is not DeviceKind.GPU:
        return 1
    named = (n for name, n in n_shares.items() if is_named(device, name))
    return next(named, 1)


def is_named(device: Device, name: str) -> bool:
    """Whether an index or the beginning of an id means a device."""
    return name == str(device.index) if name.isdecimal() else device.id.startswith(name)


class DividedGpus:
    """The GPUs of a machine; divided ones are replaced by their shares.

    Args:
        probe: Reads the GPUs.
        n_shares: Number of shares of the divided ones.
        fits: Whether all trials of the study fit into a share. If not, the study cannot use that
            GPU.
        is_shared_now: Whether a tuner has a share of a GPU. Its processes are then those of other
            users' trials, and its other use is unknown.
    """

    def __init__(
        self,
        probe: GpuProbe,
        n_shares: NumberOfShares,
        fits: Callable[[Device], bool],
        is_shared_now: Callable[[DeviceId], bool],
    ) -> None:
        self._probe = probe
        self._is_shared_now = is_shared_now
        self._gpus = {device.id: device for device in probe.devices()}
        found: list[Device] = []
        left_out: list[str] = []
        for device in probe.devices():
            n = shares_of(device, n_shares)
            shares = _divide(device, n) if n > 1 else [device]
            if n > 1 and not fits(shares[0]):
                left_out.append(
                    f"{device.label} is divided into {n} shares by this machine's rules, and a "
                    "trial of this study does not fit into one."
                )
                continue
            found += shares
        self._devices = tuple(found)
        self._left_out = tuple(left_out)

    @property
    def cuda_visible_devices(self) -> str | None:
        return self._probe.cuda_visible_devices

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each GPU that cannot be used."""
        return (*self._probe.problems, *self._left_out)

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def status(self, device: Device) -> DeviceStatus:
        """Reads a device.

        Raises:
            DeviceError: If the GPU is gone.
        """
        if device.share_of is None:
            return self._probe.status(device)
        status = self._probe.status(self._gpus[device.share_of])
        if not self._is_shared_now(device.share_of):
            return status
        return replace(status, memory_used_bytes=None, holders=())

    def close(self) -> None:
        self._probe.close()


def _divide(device: Device, n_shares: int) -> list[Device]:
    size = device.memory_bytes
    return [
        replace(
            device,
            id=id_of_share(device.id, number),
            memory_bytes=None if size is None else size // n_shares,
            share_of=device.id,
            n_shares=n_shares,
        )
        for number in range(1, n_shares + 1)
    ]
