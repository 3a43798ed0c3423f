"""Out of memory, NaN and infinite values are said to be that, and not to be pruned or missing."""

from __future__ import annotations

import json
from datetime import timedelta

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from tests.integration.app.pages import figures, opened
from tests.integration.stored_studies import seeded
from tuner.app.data.outcome_words import ALL_WORDS
from tuner.app.data.page_data import look_at
from tuner.domain.attempt import Cause, Outcome
from tuner.queries.studies import read_objectives
from tuner.queries.trials.listing import Choice, read_trials

INF = float("inf")
LATER = seeded.NOW + timedelta(hours=1)


def add_infeasible(url: str) -> None:
    """Trial 0 completed; 1 ran out of memory, 2 and 3 gave NaN; 4 was pruned."""
    states = [TrialState.COMPLETE, *[TrialState.PRUNED] * 2, TrialState.FAIL, TrialState.PRUNED]
    trials = [
        create_trial(state=state, value=0.5 if state is TrialState.COMPLETE else None)
        for state in states
    ]
    seeded.add_study(url, "first", trials)
    dispatcher = seeded.add_dispatcher(url, "first", is_ended=True)
    ends = (
        (Outcome.COMPLETED, Cause.EXCEPTION),
        (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY),
        (Outcome.FAILED, Cause.NOT_A_NUMBER),
        (Outcome.FAILED, Cause.NOT_A_NUMBER),
        (Outcome.PRUNED, Cause.PRUNER),
    )
    for number, (outcome, cause) in enumerate(ends):
        seeded.add_attempt(url, dispatcher, number, outcome=outcome, cause=cause)


EXPECTED = ["completed", "out_of_memory", "not_a_number", "not_a_number", "pruned"]


def test_out_of_memory_and_nan_are_outcomes_everywhere(url: str) -> None:
    add_infeasible(url)
    look = look_at(url)
    trials = look.trials(look.studies()["first"])
    assert [ALL_WORDS[code] for code in trials.words.tolist()] == EXPECTED
    table = opened("trials").dataframe[0].value
    assert list(table["outcome"])[::-1] == [each.replace("_", " ") for each in EXPECTED]
    names = {
        each.get("name") for figure in figures(opened("convergence")) for each in figure["data"]
    }
    assert {"out of memory", "not a number", "pruned"} <= names
    page = opened("trials", state={"trial": 2})
    assert page.markdown[0].value.startswith("**Not a number**")
    leases = look.leases(look.studies()["first"], LATER)
    assert [ALL_WORDS[code] for code in leases.columns.words.tolist()] == EXPECTED


@pytest.mark.parametrize("word", EXPECTED)
def test_tuner_trials_chooses_by_the_same_words(url: str, word: str) -> None:
    add_infeasible(url)
    with seeded.looking(url) as connection:
        of = seeded.study_id(connection, "first")
        objectives = read_objectives(connection)[of]
        choice = Choice(states=frozenset({word}))
        found = read_trials(connection, of, objectives, choice, now=LATER)
    wanted = {number for number, each in enumerate(EXPECTED) if each == word}
    # What Optuna has as pruned is found as that, too.
    assert {trial.number for trial in found if trial.word == word} == wanted


def test_trials_that_report_only_infinite_values_are_named(url: str) -> None:
    reports = ({1: INF, 2: -INF}, {1: INF, 2: 0.5}, {1: 0.4}, {})
    trials = [create_trial(value=1.0, intermediate_values=each) for each in reports]
    seeded.add_study(url, "first", trials)
    page = opened("curves")
    said = [each.value for each in page.caption if "infinite" in each.value]
    assert said == ["Trial 0 reported only infinite values or NaN: no curve."]
    drawn = {number for each in figures(page)[0]["data"] for number in _numbers(each)}
    assert drawn == {1, 2}
    alone = opened("trials", state={"trial": 0})
    assert [each.value for each in alone.caption if "infinite" in each.value] == [
        "All 2 reported values of accuracy are infinite or NaN."
    ]
    seeded.add_study(url, "one", [create_trial(value=INF, intermediate_values={1: INF})])
    alone = opened("trials", study="one", state={"trial": 0})
    assert [each.value for each in alone.caption if "infinite" in each.value] == [
        "The only reported value of accuracy is infinite or NaN."
    ]


def _numbers(trace: dict[str, object]) -> list[int]:
    from tests.integration.app.charts import numbers_of

    data = trace.get("customdata")
    return [] if data is None else [int(each) for each in numbers_of(data)]


def test_a_study_of_infinite_values_has_no_best_and_says_why(url: str) -> None:
    seeded.add_study(url, "first", [create_trial(value=INF, intermediate_values={1: INF})] * 2)
    assert opened("best").info[0].value == (
        "There is no best configuration: 2 trials completed, but each returned an infinite value "
        "or NaN, or violates a constraint."
    )
    page = opened("curves")
    assert "Trials 0, 1 reported only infinite values or NaN: no curve." in [
        each.value for each in page.caption
    ]
    assert [each.value for each in page.info] == []
    (figure,) = figures(opened("convergence"))
    assert "value inf" in json.dumps(figure["data"])


def test_a_program_of_optuna_alone_that_fails_is_failed(url: str) -> None:
    study = optuna.create_study(storage=url, study_name="plain")
    study.optimize(lambda trial: float("nan"), n_trials=1)
    assert list(opened("trials").dataframe[0].value["outcome"]) == ["failed"]
