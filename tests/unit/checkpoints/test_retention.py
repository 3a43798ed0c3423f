"""Which checkpoints go: losers first, and never one that is needed."""

from __future__ import annotations

from collections.abc import Sequence

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.checkpoints.retention import (
    End,
    EndedTrial,
    Ranking,
    Removal,
    RetentionRule,
    choose,
    rank,
)


def ended(number: int, end: End, *losses: float) -> EndedTrial:
    return EndedTrial(number=number, end=end, ended_at_s=float(number), losses=losses)


#: The best is 4; 9 runs and 10 waits, so that they are not in here.
STUDY = (
    ended(0, End.COMPLETED, 3.0),
    ended(1, End.PRUNED),
    ended(2, End.FAILED),
    ended(3, End.COMPLETED, 2.0),
    ended(4, End.COMPLETED, 1.0),
    ended(5, End.FAILED),
    ended(6, End.INFEASIBLE, 0.0),
    ended(7, End.COMPLETED, 4.0),
    ended(8, End.PRUNED),
)
SIZES = dict.fromkeys(range(11), 10)


def test_order_is_failed_pruned_infeasible_and_then_the_worst() -> None:
    ranking = rank(reversed(STUDY))
    assert ranking == Ranking(expendable=(2, 5, 1, 8, 6, 7, 0, 3), n_good=3, best=frozenset({4}))


def test_of_several_objectives_those_go_first_that_more_of_the_front_beat() -> None:
    study = (
        ended(0, End.COMPLETED, 0.0, 3.0),
        ended(1, End.COMPLETED, 3.0, 0.0),
        ended(2, End.COMPLETED, 3.5, 3.5),  # Both beat it.
        ended(3, End.COMPLETED, 9.0, 1.0),  # Only one does, though its first loss is the worst.
    )
    ranking = rank(study)
    assert ranking == Ranking(expendable=(2, 3), n_good=2, best=frozenset({0, 1}))


@pytest.mark.parametrize(
    ("rule", "keeps_all"),
    [
        (RetentionRule(), True),
        (RetentionRule(n_best=1), False),
        (RetentionRule(max_bytes=1), False),
    ],
)
def test_rule_without_a_limit_keeps_all(rule: RetentionRule, keeps_all: bool) -> None:
    assert rule.keeps_all == keeps_all


@pytest.mark.parametrize(
    ("n_best", "gone"),
    [
        (None, ()),
        (1, (2, 5, 1, 8, 6, 7, 0, 3)),
        (2, (2, 5, 1, 8, 6, 7, 0)),
        (3, (2, 5, 1, 8, 6, 7)),
        (4, (2, 5, 1, 8, 6)),
        (99, (2, 5, 1, 8, 6)),
    ],
)
def test_best_few_are_kept(n_best: int | None, gone: tuple[int, ...]) -> None:
    assert choose(rank(STUDY), SIZES, RetentionRule(n_best=n_best)) == Removal(trials=gone)


@pytest.mark.parametrize(
    ("max_bytes", "gone", "over_bytes"),
    [
        (110, (), 0),
        (109, (2,), 0),
        (71, (2, 5, 1, 8), 0),
        (40, (2, 5, 1, 8, 6, 7, 0), 0),
        (30, (2, 5, 1, 8, 6, 7, 0, 3), 0),
        (25, (2, 5, 1, 8, 6, 7, 0, 3), 5),
    ],
)
def test_disk_is_made_free_by_losers_first(
    max_bytes: int, gone: tuple[int, ...], over_bytes: int
) -> None:
    removal = choose(rank(STUDY), SIZES, RetentionRule(max_bytes=max_bytes))
    assert removal == Removal(trials=gone, over_bytes=over_bytes)


def test_best_few_give_way_to_a_full_disk_but_the_best() -> None:
    removal = choose(rank(STUDY), SIZES, RetentionRule(n_best=3, max_bytes=45))
    assert removal == Removal(trials=(2, 5, 1, 8, 6, 7, 0), over_bytes=0)


def test_first_of_equals_is_the_best() -> None:
    equal = [ended(number, End.COMPLETED, 1.0) for number in (2, 0, 1)]
    assert rank(equal).best == {0}
    assert rank(equal).expendable == (2, 1)


def test_without_a_trial_nothing_goes() -> None:
    assert choose(rank([]), SIZES, RetentionRule(n_best=1, max_bytes=5)) == Removal(
        trials=(), over_bytes=105
    )


def test_what_cannot_be_removed_is_not_tried_again() -> None:
    removal = choose(rank(STUDY), SIZES, RetentionRule(max_bytes=100), stuck={2})
    assert removal.trials == (5,)


# -- any study -----------------------------------------------------------------------------------

VALUES = st.integers(-3, 3).map(float)


@st.composite
def studies(draw: st.DrawFn, n_objectives: int = 1) -> list[EndedTrial]:
    ends = draw(st.lists(st.sampled_from(End), max_size=12))
    return [
        ended(number, end, *draw(st.tuples(*[VALUES] * n_objectives)))
        if end >= End.INFEASIBLE
        else ended(number, end)
        for number, end in enumerate(ends)
    ]


RULES = st.builds(
    RetentionRule,
    n_best=st.none() | st.integers(1, 5),
    max_bytes=st.none() | st.integers(1, 60),
)
#: Also of trials that have not ended.
ALL_SIZES = st.dictionaries(st.integers(0, 15), st.integers(0, 20))


def best_of(study: Sequence[EndedTrial]) -> set[int]:
    """As Optuna finds them."""
    good = [trial for trial in study if trial.end is End.COMPLETED]
    if not good:
        return set()
    directions = ["minimize"] * len(good[0].losses)
    mirror = optuna.create_study(directions=directions)
    mirror.add_trials(
        [optuna.trial.create_trial(values=list(trial.losses), params={}) for trial in good]
    )
    best = mirror.best_trials if len(directions) > 1 else [mirror.best_trial]
    return {good[trial.number].number for trial in best}


@pytest.mark.slow
@given(study=studies() | studies(2), rule=RULES, sizes=ALL_SIZES)
def test_needed_and_best_stay_and_the_limit_holds_where_it_can(
    study: list[EndedTrial], rule: RetentionRule, sizes: dict[int, int]
) -> None:
    ranking = rank(study)
    removal = choose(ranking, sizes, rule)
    gone, over = set(removal.trials), {trial.number for trial in study}
    assert len(gone) == len(removal.trials)
    assert gone <= over & sizes.keys()
    assert not gone & ranking.best
    left = sum(size for number, size in sizes.items() if number not in gone)
    if rule.max_bytes is not None:
        assert removal.over_bytes == max(0, left - rule.max_bytes)
        if removal.over_bytes:
            removable = [n for n in sizes if n in over and n not in gone | ranking.best]
            assert not any(sizes[number] for number in removable)
    if rule.n_best is not None:
        good = [t.number for t in study if t.end is End.COMPLETED and t.number in sizes]
        assert len(set(good) - gone) <= max(rule.n_best, len(ranking.best))


@pytest.mark.slow
@given(study=studies() | studies(2))
def test_best_is_what_optuna_finds(study: list[EndedTrial]) -> None:
    assert rank(study).best == best_of(study)


@pytest.mark.slow
@given(study=studies() | studies(2))
def test_each_trial_is_either_expendable_or_best(study: list[EndedTrial]) -> None:
    ranking = rank(study)
    assert sorted([*ranking.expendable, *ranking.best]) == [trial.number for trial in study]


@given(study=studies(), later=studies(), rule=RULES, sizes=ALL_SIZES)
def test_what_an_old_view_removes_a_new_one_would_too(
    study: list[EndedTrial], later: list[EndedTrial], rule: RetentionRule, sizes: dict[int, int]
) -> None:
    n = len(study)
    new = [ended(trial.number + n, trial.end, *trial.losses) for trial in later]
    by_rule = RetentionRule(n_best=rule.n_best)
    old_view = set(choose(rank(study), sizes, by_rule).trials)
    assert old_view <= set(choose(rank([*study, *new]), sizes, by_rule).trials)


@pytest.mark.slow
@given(study=studies(), sizes=ALL_SIZES, max_bytes=st.integers(1, 60))
def test_losers_go_before_better_ones(
    study: list[EndedTrial], sizes: dict[int, int], max_bytes: int
) -> None:
    removal = choose(rank(study), sizes, RetentionRule(max_bytes=max_bytes))
    by_number = {trial.number: trial for trial in study}
    ends = [by_number[number].end for number in removal.trials]
    assert ends == sorted(ends)
    kept = [t.end for t in study if sizes.get(t.number) and t.number not in removal.trials]
    good_gone = End.COMPLETED in ends
    assert not good_gone or all(end is End.COMPLETED for end in kept)
