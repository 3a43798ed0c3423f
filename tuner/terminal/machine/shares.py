"""Output of `tuner shares`, and shares in the output of `tuner devices`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tuner.devices.device import gpu_of_share, share_number
from tuner.devices.table import DeviceRow
from tuner.shares.report import HeldDevice, MachineShares, UserShare, read_good_shares
from tuner.shares.words import account_text
from tuner.terminal.tables import table

_HEADER = ("user", "guaranteed", "has", "borrows", "waits for", "part now", "day", "week")


def shares_text(shares: MachineShares) -> str:
    """A line for each user, and one for each device; hours are device-hours."""
    lines = [f"rules: {shares.file}"]
    if shares.guaranteed:
        listed = (f"{account_text(name)} {_amount(n)}" for name, n in shares.guaranteed.items())
        lines.append(f"guaranteed now: {', '.join(listed)}")
    if not shares.users:
        lines.append("No tuner has claimed a device of this machine.")
    else:
        rows = [
            (
                each.user,
                _guaranteed(each),
                _amount(each.held),
                _amount(each.borrowed),
                _amount(each.waits_for),
                _amount(each.part),
                f"{each.day_device_hours:.1f} h",
                f"{each.week_device_hours:.1f} h",
            )
            for each in shares.users
        ]
        lines.append(table(_HEADER, rows))
    lines += [f"{each.device_id}: {held_text(each)}" for each in shares.devices]
    return "\n".join([*lines, *shares.warnings])


def _guaranteed(user: UserShare) -> str:
    is_own = user.account in (user.user, str(user.uid))
    of = "" if is_own or not user.guaranteed else f" ({account_text(user.account)})"
    return _amount(user.guaranteed) + of


def held_text(device: HeldDevice) -> str:
    """`ann, borrowed, given back soon (pid 7)`."""
    how = "borrowed" if device.is_borrowed else "by right"
    leaving = ", given back soon" if device.is_leaving else ""
    return f"{device.user}, {how}{leaving} (pid {device.pid})"


def rows_with_shares(
    read: Callable[[], Sequence[DeviceRow]],
    environ: Mapping[str, str],
    say: Callable[[str], object],
) -> Callable[[], list[DeviceRow]]:
    """Reads devices with their users.

    Args:
        read: Reads the devices.
        environ: The process's environment.
        say: Shows, once, that the rules of the machine are invalid.
    """
    say_once = cache(say)
    return lambda: with_shares(read(), read_good_shares(environ, say_once))


def with_shares(rows: Sequence[DeviceRow], shares: MachineShares | None) -> list[DeviceRow]:
    """Device rows, with the users who hold devices by the rules of the machine."""
    held: dict[str, list[HeldDevice]] = {}
    for each in shares.devices if shares else ():
        held.setdefault(gpu_of_share(each.device_id), []).append(each)
    return [
        replace(row, holders=_holders(held[row.id], row.holders), is_free=False)
        if row.id in held
        else row
        for row in rows
    ]


def _holders(devices: Sequence[HeldDevice], before: str) -> str:
    other = "" if before.startswith("another tuner") else before
    return "; ".join(filter(None, [*map(_share_text, devices), other]))


def _share_text(device: HeldDevice) -> str:
    is_share = gpu_of_share(device.device_id) != device.device_id
    share = f"share {share_number(device.device_id)}: " if is_share else ""
    return share + held_text(device)


def _amount(devices: float) -> str:
    return f"{round(devices, 2):g}"
