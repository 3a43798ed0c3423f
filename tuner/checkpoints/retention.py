"""Decides which trials' checkpoints are removed, from values, states and sizes alone.

Unfinished trials and the best ones are never candidates. A removed checkpoint can never be needed
again: an ended trial stays ended, and a beaten one stays beaten. A slightly outdated view of the
study therefore only keeps more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from tuner.domain.pareto_front import dominates, front_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """Which of its trials' checkpoints a study keeps.

    Args:
        n_best: Number of completed trials that keep theirs; None: every ended trial does.
        max_bytes: Maximum total size; None for no limit.
    """

    n_best: int | None = None
    max_bytes: int | None = None

    @property
    def keeps_all(self) -> bool:
        return self.n_best is None and self.max_bytes is None


class End(IntEnum):
    """How a trial ended, in order of removal."""

    FAILED = 0
    PRUNED = 1
    #: Completed, but a constraint does not hold.
    INFEASIBLE = 2
    COMPLETED = 3


class HasParams(Protocol):
    """What has parameters."""

    @property
    def params(self) -> Mapping[str, object]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTrial:
    """A trial that is over for good."""

    number: int
    end: End
    #: Seconds since the epoch.
    ended_at_s: float
    #: By objective, the smaller the better; empty if it did not complete.
    losses: tuple[float, ...] = ()
    #: In the database.
    trial_id: int = -1
    #: The trial itself, whose parameters are decoded on access.
    source: HasParams | None = None

    @property
    def params(self) -> Mapping[str, object]:
        return {} if self.source is None else self.source.params


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Trials that have ended, in the order in which their checkpoints may go."""

    #: All trials except the best, in order of removal.
    expendable: tuple[int, ...]
    #: Number of trials at the end of it that are feasible and complete.
    n_good: int
    #: The best one, or the Pareto front; lowest number of equal ones.
    best: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What to remove, and the remaining excess."""

    trials: tuple[int, ...]
    over_bytes: int = 0


def rank(ended: Iterable[EndedTrial]) -> Ranking:
    """Orders failed trials first, then pruned ones, the oldest first; then the worst completed.

    With several objectives: a trial is the worse, the more of the Pareto front are better in
    everything; then the first objective decides.
    """
    trials = sorted(ended, key=lambda trial: trial.number)
    good = [trial for trial in trials if trial.end is End.COMPLETED]
    front = _front(good)
    best = frozenset(trial.number for trial in front)

    def worst_first(trial: EndedTrial) -> tuple[float, ...]:
        n_better = sum(dominates(each.losses, trial.losses) for each in front)
        return (-n_better, *(-loss for loss in trial.losses), -trial.number)

    bad = sorted(
        (trial for trial in trials if trial.end is not End.COMPLETED),
        key=lambda trial: (trial.end, trial.ended_at_s),
    )
    beaten = sorted((trial for trial in good if trial.number not in best), key=worst_first)
    return Ranking(
        expendable=tuple(trial.number for trial in (*bad, *beaten)),
        n_good=len(beaten),
        best=best,
    )


def choose(
    ranking: Ranking,
    sizes: Mapping[int, int],
    rule: RetentionRule,
    *,
    stuck: Collection[int] = (),
) -> Removal:
    """Chooses what to remove: all that the rule does not keep, and more above the size limit.

    Args:
        ranking: The ended trials.
        sizes: Bytes by trial, for all that have checkpoints. A trial that is not in the ranking is
            unfinished or unknown: it counts, but is not removed.
        rule: The study's rule.
        stuck: Trials whose checkpoints cannot be removed.
    """
    present = [each for each in ranking.expendable if each in sizes and each not in stuck]
    spared = _spared(ranking, rule.n_best)
    gone = [number for number in present if number not in spared]
    total = sum(sizes.values()) - sum(sizes[number] for number in gone)
    limit = total if rule.max_bytes is None else rule.max_bytes
    for number in present:
        if total <= limit:
            break
        if number in spared and sizes[number]:
            gone.append(number)
            total -= sizes[number]
    return Removal(trials=tuple(gone), over_bytes=max(0, total - limit))


def _spared(ranking: Ranking, n_best: int | None) -> frozenset[int]:
    """Trials that the rule keeps in addition to the best, as long as there is room."""
    if n_best is None:
        return frozenset(ranking.expendable)
    n_spared = min(ranking.n_good, max(0, n_best - len(ranking.best)))
    return frozenset(ranking.expendable[len(ranking.expendable) - n_spared :])


def _front(good: Sequence[EndedTrial]) -> list[EndedTrial]:
    """Non-dominated trials; all of equal ones, but for a single objective only one."""
    if good and len(good[0].losses) == 1:
        return [min(good, key=lambda trial: (trial.losses, trial.number))]
    return front_of(good, lambda trial: trial.losses)
