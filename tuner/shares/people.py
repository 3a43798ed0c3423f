"""Users of a machine: their names, groups and rules.

A user is a user id. Names are for messages and the rules file; in two containers, one name may
belong to two users, and a user may have no name.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from tuner.devices.allocation.width import WHOLE
from tuner.shares.rules import EVERYBODY, ShareRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """One user under the rules. Amounts are in parts of a device (`WHOLE` is one)."""

    uid: int
    #: Whose guarantee this user shares: `ann`, `@vision` or `*`.
    account: str
    weight: float = 1.0
    #: None for no limit.
    most_parts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The current rules, for the users with requests."""

    people: Mapping[int, Person]
    #: Parts by account.
    guarantees: Mapping[str, int] = field(default_factory=dict)
    hold_s: float = 120.0


NamesOf = Callable[[int], tuple[str, ...]]
"""Names of a user in the rules file: the name, the id and the groups, in that order."""


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str | None:
    """None if the name is unknown on this machine or in this container."""
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return None


def shown_name(uid: int) -> str:
    """`ann`; `user id 1001` without a name."""
    return user_name(uid) or f"user id {uid}"


@lru_cache(maxsize=1024)
def names_of(uid: int) -> tuple[str, ...]:
    """The user's own names, then `@group` of each group by name and by id."""
    name = user_name(uid)
    if name is None:
        return (str(uid),)
    groups = []
    with suppress(KeyError, OSError):
        groups = os.getgrouplist(name, pwd.getpwnam(name).pw_gid)
    known = [f"@{each}" for gid in groups for each in (_group_name(gid), str(gid)) if each]
    return (name, str(uid), *known)


def forget_names() -> None:
    """Clears the cache: groups may change together with the rules."""
    user_name.cache_clear()
    names_of.cache_clear()


def _group_name(gid: int) -> str | None:
    with suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return None


def is_known_here(name: str) -> bool:
    """Whether a name of the rules file means a user or a group of this machine."""
    return name == EVERYBODY or name.lstrip("@").isdecimal() or id_here(name) is not None


def id_here(name: str) -> int | None:
    """The user or group id of a name in the rules file on this machine; None if unknown."""
    with suppress(KeyError):
        is_group = name.startswith("@")
        return grp.getgrnam(name[1:]).gr_gid if is_group else pwd.getpwnam(name).pw_uid
    return None


def census(rules: ShareRules, uids: frozenset[int], names: NamesOf = names_of) -> Census:
    """Looks users up in the current rules.

    Args:
        rules: The current rules (`ShareRules.at`).
        uids: Users with requests.
        names: Returns the names of a user.
    """
    people = {uid: _person(rules, uid, names(uid)) for uid in uids}
    guarantees = {name: round(amount * WHOLE) for name, amount in rules.guaranteed.items()}
    return Census(people=people, guarantees=guarantees, hold_s=rules.hold)


def _person(rules: ShareRules, uid: int, names: tuple[str, ...]) -> Person:
    most = None if rules.max_per_user is None else round(rules.max_per_user * WHOLE)
    return Person(
        uid=uid,
        account=_entry(rules.guaranteed, names) or EVERYBODY,
        weight=rules.weights.get(_entry(rules.weights, names) or "", 1.0),
        most_parts=most,
    )


def _entry(amounts: Mapping[str, float], names: tuple[str, ...]) -> str | None:
    """The entry for a user: the user's own, else the first group in the file, else `*`."""
    own = next((name for name in names if not name.startswith("@") and name in amounts), None)
    if own is not None:
        return own
    groups = (name for name in amounts if name.startswith("@") and name in names)
    return next(groups, EVERYBODY if EVERYBODY in amounts else None)
