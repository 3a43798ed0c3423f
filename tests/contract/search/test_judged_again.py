"""Trials that passed a rung are judged there again, with those that came since.

The rungs are steps 2, 6, 18; halfway from the first to the second is step 4.
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
from tuner.search.rungs.order import witnesses
from tuner.search.scheduler import Verdict
from tuner.search.study import StudySearch


@pytest.fixture(autouse=True)
def one_of_the_first_trials_is_a_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the tenth or a later one, so that few trials tell."""
    monkeypatch.setattr(witnesses, "_FIRST", 1)


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


def test_the_first_to_come_ends_halfway_once_better_ones_have_come(search: StudySearch) -> None:
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    for value in (0.6, 0.7):
        assert begin(search, value)[1].action is Action.CONTINUE
    assert report(search, first, 3, 0.5).action is Action.CONTINUE
    verdict = report(search, first, 4, 0.99)
    assert verdict.action is Action.PRUNE
    assert verdict.reason == (
        "at rung 0 (step 2), accuracy 0.5 is below 0.7, the limit of the best 1 in 3 of the 5 "
        "trials at this rung, compared again halfway to the next"
    )


def test_what_it_has_reached_since_does_not_count(search: StudySearch) -> None:
    """Others that ended at the rung have no value there."""
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    assert begin(search, 0.4)[1].action is Action.PRUNE
    assert report(search, first, 4, 0.01).action is Action.CONTINUE


def test_it_is_compared_with_those_that_come_until_its_next_rung(search: StudySearch) -> None:
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    assert report(search, first, 4, 0.5).action is Action.CONTINUE
    for value in (0.6, 0.7):
        assert begin(search, value)[1].action is Action.CONTINUE
    assert report(search, first, 5, 0.5).action is Action.PRUNE


def test_a_trial_at_its_last_step_completes(search: StudySearch) -> None:
    """Ten steps, as the first trial has shown; halfway from the second rung on is step 11."""
    best = pass_as_first(search, 0.9)
    report(search, best, 6, 0.9)
    report(search, best, 12, 0.9)
    search.complete(best, {"accuracy": 0.9})
    second = pass_as_first(search, 0.91)
    use_up_witnesses(search)
    assert report(search, second, 6, 0.91).action is Action.CONTINUE
    for value in (0.95, 0.96):
        other, _ = begin(search, value)
        assert report(search, other, 6, value).action is Action.CONTINUE
    assert report(search, second, 12, 0.91).action is Action.CONTINUE


def test_a_program_that_reports_rarely_is_judged_again_at_its_next_report(
    search: StudySearch,
) -> None:
    first = pass_as_first(search, 0.5)
    use_up_witnesses(search)
    for value in (0.6, 0.7):
        begin(search, value)
    assert report(search, first, 5, 0.5).action is Action.PRUNE


def test_a_witness_is_trained_on_to_the_next_rung(search: StudySearch) -> None:
    pass_as_first(search, 0.5)
    witness, verdict = begin(search, 0.05)
    assert verdict.action is Action.CONTINUE
    assert begin(search, 0.4)[1].action is Action.PRUNE
    assert report(search, witness, 4, 0.05).action is Action.CONTINUE
    assert report(search, witness, 5, 0.05).action is Action.CONTINUE


def test_it_is_no_witness(search: StudySearch) -> None:
    """Another one is due; but a contradiction would take all that are judged again."""
    first = pass_as_first(search, 0.5)
    for value in (0.6, 0.7):
        assert begin(search, value)[1].action is Action.CONTINUE
    assert report(search, first, 4, 0.5).action is Action.PRUNE
    assert begin(search, 0.05)[1].action is Action.CONTINUE


def test_none_is_judged_again_where_trials_have_become_worse(search: StudySearch) -> None:
    """An early order that may be wrong has no second say."""
    leader = pass_as_first(search, 0.8)
    use_up_witnesses(search)
    begin(search, 0.5)
    first = pass_as_first(search, 0.85)
    report(search, leader, 4, 0.01)
    for value in (0.9, 0.95):
        assert begin(search, value)[1].action is Action.CONTINUE
    assert report(search, first, 4, 0.85).action is Action.CONTINUE


def test_another_dispatcher_and_a_later_start_judge_it_likewise(url: str) -> None:
    with searches(url, auto, n=2) as (one, other):
        first = pass_as_first(one, 0.5)
        use_up_witnesses(one)
        flush(one)
        other.sync()
        for value in (0.6, 0.7):
            assert begin(other, value)[1].action is Action.CONTINUE
        flush(other)
    with searches(url, auto) as (later,):
        assert report(later, first, 4, 0.5).action is Action.PRUNE


def flush(search: StudySearch) -> None:
    search.study._storage.flush()  # type: ignore[attr-defined]


def test_a_loss_is_told_as_it_was_reported(url: str) -> None:
    with searches(url, auto, direction=Direction.MINIMIZE) as (search,):
        first = pass_as_first(search, 0.5)
        for value in (0.9, 0.91):
            begin(search, value)
        for value in (0.3, 0.2):
            assert begin(search, value)[1].action is Action.CONTINUE
        reason = report(search, first, 4, 0.1).reason
        assert reason.startswith("at rung 0 (step 2), accuracy 0.5 is above 0.2, the limit of ")


def test_without_a_checked_order_it_is_as_in_optuna(url: str) -> None:
    with searches(url, partial(AshaPruner, min_resource=2, mode="stop")) as (search,):
        first = pass_as_first(search, 0.5)
        for value in (0.6, 0.7):
            begin(search, value)
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
        passed = pass_as_first(search, 0.9)
        for value in (0.95, 0.96):
            begin(search, value)
        assert report(search, passed, 4, 0.9).action is Action.CONTINUE
