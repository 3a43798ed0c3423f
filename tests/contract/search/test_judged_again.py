"""Trials that passed a rung are judged there again, with those that came since.

The rungs are steps 2, 6, 18; halfway from the first to the second is step 4. Three trials that were
compared there show whether the order at the first rung holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.contract.search.halving_study import searches
from tests.databases import new_database
from tuner.config import Direction
from tuner.domain.messages import Action
from tuner.search.pruners.asha import AshaPruner
from tuner.search.scheduler import Verdict
from tuner.search.study import StudySearch


@pytest.fixture
def url(tmp_path: Path) -> str:
    return new_database(tmp_path)


@pytest.fixture
def search(url: str) -> Iterator[StudySearch]:
    with searches(url, auto) as (view,):
        yield view


def auto() -> AshaPruner:
    return AshaPruner(min_resource=2, mode="stop", check_order=True)


def begin(search: StudySearch, value: float) -> tuple[int, Verdict]:
    """A new trial reports at the first rung."""
    trial = search.ask()
    assert trial is not None
    return trial.trial_id, report(search, trial.trial_id, 2, value)


def report(search: StudySearch, trial_id: int, step: int, value: float) -> Verdict:
    verdict = search.report(trial_id, step, {"accuracy": value})
    if verdict.action is Action.PRUNE:
        search.prune(trial_id)
    return verdict


def pass_as_first(search: StudySearch, value: float) -> int:
    trial_id, verdict = begin(search, value)
    assert verdict.action is Action.CONTINUE
    return trial_id


def use_up_witnesses(search: StudySearch) -> None:
    """The first weak trial is trained on to check the order; later ones end."""
    assert begin(search, 0.05)[1].action is Action.CONTINUE
    assert begin(search, 0.04)[1].action is Action.PRUNE


def better_ones_come(search: StudySearch, *halfway: float) -> None:
    """Two trials pass the first rung, the second as the best, and report halfway."""
    for value, later in zip((0.6, 0.7), halfway, strict=True):
        trial_id = pass_as_first(search, value)
        assert report(search, trial_id, 4, later).action is Action.CONTINUE


def test_the_first_to_come_ends_halfway_once_better_ones_have_come(search: StudySearch) -> None:
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    better_ones_come(search, 0.61, 0.71)
    assert report(search, first, 3, 0.5).action is Action.CONTINUE
    verdict = report(search, first, 4, 0.55)
    assert verdict.action is Action.PRUNE
    assert verdict.reason == (
        "at rung 0 (step 2), accuracy 0.5 is below 0.7, the limit of the best 1 in 3 of the 5 "
        "trials at this rung, compared again halfway to the next"
    )


def test_it_continues_if_it_is_still_among_the_best_third(search: StudySearch) -> None:
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    better_ones_come(search, 0.61, 0.71)
    for _ in range(4):
        assert begin(search, 0.1)[1].action is Action.PRUNE
    assert report(search, first, 4, 0.55).action is Action.CONTINUE


@pytest.mark.parametrize("halfway", [(0.71, 0.61), (0.4, 0.3)])
def test_it_continues_unless_the_order_holds_so_far(
    search: StudySearch, halfway: tuple[float, float]
) -> None:
    """Of three trials, all pairs agree, or else the order may be random."""
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    better_ones_come(search, *halfway)
    assert report(search, first, 4, 0.55).action is Action.CONTINUE


def test_it_continues_while_too_few_trials_tell(search: StudySearch) -> None:
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    for value in (0.6, 0.7):
        assert begin(search, value)[1].action is Action.CONTINUE
    assert report(search, first, 4, 0.5).action is Action.CONTINUE


def test_it_is_compared_with_those_that_come_until_its_next_rung(search: StudySearch) -> None:
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    assert report(search, first, 4, 0.5).action is Action.CONTINUE
    better_ones_come(search, 0.61, 0.71)
    assert report(search, first, 5, 0.5).action is Action.PRUNE


def test_a_program_that_reports_rarely_is_judged_again_at_its_next_report(
    search: StudySearch,
) -> None:
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    better_ones_come(search, 0.61, 0.71)
    assert report(search, first, 5, 0.5).action is Action.PRUNE


def test_a_trial_at_its_last_step_completes(search: StudySearch) -> None:
    """Twelve steps, as the first trial has shown; halfway from the second rung on is step 11."""
    first = pass_as_first(search, 0.5)
    search.report(first, 6, {"accuracy": 0.5})
    use_up_witnesses(search)
    others = [pass_as_first(search, value) for value in (0.6, 0.7, 0.8)]
    for trial_id, value in zip(others, (0.6, 0.7, 0.8), strict=True):
        for step in (4, 6, 11):
            assert report(search, trial_id, step, value).action is Action.CONTINUE
    search.complete(others[-1], {"accuracy": 0.8})
    last = max(search.study.get_trials()[-1].intermediate_values)
    assert last == 11
    assert report(search, first, 11, 0.5).action is Action.CONTINUE


def test_a_witness_ends_halfway_if_the_order_holds(search: StudySearch) -> None:
    pass_as_first(search, 0.5)
    witness, verdict = begin(search, 0.05)
    assert verdict.action is Action.CONTINUE
    assert report(search, witness, 4, 0.05).action is Action.CONTINUE, "too few trials tell"
    better_ones_come(search, 0.61, 0.71)
    assert report(search, witness, 5, 0.05).action is Action.PRUNE


def test_a_witness_of_many_trials_that_train_is_trained_to_its_end(search: StudySearch) -> None:
    pass_as_first(search, 0.5)
    for _ in range(8):
        search.ask()
    witness, verdict = begin(search, 0.05)
    assert verdict.action is Action.CONTINUE
    better_ones_come(search, 0.61, 0.71)
    for step in (4, 5):
        assert report(search, witness, step, 0.05).action is Action.CONTINUE


def test_it_is_no_witness(search: StudySearch) -> None:
    """Another one is due; but a contradiction would take all that are judged again."""
    first = pass_as_first(search, 0.5)
    better_ones_come(search, 0.61, 0.71)
    assert report(search, first, 4, 0.5).action is Action.PRUNE
    assert begin(search, 0.05)[1].action is Action.CONTINUE


def test_another_dispatcher_and_a_later_start_judge_it_likewise(url: str) -> None:
    with searches(url, auto, n=2) as (one, other):
        first = pass_as_first(one, 0.5)
        use_up_witnesses(one)
        flush(one)
        other.sync()
        for value in (0.6, 0.7):
            trial_id = pass_as_first(other, value)
            assert report(other, trial_id, 6, value).action is Action.CONTINUE
        flush(other)
        one.sync()
        # Halfway its own values count alone, and at the next rung those of the other two.
        assert report(one, first, 4, 0.5).action is Action.CONTINUE
        trial_id = pass_as_first(other, 0.8)
        assert report(other, trial_id, 6, 0.8).action is Action.CONTINUE
        flush(other)
    with searches(url, auto) as (later,):
        assert report(later, first, 5, 0.5).action is Action.PRUNE


def flush(search: StudySearch) -> None:
    search.study._storage.flush()  # type: ignore[attr-defined]


def test_a_loss_is_told_as_it_was_reported(url: str) -> None:
    with searches(url, auto, direction=Direction.MINIMIZE) as (search,):
        first = pass_as_first(search, 0.5)
        for value in (0.9, 0.91):
            begin(search, value)
        for value in (0.3, 0.2):
            report(search, pass_as_first(search, value), 4, value)
        reason = report(search, first, 4, 0.4).reason
        assert reason.startswith("at rung 0 (step 2), accuracy 0.5 is above 0.2, the limit of ")


def test_without_a_checked_order_it_is_as_in_optuna(url: str) -> None:
    with searches(url, partial(AshaPruner, min_resource=2, mode="stop")) as (search,):
        first = pass_as_first(search, 0.5)
        better_ones_come(search, 0.61, 0.71)
        assert [report(search, first, step, 0.5).action for step in (3, 4, 5)] == [
            Action.CONTINUE
        ] * 3


def test_trials_that_pause_are_compared_at_rungs_only(url: str) -> None:
    pausing = partial(AshaPruner, min_resource=2, mode="promote", check_order=True)
    with searches(url, pausing) as (search,):
        assert [begin(search, value)[1].action for value in (0.3, 0.4)] == [
            Action.CONTINUE,  # the witness
            Action.PAUSE,
        ]
        first = pass_as_first(search, 0.9)
        for value in (0.95, 0.96, 0.97):
            trial_id, verdict = begin(search, value)
            if verdict.action is Action.CONTINUE:
                report(search, trial_id, 4, value)
        for step in (4, 5):
            assert report(search, first, step, 0.9).action is Action.CONTINUE
