"""Sentences about shares: who has a device, and why one is given back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.devices.allocation.width import WHOLE
from tuner.shares.claims import Claim
from tuner.shares.people import shown_name
from tuner.shares.terms import Decision, Move, Standing

_NO_USE = ": no trial of this study needs it now"


def amount_text(parts: int) -> str:
    """Devices as people count them: `2`, `0.29`."""
    return f"{round(parts / WHOLE, 2):g}"


def keeper_text(
    keeper: Claim | None,
    decision: Decision,
    people: Mapping[str, int],
    guarantees: Mapping[int, int],
) -> str:
    """Why this tuner does not have a device.

    Args:
        keeper: Who has it or is to have it; None for nobody.
        decision: The present one.
        people: The user of each claim.
        guarantees: Parts guaranteed to each user's account.
    """
    if keeper is None:
        return "it is beyond the part of your user"
    name = shown_name(keeper.uid)
    return f"{name} has it (pid {keeper.pid}; {_standing(keeper.uid, decision, guarantees)})"


def move_text(
    move: Move, decision: Decision, people: Mapping[str, int], guarantees: Mapping[int, int]
) -> str:
    """For whom a device is given back, and why."""
    if move.taker is None:
        return "given back, as your user has more devices than max_per_user allows"
    taker, giver = people[move.taker], people[move.giver]
    if taker == giver:
        own = "given back to a study of your own"
        why = _NO_USE if move.is_spare else " with more priority, or whose turn it is"
        return f"{own}{why}"
    name = shown_name(taker)
    if move.is_by_right:
        return f"given back to {name}, who has {_standing(taker, decision, guarantees)}"
    if move.is_spare:
        return f"given back to {name}{_NO_USE}"
    theirs, yours = decision.standings[taker], decision.standings[giver]
    return (
        f"given back to {name}, who has {amount_text(theirs.held)} of a part of "
        f"{amount_text(theirs.part)}; you have {amount_text(yours.held)} of a part of "
        f"{amount_text(yours.part)}"
    )


def waits_text(
    own: Claim, claims: Sequence[Claim], decision: Decision, guarantees: Mapping[int, int], uid: int
) -> str:
    """What a study waits for: `ann has 1 of 2 guaranteed, you borrow 1 that ann asked back`.

    Args:
        own: The claim of the study.
        claims: Of all tuners of the machine.
        decision: The present one.
        guarantees: Parts guaranteed to each user's account.
        uid: The user who reads it.

    Returns:
        Empty where the study has all that it could use.
    """
    if len(own.holds) >= own.wants and not own.leaving:
        return ""
    holding = {
        claim.uid: None
        for claim in claims
        if claim.name != own.name and _has_of(claim, own, decision)
    }
    said = [
        f"{shown_name(each)} has {_standing(each, decision, guarantees)}"
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


def _standing(uid: int, decision: Decision, guarantees: Mapping[int, int]) -> str:
    held = decision.standings[uid].held if uid in decision.standings else 0
    guaranteed = guarantees.get(uid, 0)
    if guaranteed:
        borrowed = max(0, held - guaranteed)
        more = f" and borrows {amount_text(borrowed)}" if borrowed else ""
        return f"{amount_text(min(held, guaranteed))} of {amount_text(guaranteed)} guaranteed{more}"
    return f"{amount_text(held)}, none of them guaranteed"
