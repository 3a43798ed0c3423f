"""Messages about shares: who has a device, and why it is returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.devices.allocation.width import WHOLE
from tuner.shares.claims import Claim
from tuner.shares.people import Census, shown_name
from tuner.shares.rules import EVERYBODY
from tuner.shares.terms import Decision, Move, Standing

_NO_USE = ": no trial of this study needs it now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The guarantee that a user has, perhaps together with others. Amounts are in parts."""

    name: str
    guaranteed: int = 0
    #: By all its users.
    held: int = 0
    n_users: int = 1


def accounts_of(census: Census, decision: Decision) -> dict[int, Account]:
    """The account of each user with requests."""
    held: Counter[str] = Counter()
    n_users: Counter[str] = Counter()
    for uid, person in census.people.items():
        n_users[person.account] += 1
        held[person.account] += decision.standings.get(uid, Standing()).held
    return {
        uid: Account(
            name=person.account,
            guaranteed=census.guarantees.get(person.account, 0),
            held=held[person.account],
            n_users=n_users[person.account],
        )
        for uid, person in census.people.items()
    }


def amount_text(parts: int) -> str:
    """Number of devices as text: `2`, `0.29`."""
    return f"{round(parts / WHOLE, 2):g}"


def keeper_text(keeper: Claim | None, decision: Decision, accounts: Mapping[int, Account]) -> str:
    """Why this tuner does not have a device.

    Args:
        keeper: Its holder or next holder; None if there is none.
        decision: The current assignment.
        accounts: Accounts by user.
    """
    if keeper is None:
        return "it is beyond the part of your user"
    name = shown_name(keeper.uid)
    return f"{name} has it (pid {keeper.pid}; {_standing(keeper.uid, decision, accounts)})"


def move_text(
    move: Move, decision: Decision, people: Mapping[str, int], accounts: Mapping[int, Account]
) -> str:
    """For whom a device is returned, and why."""
    if move.taker is None:
        return "given back, as your user has more devices than max_per_user allows"
    taker, giver = people[move.taker], people[move.giver]
    if taker == giver:
        own = "given back to a study of your own"
        why = _NO_USE if move.is_spare else " with more priority, or whose turn it is"
        return f"{own}{why}"
    name = shown_name(taker)
    if move.is_by_right:
        return f"given back to {name}, who has {_standing(taker, decision, accounts)}"
    if move.is_spare:
        return f"given back to {name}{_NO_USE}"
    theirs, yours = decision.standings[taker], decision.standings[giver]
    return (
        f"given back to {name}, who has {amount_text(theirs.held)} of a part of "
        f"{amount_text(theirs.part)}; you have {amount_text(yours.held)} of a part of "
        f"{amount_text(yours.part)}"
    )


def waits_text(
    own: Claim,
    claims: Sequence[Claim],
    decision: Decision,
    accounts: Mapping[int, Account],
    uid: int,
) -> str:
    """What a study waits for: `ann has 1 of 2 guaranteed, you borrow 1 that ann asked back`.

    Args:
        own: The claim of the study.
        claims: Claims of all tuners of the machine.
        decision: The current assignment.
        accounts: Accounts by user.
        uid: The user to address.

    Returns:
        Empty if the study has all that it could use.
    """
    if len(own.holds) >= own.wants and not own.leaving:
        return ""
    holding = {
        claim.uid: None
        for claim in claims
        if claim.name != own.name and _has_of(claim, own, decision)
    }
    said = [
        f"{shown_name(each)} has {_standing(each, decision, accounts)}"
        for each in holding
        if each != own.uid
    ]
    is_you = own.uid == uid
    who = "you" if is_you else shown_name(own.uid)
    n_theirs = sum(len(each.holds) for each in claims if each.uid == own.uid) - len(own.holds)
    if own.uid in holding and n_theirs:
        others = "your other studies" if is_you else f"other studies of {who}"
        said.append(f"{others} have {n_theirs}")
    takers = {each.taker for each in decision.moves if each.giver == own.name}
    asking = {claim.uid for claim in claims if claim.name in takers} - {own.uid}
    if own.leaving and asking:
        names = " and ".join(shown_name(each) for each in sorted(asking))
        borrow = "borrow" if is_you else "borrows"
        said.append(f"{who} {borrow} {len(own.leaving)} that {names} asked back")
    else:
        found = decision.standings.get(own.uid, Standing())
        has, whose = ("have", "your") if is_you else ("has", "the")
        held, part = amount_text(found.held), amount_text(found.part)
        said.append(f"{who} {has} {held}, {whose} part is {part}")
    return ", ".join(said)


def _has_of(claim: Claim, own: Claim, decision: Decision) -> bool:
    """Whether a tuner has, or is to have, a device that another could use."""
    return bool({*claim.holds, *decision.allotted.get(claim.name, ())} & set(own.suits))


def _standing(uid: int, decision: Decision, accounts: Mapping[int, Account]) -> str:
    held = decision.standings[uid].held if uid in decision.standings else 0
    account = accounts.get(uid, Account(name=EVERYBODY))
    if not account.guaranteed:
        return f"{amount_text(held)}, none of them guaranteed"
    guaranteed = _of_guaranteed(account)
    if account.n_users == 1:
        return guaranteed
    return f"{amount_text(held)} ({account_text(account.name)}: {guaranteed})"


def _of_guaranteed(account: Account) -> str:
    borrowed = max(0, account.held - account.guaranteed)
    more = f" and borrows {amount_text(borrowed)}" if borrowed else ""
    by_right = amount_text(min(account.held, account.guaranteed))
    return f"{by_right} of {amount_text(account.guaranteed)} guaranteed{more}"


def account_text(name: str) -> str:
    """Whose guarantee it is: `ann`, `@vision`, `all others`."""
    return "all others" if name == EVERYBODY else name
