"""Sentences about shares: who has a device, and why one is given back."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.devices.allocation.width import WHOLE
from tuner.shares.claims import Claim
from tuner.shares.decision import Decision, Move
from tuner.shares.people import shown_name


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
        return "your user has more devices than max_per_user allows"
    taker, giver = people[move.taker], people[move.giver]
    if taker == giver:
        return "given back to a study of your own with more priority, or whose turn it is"
    name = shown_name(taker)
    if move.is_by_right:
        return f"given back to {name}, who has {_standing(taker, decision, guarantees)}"
    return (
        f"given back to {name}, whose part is {amount_text(decision.standings[taker].part)} "
        f"devices; yours is {amount_text(decision.standings[giver].part)}"
    )


def _standing(uid: int, decision: Decision, guarantees: Mapping[int, int]) -> str:
    held = decision.standings[uid].held if uid in decision.standings else 0
    guaranteed = guarantees.get(uid, 0)
    if guaranteed:
        borrowed = max(0, held - guaranteed)
        more = f" and borrows {amount_text(borrowed)}" if borrowed else ""
        return f"{amount_text(min(held, guaranteed))} of {amount_text(guaranteed)} guaranteed{more}"
    return f"{amount_text(held)}, none of them guaranteed"
