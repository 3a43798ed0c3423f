"""Which fault made an attempt necessary that did work again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.play import Struck
from tests.chaos.step_log import Repeated

UNKNOWN = "not known"
#: A fault ends an attempt by itself, unless it names another trial; these end none.
_HARMLESS = ("guardian", "database")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the faults of one kind cost."""

    n: int = 0
    n_attempts: int = 0
    n_steps: int = 0
    seconds: float = 0.0


def costs(
    struck: Sequence[Struck], repeated: Mapping[str, Iterable[Repeated]], began_at_s: float
) -> dict[str, Cost]:
    """By kind of fault.

    Args:
        struck: All faults, in their order.
        repeated: Attempts that began where others had ended, by study.
        began_at_s: When the faults' own clock was 0, in seconds since the epoch.
    """
    found = {kind: Cost(n=n) for kind, n in _counts(struck).items()}
    for study, each in ((study, one) for study, many in repeated.items() for one in many):
        kind = blame(struck, study, each, began_at_s)
        before = found.get(kind, Cost())
        found[kind] = Cost(
            n=before.n,
            n_attempts=before.n_attempts + 1,
            n_steps=before.n_steps + each.n_steps,
            seconds=before.seconds + each.seconds,
        )
    return found


def blame(struck: Sequence[Struck], study: str, repeated: Repeated, began_at_s: float) -> str:
    """The last fault between the two attempts that named the trial, or else its study."""
    between = [
        each
        for each in struck
        if each.study == study
        and repeated.after_s <= began_at_s + each.at_s + each.lasts_s
        and began_at_s + each.at_s <= repeated.at_s
        and not each.kind.startswith(_HARMLESS)
    ]
    named = [each for each in between if _number_in(each.victim) == repeated.trial]
    unnamed = [each for each in between if _number_in(each.victim) is None]
    return next((each.kind for each in reversed(named or unnamed)), UNKNOWN)


def _number_in(victim: str) -> int | None:
    """Of the trial that was struck, if it was one."""
    words = victim.replace(",", "").split()
    return int(words[1]) if words[0] == "trial" else None


def _counts(struck: Iterable[Struck]) -> dict[str, int]:
    kinds = [each.kind for each in struck]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}
