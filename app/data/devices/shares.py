"""Shares of the dashboard's own machine, if its devices are divided among users."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.shares.report import MachineShares, read_good_shares
from tuner.shares.words import account_text


def machine_shares(
    environ: Mapping[str, str], say: Callable[[str], object]
) -> MachineShares | None:
    """None if nothing is divided, no tuner has a device, or the rules are invalid."""
    shares = read_good_shares(environ, say)
    return shares if shares is not None and shares.users else None


def users_table(shares: MachineShares) -> dict[str, list[object]]:
    """Columns of a table; amounts are devices."""
    users = shares.users
    return {
        "user": [each.user for each in users],
        "guaranteed": [each.guaranteed for each in users],
        "to": [account_text(each.account) if each.guaranteed else "" for each in users],
        "has": [each.held for each in users],
        "borrows": [each.borrowed for each in users],
        "waits for": [each.waits_for for each in users],
        "part now": [each.part for each in users],
        "device-hours, last day": [round(each.day_device_hours, 1) for each in users],
        "device-hours, last week": [round(each.week_device_hours, 1) for each in users],
    }
