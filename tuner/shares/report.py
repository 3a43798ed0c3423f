"""Shows the current assignment of a machine's devices, without a claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceId
from tuner.errors import ConfigError
from tuner.host.process_identity import pid_namespace
from tuner.shares.claims import Claim, read_claims
from tuner.shares.decision import decide
from tuner.shares.facts import Lie, all_held, sizes_of, with_locks
from tuner.shares.ledger import read_used
from tuner.shares.people import Census, Person, census, shown_name
from tuner.shares.rules import ShareRules, local_time, own_uid, read_rules, rules_file
from tuner.shares.seat import ask_of, folder_of
from tuner.shares.terms import Decision
from tuner.shares.words import accounts_of, waits_text


@dataclass(frozen=True, slots=True, kw_only=True)
class UserShare:
    """One user of the machine. Amounts are in devices."""

    user: str
    uid: int
    #: Whose guarantee it is: the user's own name, a group (`@vision`), or `*` for all others.
    account: str
    #: To the account, of which there may be other users.
    guaranteed: float
    held: float
    #: Amount beyond the guarantee.
    borrowed: float
    #: The share that the user may hold now.
    part: float
    #: Amount that the user's studies could use in addition.
    waits_for: float
    day_device_hours: float
    week_device_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """A device that a tuner holds."""

    device_id: DeviceId
    user: str
    uid: int
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
    #: By the rules of the moment: devices by user, group, or `*` for all others.
    guaranteed: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def read_shares(environ: Mapping[str, str], now_s: float | None = None) -> MachineShares | None:
    """Reads rules and claims; None if the machine is not divided.

    Raises:
        ConfigError: If the rules file is wrong.
    """
    path = rules_file(environ)
    rules = None if path is None else read_rules(path)
    if path is None or rules is None:
        return None
    at_s = time.time() if now_s is None else now_s
    return shares_of(rules.at(local_time(at_s)), path, at_s)


def read_good_shares(
    environ: Mapping[str, str], say: Callable[[str], object]
) -> MachineShares | None:
    """Like `read_shares`; if the rules file is invalid, shows this and returns None."""
    try:
        return read_shares(environ)
    except ConfigError as error:
        say(f"shares: {error}")
        return None


def shares_of(rules: ShareRules, path: Path, now_s: float) -> MachineShares:
    """The same with rules of the moment."""
    folder = folder_of(rules)
    read = read_claims(folder)
    claims, lies = with_locks(read.claims, folder, all_held(read.claims))
    used = read_used(folder, now_s)
    uids = frozenset(claim.uid for claim in claims) | frozenset(used)
    found = census(rules, uids)
    sizes = sizes_of(claims, rules.cpu_slots)
    decision = decide(list(map(ask_of, claims)), sizes, found, now_s)
    devices = held_devices(claims, found, sizes)
    users = [
        _user(found.people[uid], claims, decision, found, devices, used.get(uid, (0.0, 0.0)))
        for uid in sorted(uids)
    ]
    return MachineShares(
        file=str(path),
        users=tuple(users),
        devices=tuple(each for each, _ in devices),
        guaranteed=rules.guaranteed,
        warnings=(*read.warnings, *map(_lie_text, lies)),
    )


def _lie_text(lie: Lie) -> str:
    return (
        f"{shown_name(lie.claim.uid)} (pid {lie.claim.pid}) claims to have {lie.device_id}, which "
        f"process {lie.pid} keeps locked."
    )


def read_waits(
    environ: Mapping[str, str], pids: Collection[int], now_s: float | None = None
) -> list[str]:
    """What dispatchers of this machine wait for; empty if none waits for another user.

    Args:
        environ: The process's environment.
        pids: Pids of the dispatchers, as seen from here.
        now_s: Seconds UTC; None for the current time.
    """
    at_s = time.time() if now_s is None else now_s
    try:
        path = rules_file(environ)
        found = None if path is None or not pids else read_rules(path)
    except ConfigError:
        return ["shares: the rules of this machine cannot be read. Run: tuner shares check"]
    if found is None:
        return []
    rules = found.at(local_time(at_s))
    folder = folder_of(rules)
    read = read_claims(folder)
    claims, _ = with_locks(read.claims, folder, all_held(read.claims))
    people = census(rules, frozenset(claim.uid for claim in claims))
    sizes = sizes_of(claims, rules.cpu_slots)
    decision = decide(list(map(ask_of, claims)), sizes, people, at_s)
    accounts = accounts_of(people, decision)
    texts = (
        waits_text(each, claims, decision, accounts, own_uid())
        for each in claims
        if each.pid in pids and each.pid_namespace == pid_namespace()
    )
    return [f"waits: {text}" for text in texts if text]


def _user(
    person: Person,
    claims: Sequence[Claim],
    decision: Decision,
    found: Census,
    devices: Sequence[tuple[HeldDevice, int]],
    used: tuple[float, float],
) -> UserShare:
    own = [claim for claim in claims if claim.uid == person.uid]
    sizes = sizes_of(own)
    held = sum(sizes.get(device_id, WHOLE) for claim in own for device_id in claim.holds)
    waits = sum(max(0, claim.wants - len(claim.holds)) for claim in own)
    standing = decision.standings.get(person.uid)
    return UserShare(
        user=shown_name(person.uid),
        uid=person.uid,
        account=person.account,
        guaranteed=found.guarantees.get(person.account, 0) / WHOLE,
        held=held / WHOLE,
        borrowed=sum(parts for each, parts in devices if each.uid == person.uid) / WHOLE,
        part=(standing.part if standing else 0) / WHOLE,
        waits_for=float(waits),
        day_device_hours=used[0],
        week_device_hours=used[1],
    )


def held_devices(
    claims: Sequence[Claim], found: Census, sizes: Mapping[DeviceId, int]
) -> list[tuple[HeldDevice, int]]:
    """Each held device, and how many parts of it are borrowed.

    The first devices that an account's users got count as guaranteed.
    """
    left = dict(found.guarantees)
    held = (
        (since_s, device_id, claim)
        for claim in claims
        for device_id, since_s in claim.holds.items()
    )
    devices = []
    for _, device_id, claim in sorted(held, key=lambda each: each[:2]):
        account, parts = found.people[claim.uid].account, sizes.get(device_id, WHOLE)
        borrowed = parts - min(parts, left.get(account, 0))
        left[account] = left.get(account, 0) - parts + borrowed
        device = HeldDevice(
            device_id=device_id,
            user=shown_name(claim.uid),
            uid=claim.uid,
            pid=claim.pid,
            is_borrowed=borrowed > 0,
            is_leaving=device_id in claim.leaving,
        )
        devices.append((device, borrowed))
    return sorted(devices, key=lambda each: each[0].device_id)
