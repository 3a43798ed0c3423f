"""How a machine is divided at this moment, for whoever asks; nothing is claimed for it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceId
from tuner.errors import ConfigError
from tuner.host.process_identity import pid_namespace
from tuner.shares.claims import Claim, read_claims
from tuner.shares.decision import decide
from tuner.shares.ledger import read_used
from tuner.shares.people import Census, census, shown_name
from tuner.shares.rules import ShareRules, local_time, own_uid, read_rules, rules_file
from tuner.shares.seat import ask_of, folder_of
from tuner.shares.sizes import sizes_of
from tuner.shares.terms import Decision
from tuner.shares.words import waits_text


@dataclass(frozen=True, slots=True, kw_only=True)
class UserShare:
    """One user of the machine. Amounts are in devices."""

    user: str
    uid: int
    guaranteed: float
    held: float
    #: Of these beyond the guarantee.
    borrowed: float
    #: What the user may have by the present decision.
    part: float
    #: What the user's studies could use beyond what they hold.
    waits_for: float
    day_device_hours: float
    week_device_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """A device that a tuner holds."""

    device_id: DeviceId
    user: str
    pid: int
    is_borrowed: bool
    #: Whether its trial saves, since another user gets it.
    is_leaving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShares:
    """The users and the devices of a machine."""

    file: str
    users: tuple[UserShare, ...]
    devices: tuple[HeldDevice, ...]
    warnings: tuple[str, ...] = ()


def read_shares(environ: Mapping[str, str], now_s: float | None = None) -> MachineShares | None:
    """Reads rules and claims; None where the machine is not divided.

    Raises:
        ConfigError: If the rules file is wrong.
    """
    path = rules_file(environ)
    rules = None if path is None else read_rules(path)
    if path is None or rules is None:
        return None
    at_s = time.time() if now_s is None else now_s
    return shares_of(rules.at(local_time(at_s)), path, at_s)


def shares_of(rules: ShareRules, path: Path, now_s: float) -> MachineShares:
    """The same with rules of the moment."""
    folder = folder_of(rules)
    read = read_claims(folder)
    used = read_used(folder, now_s)
    uids = frozenset(claim.uid for claim in read.claims) | frozenset(used)
    found = census(rules, uids)
    decision = decide([ask_of(each) for each in read.claims], sizes_of(read.claims), found, now_s)
    guarantees = _guarantees(found)
    users = [
        _user(uid, read.claims, decision, guarantees[uid], used.get(uid, (0.0, 0.0)))
        for uid in sorted(uids)
    ]
    return MachineShares(
        file=str(path),
        users=tuple(users),
        devices=tuple(_devices(read.claims, guarantees)),
        warnings=read.warnings,
    )


def read_waits(
    environ: Mapping[str, str], pids: Collection[int], now_s: float | None = None
) -> list[str]:
    """For what dispatchers of this machine wait; empty where none waits for another user.

    Args:
        environ: The process's environment.
        pids: Of the dispatchers, as seen from here.
        now_s: Seconds UTC; None for the present.
    """
    at_s = time.time() if now_s is None else now_s
    try:
        path = rules_file(environ)
        found = None if path is None or not pids else read_rules(path)
    except ConfigError:
        return []  # `tuner shares check` says it.
    if found is None:
        return []
    rules = found.at(local_time(at_s))
    claims = read_claims(folder_of(rules)).claims
    people = census(rules, frozenset(claim.uid for claim in claims))
    decision = decide(list(map(ask_of, claims)), sizes_of(claims), people, at_s)
    guarantees = _guarantees(people)
    texts = (
        waits_text(each, claims, decision, guarantees, own_uid())
        for each in claims
        if each.pid in pids and each.pid_namespace == pid_namespace()
    )
    return [f"waits: {text}" for text in texts if text]


def _guarantees(found: Census) -> dict[int, int]:
    """Parts that are guaranteed to each user's account."""
    return {uid: found.guarantees.get(each.account, 0) for uid, each in found.people.items()}


def _user(
    uid: int,
    claims: tuple[Claim, ...],
    decision: Decision,
    guaranteed: int,
    used: tuple[float, float],
) -> UserShare:
    own = [claim for claim in claims if claim.uid == uid]
    sizes = sizes_of(own)
    held = sum(sizes.get(device_id, WHOLE) for claim in own for device_id in claim.holds)
    waits = sum(max(0, claim.wants - len(claim.holds)) for claim in own)
    standing = decision.standings.get(uid)
    return UserShare(
        user=shown_name(uid),
        uid=uid,
        guaranteed=guaranteed / WHOLE,
        held=held / WHOLE,
        borrowed=max(0, held - guaranteed) / WHOLE,
        part=(standing.part if standing else 0) / WHOLE,
        waits_for=float(waits),
        day_device_hours=used[0],
        week_device_hours=used[1],
    )


def _devices(claims: tuple[Claim, ...], guarantees: Mapping[int, int]) -> list[HeldDevice]:
    """The devices that a user got first are those by right."""
    sizes = sizes_of(claims)
    left = dict(guarantees)
    held = (
        (since_s, device_id, claim)
        for claim in claims
        for device_id, since_s in claim.holds.items()
    )
    found = []
    for _, device_id, claim in sorted(held, key=lambda each: each[:2]):
        left[claim.uid] -= sizes.get(device_id, WHOLE)
        found.append(
            HeldDevice(
                device_id=device_id,
                user=shown_name(claim.uid),
                pid=claim.pid,
                is_borrowed=left[claim.uid] < 0,
                is_leaving=device_id in claim.leaving,
            )
        )
    return sorted(found, key=lambda each: each.device_id)
