"""Reliability of a study's rungs: stored with trials, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from optuna.trial import FrozenTrial

from tuner.search.rungs.order.agreement import END, Agreement, RungTrust
from tuner.search.rungs.table import RungTable

TRUST_KEY = "tuner:rung_trust"
"""Attribute of a trial: how far the rungs could be trusted when it was stored."""


class _RungJson(TypedDict):
    step: int
    #: 0: the end of a training.
    later_step: int
    is_open: bool
    #: Trials after this one count.
    after: int
    n_trials: int
    n_concordant: int
    n_discordant: int


class TrustJson(TypedDict):
    """The stored form."""

    n_changes: int
    n_ended: int
    rungs: list[_RungJson]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRung:
    """A rung with its step."""

    step: int
    #: The step that it is compared with; None: the end of a training.
    later_step: int | None
    trust: RungTrust


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrust:
    """The rungs of a study, from the first on, at one time."""

    #: Number of times that a rung opened or closed.
    n_changes: int
    #: Trials that had completed.
    n_ended: int
    rungs: Sequence[KnownRung]

    @classmethod
    def of(
        cls, found: Sequence[RungTrust], table: RungTable, *, n_changes: int, n_ended: int
    ) -> StoredTrust:
        """Names the steps of the rungs of a table."""
        rungs = [
            KnownRung(
                step=table.step_of(index),
                later_step=None if each.later == END else table.step_at(each.later),
                trust=each,
            )
            for index, each in enumerate(found)
        ]
        return cls(n_changes=n_changes, n_ended=n_ended, rungs=rungs)

    def as_json(self) -> TrustJson:
        rungs: list[_RungJson] = [
            {
                "step": each.step,
                "later_step": each.later_step or 0,
                "is_open": each.trust.is_open,
                "after": each.trust.after,
                "n_trials": each.trust.agreement.n_trials,
                "n_concordant": each.trust.agreement.n_concordant,
                "n_discordant": each.trust.agreement.n_discordant,
            }
            for each in self.rungs
        ]
        return {"n_changes": self.n_changes, "n_ended": self.n_ended, "rungs": rungs}

    @classmethod
    def from_json(cls, stored: TrustJson) -> StoredTrust:
        steps = [each["step"] for each in stored["rungs"]]
        rungs = [_known(each, steps) for each in stored["rungs"]]
        return cls(n_changes=stored["n_changes"], n_ended=stored["n_ended"], rungs=rungs)

    @property
    def age(self) -> tuple[int, int]:
        """The greater, the newer."""
        return self.n_changes, self.n_ended


def newest_trust(stored: Iterable[TrustJson]) -> StoredTrust | None:
    """The newest of some notes; None without any."""
    newest = max(stored, key=lambda each: (each["n_changes"], each["n_ended"]), default=None)
    return None if newest is None else StoredTrust.from_json(newest)


def last_open_step(trials: Iterable[FrozenTrial]) -> int:
    """The step of the last open rung, by the newest note with the trials; 0 without any.

    What trials report until then says nothing of their end, or the opposite.
    """
    attributes = (each.system_attrs for each in trials)
    trust = newest_trust(each[TRUST_KEY] for each in attributes if TRUST_KEY in each)
    return max((r.step for r in trust.rungs if r.trust.is_open), default=0) if trust else 0


def _known(stored: _RungJson, steps: Sequence[int]) -> KnownRung:
    later_step = stored["later_step"] or None
    agreement = Agreement(
        n_trials=stored["n_trials"],
        n_concordant=stored["n_concordant"],
        n_discordant=stored["n_discordant"],
    )
    trust = RungTrust(
        is_open=stored["is_open"],
        after=stored["after"],
        later=END if later_step is None else _place(later_step, steps),
        agreement=agreement,
    )
    return KnownRung(step=stored["step"], later_step=later_step, trust=trust)


def _place(step: int, steps: Sequence[int]) -> float:
    """The rung at a step; k + 0.5 between rung k and the next."""
    n_before = sum(each < step for each in steps)
    return n_before if step in steps else n_before - 0.5


def trust_text(trust: StoredTrust) -> str:
    """Describes how far the rungs can be trusted, by the last open one; empty if unknown.

    For example: "the order at step 2 agrees with the order at the end in 31 % of pairs (12 trials):
    the first rung is now step 6".
    """
    if not trust.rungs:
        return ""
    known = [each for each in trust.rungs if not math.isnan(each.trust.agreement.share)]
    # The last one: others before it may have opened with it.
    opened = [each for each in known if each.trust.is_open]
    shown = next(iter([*reversed(opened), *known]), None)
    if shown is None:
        return ""
    share = shown.trust.agreement.share
    later = "at the end" if shown.later_step is None else f"at step {shown.later_step}"
    text = (
        f"the order of trials at step {shown.step} agrees with the order {later} in {share:.0%} "
        f"of pairs ({shown.trust.agreement.n_trials} trials)"
    )
    return f"{text}: {_consequence(trust)}" if any(r.trust.is_open for r in trust.rungs) else text


def trust_sentence(trust: StoredTrust | None) -> str:
    """The same as a sentence; empty if unknown."""
    text = trust_text(trust) if trust is not None else ""
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _consequence(trust: StoredTrust) -> str:
    is_open = [each.trust.is_open for each in trust.rungs]
    if all(is_open):
        return "every trial continues at each rung"
    first = trust.rungs[is_open.index(False)].step
    if is_open[0]:
        return f"the first rung is now step {first}"
    steps = ", ".join(str(each.step) for each in trust.rungs if each.trust.is_open)
    return f"every trial continues at step {steps}"
