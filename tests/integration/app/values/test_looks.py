"""What pages say of studies that were stopped, are odd, large or of several objectives."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from tests.integration.app.pages import figures, opened
from tests.integration.stored_studies import seeded
from tuner.domain.attempt import Outcome

_X = {"x": FloatDistribution(0.0, 1.0)}


def captions(test) -> str:
    return "\n".join(each.value for each in test.main.caption)


def metrics(test) -> dict[str, str]:
    return {each.label: each.value for each in test.metric}


def points(x: float, *values: float, **more: object):
    return create_trial(values=list(values), params={"x": x}, distributions=_X, **more)


@pytest.fixture
def killed(url: str) -> str:
    """A study whose dispatcher died during a trial, 30 s after that began."""
    running = create_trial(state=TrialState.RUNNING, intermediate_values={1: 0.3})
    seeded.add_study(url, "killed", [running, create_trial(value=0.5)])
    dispatcher = seeded.add_dispatcher(url, "killed")
    seeded.add_attempt(url, dispatcher, 0, outcome=None)
    return url


def test_a_trial_whose_dispatcher_died_does_not_run_on(killed: str) -> None:
    table = opened("trials").dataframe[0].value.set_index("trial")
    assert table["outcome"][0] == "abandoned"
    assert table["duration (s)"][0] == 30
    traces = [each.get("name") for each in figures(opened("curves"))[0]["data"]]
    assert "abandoned (1)" in traces


def test_the_page_of_such_a_trial_says_what_to_do(killed: str) -> None:
    test = opened("trials", trial="0")
    assert test.markdown[0].value == (
        "**Abandoned**: The dispatcher that ran it died\\. No dispatcher runs the study\\: start "
        "it again, and the trial is resumed\\."
    )
    assert metrics(test)["duration"] == "30 s"
    assert any(each.value.startswith("**abandoned** on") for each in test.markdown)
    assert "abandoned on" in test.code[-1].value
    assert "attempt 1: its dispatcher died" in test.code[-1].value


def test_a_trial_whose_dispatcher_lives_runs(url: str) -> None:
    seeded.add_study(url, "lives", [create_trial(state=TrialState.RUNNING)])
    dispatcher = seeded.add_dispatcher(url, "lives", is_alive=True)
    seeded.add_attempt(url, dispatcher, 0, outcome=None)
    table = opened("trials").dataframe[0].value.set_index("trial")
    assert table["outcome"][0] == "running"
    assert table["duration (s)"][0] > 1e6  # Of 2026-03-01, until now.


def test_short_trials_take_some_time(url: str) -> None:
    study = optuna.create_study(storage=url, study_name="short")
    study.optimize(lambda trial: 1.0, n_trials=1)
    assert metrics(opened("trials", trial="0"))["duration"].endswith(" s")
    assert "." in metrics(opened("trials", trial="0"))["duration"]


def test_reports_of_several_objectives_are_on_another_page(url: str) -> None:
    seeded.add_study(
        url,
        "two",
        [points(0.5, 1.0, 2.0)],
        directions=("minimize", "minimize"),
        objectives=("loss", "ms"),
    )
    seeded.add_attempt(url, seeded.add_dispatcher(url, "two", is_ended=True), 0)
    assert "keeps no curve of several objectives" in opened("curves").info[0].value
    figure = figures(opened("metrics", view="steps"))[0]
    assert figure["layout"]["yaxis"]["title"]["text"] == "loss"
    assert figure["layout"]["xaxis"]["title"]["text"] == "step (as reported)"
    headings = [each.value for each in opened("convergence").subheader]
    assert "Pareto front: 1 trial" in headings


def test_a_study_that_is_over_reports_nothing_any_more(url: str) -> None:
    seeded.add_study(url, "over", [create_trial(value=1.0)])
    assert opened("curves").info[0].value == "No trial has reported a value at a step."
    seeded.add_study(url, "on", [create_trial(state=TrialState.RUNNING)])
    page = opened("curves", study="on")
    assert page.info[0].value == "No trial has reported a value at a step yet."


def test_completed_trials_that_no_figure_of_parameters_shows_are_counted(url: str) -> None:
    trials = [
        points(0.1, 1.0),
        points(0.2, 2.0),
        points(0.3, math.inf),
        points(0.4, 0.1, constraints={"size": 1.0}),
    ]
    seeded.add_study(url, "some", trials)
    assert captions(opened("parameters")).splitlines()[1] == (
        "2 of 4 trials: those that are completed, except 1 infeasible and 1 without a finite value."
    )
    assert "100.0 % of the range of all finite values of completed trials" in captions(
        opened("best")
    )
    names = [each.get("name") for each in figures(opened("convergence"))[0]["data"]]
    assert {"completed", "completed, infeasible"} <= set(names)


def test_three_hundred_parameters_leave_room_for_the_other_figures(url: str) -> None:
    space = {f"x{number:03}": FloatDistribution(0.0, 1.0) for number in range(300)}
    trials = [
        create_trial(
            value=place / 10,
            params={name: (place * 7 + at) % 10 / 10 for at, name in enumerate(space)},
            distributions=dict(space),
        )
        for place in range(10)
    ]
    seeded.add_study(url, "wide", trials)
    test = opened("parameters")
    assert "The 20 most important of 300 parameters." in captions(test)
    assert "Drawn: the 10 most important of 300 parameters." in captions(test)
    importance, parallel = figures(test)
    assert len(importance["data"][0]["y"]) == 20
    assert len(parallel["data"][0]["dimensions"]) == 11
    assert importance["layout"]["height"] < 800


def test_small_shares_are_not_nothing(url: str) -> None:
    values = [1e-200, 2e-200, 1e100, *[1.0] * 8]
    trials = [points(x / 10, value) for x, value in enumerate(values)]
    seeded.add_study(url, "tiny", trials, directions=("minimize",))
    assert "less than 0.1 % of the range" in captions(opened("best", study="tiny"))


def test_a_waiting_trial_of_a_program_of_optuna_waits_for_that(url: str) -> None:
    study = optuna.create_study(storage=url, study_name="alone")
    study.enqueue_trial({"x": 0.5})
    said = opened("trials", trial="0").markdown[0].value
    assert said.startswith("**Waiting**: It was enqueued")
    assert "the program that runs it takes this trial next" in said
    assert "dispatcher" not in said


def test_studies_name_dispatchers_not_users(url: str) -> None:
    seeded.add_study(url, "works", [create_trial(value=1.0)])
    seeded.add_dispatcher(url, "works", is_alive=True)
    (line,) = opened("studies").dataframe[0].value.to_dict("records")
    assert "(pid " in line["dispatchers"]
    assert "user" not in line


def test_metrics_of_steps_that_an_attempt_repeats_are_void(url: str) -> None:
    """The first attempt reported steps 1 and 2 of `loss`; the second one begins at step 1."""
    trial = create_trial(value=1.0, intermediate_values={1: 0.5})
    seeded.add_study(url, "again", [trial], objectives=("accuracy",))
    dispatcher = seeded.add_dispatcher(url, "again", is_ended=True)
    seeded.add_attempt(url, dispatcher, 0, outcome=Outcome.PAUSED)
    seeded.add_attempt(url, dispatcher, 0, number=2)
    with seeded.writing(url) as connection:
        connection.exec_driver_sql(
            "delete from tuner_metrics where step = 2 and attempt_id = "
            "(select max(id) from tuner_attempts)"
        )
        connection.exec_driver_sql("update tuner_metrics set value = 7 where step = 2")
    shown = {
        each["layout"]["yaxis"]["title"]["text"]: each["data"][0]["x"]
        for each in figures(opened("trials", trial="0"))
        if each["layout"]["yaxis"]["title"]["text"] == "loss"
    }
    assert shown == {"loss": [1]}
