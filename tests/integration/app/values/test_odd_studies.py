"""Studies that nobody plans for: each page says of them what the database holds, and no more."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from tests.integration.app.pages import figures, opened
from tests.integration.stored_studies import seeded
from tuner.app.views.shell import escaped
from tuner.domain.attempt import Cause, Outcome
from tuner.errors import StoreError
from tuner.queries.locate import StoredStudy
from tuner.queries.results.best import load_best
from tuner.queries.status import read_status
from tuner.search.incumbent import Incumbent
from tuner.store.optuna_tables.statements import OBJECTIVES_ATTR
from tuner.terminal.studies import status_text

_X = {"x": FloatDistribution(0.0, 1.0)}


def captions(test) -> str:
    return "\n".join(each.value for each in test.main.caption)


def test_a_choice_that_is_none_is_no_parameter_that_is_absent(url: str) -> None:
    study = optuna.create_study(storage=url, study_name="none")
    study.enqueue_trial({"kind": None})
    study.enqueue_trial({"kind": "a", "x": 0.5})

    def objective(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["a", None])
        return trial.suggest_float("x", 0, 1) if kind else 0.0

    study.optimize(objective, n_trials=2)
    table = opened("trials").dataframe[0].value
    assert dict(zip(table["trial"], table["kind"], strict=True)) == {0: "None", 1: "a"}
    rows = opened("compare", trials="0,1").dataframe[1].value.set_index("")
    assert list(rows.loc["kind"]) == ["None", "a"]
    assert list(rows.loc["x"]) == ["", "0.5"]


def test_parameters_that_are_called_like_facts_and_differ_in_the_last_digit(url: str) -> None:
    space = {"outcome": FloatDistribution(0, 1), "duration": FloatDistribution(0, 1)}
    trials = [
        create_trial(value=1.0, params={"outcome": x, "duration": 0.5}, distributions=space)
        for x in (0.12345678, 0.12345679)
    ]
    seeded.add_study(url, "names", trials)
    rows = opened("compare", trials="0,1").dataframe[1].value.set_index("")
    assert list(rows.loc["outcome (parameter)"]) == ["0.12345678", "0.12345679"]
    assert list(rows.loc["outcome"]) == ["completed", "completed"]
    assert list(rows.loc["duration (parameter) (same)"]) == ["0.5", "0.5"]


def test_a_trial_page_shows_names_as_they_are_and_one_headline_for_each_objective(
    url: str,
) -> None:
    space = {"<b>lr</b> `x`": FloatDistribution(0, 1), "n" * 200: FloatDistribution(0, 1)}
    study = optuna.create_study(
        storage=url, study_name="several", directions=["minimize", "maximize"]
    )
    params = dict.fromkeys(space, 0.25)
    study.add_trial(create_trial(values=[0.5, 2.0], params=params, distributions=dict(space)))
    study.set_user_attr(OBJECTIVES_ATTR, ["loss <b>", "m" * 60])
    page = opened("trials", state={"trial": 0})
    headlines = {each.label: each.value for each in page.metric}
    assert headlines.pop("duration")
    assert headlines == {escaped("loss <b>"): "0.5", "m" * 60: "2"}
    (table,) = page.table
    assert list(table.value["parameter"]) == [escaped("<b>lr</b> `x`"), "n" * 200]
    assert list(table.value["value"]) == [escaped("0.25")] * 2


def test_a_trial_without_parameters_has_no_table_of_them(url: str) -> None:
    optuna.create_study(storage=url, study_name="bare").optimize(lambda _: 0.5, n_trials=1)
    page = opened("trials", state={"trial": 0})
    assert list(page.table) == []
    assert "None." in captions(page)


def test_a_trial_without_memory_violates_no_constraint(url: str) -> None:
    trials = [create_trial(value=0.5), create_trial(state=TrialState.PRUNED)]
    seeded.add_study(url, "memory", trials)
    dispatcher = seeded.add_dispatcher(url, "memory", is_ended=True)
    seeded.add_attempt(url, dispatcher, 0, outcome=Outcome.COMPLETED)
    seeded.add_attempt(url, dispatcher, 1, outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY)
    storage = optuna.storages.RDBStorage(url)
    (study,) = storage.get_all_studies()
    bad = storage.get_all_trials(study._study_id)[1]
    with storage.engine.begin() as connection:  # As the tuner keeps samplers away from it.
        connection.exec_driver_sql(
            "insert into trial_system_attributes (trial_id, key, value_json) "
            f"values ({bad._trial_id}, 'constraints:tuner:out_of_memory', '1.0')"
        )
    assert "infeasible" not in opened("trials").dataframe[0].value
    page = opened("trials", trial="1")
    assert page.markdown[0].value.startswith("**Out of memory**")
    assert not page.warning
    with storage.engine.begin() as connection:  # One of the study's own.
        connection.exec_driver_sql(
            "insert into trial_system_attributes (trial_id, key, value_json) "
            f"values ({bad._trial_id}, 'constraints:latency', '0.5')"
        )
    assert "violates a constraint" in opened("trials", trial="1").warning[0].value


def test_trials_that_optuna_runs_alone_are_not_called_stopped(url: str) -> None:
    study = optuna.create_study(storage=url, study_name="alone")
    study.ask()
    study.ask()
    (line,) = opened("studies").dataframe[0].value.to_dict("records")
    assert line["state"] == "unknown"
    assert line["why"] == (
        "2 trials are marked as running by a program without the tuner, which may be alive or not"
    )
    assert line["active time"] == ""
    page = opened("control")
    assert page.markdown[0].value.startswith("**Unknown**")
    spent = page.dataframe[0].value.set_index("budget")["spent"]
    assert dict(spent) == {
        "trials": "2",
        "time": "not recorded",
        "device-hours": "not recorded",
        "energy": "not recorded",
    }


def test_best_values_of_several_objectives_are_of_several_trials(url: str) -> None:
    trials = [create_trial(values=[1.0, 5.0]), create_trial(values=[3.0, 4.0])]
    seeded.add_study(
        url, "two", trials, directions=("minimize", "minimize"), objectives=("loss", "ms")
    )
    (line,) = opened("studies").dataframe[0].value.to_dict("records")
    assert line["best value"] == "each by itself: loss 1, ms 4"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "The study has no trial yet."),
        (TrialState.WAITING, "No trial has ended yet; 1 run or wait."),
    ],
)
def test_convergence_says_why_it_is_empty(url: str, state: TrialState | None, said: str) -> None:
    trials = [] if state is None else [create_trial(state=state)]
    seeded.add_study(url, "empty", trials)
    assert opened("convergence").info[0].value == said


def test_values_that_are_infinite_are_values(url: str) -> None:
    trials = [
        create_trial(value=value, params={"x": 0.5}, distributions=_X)
        for value in (math.inf, -math.inf, 2.0)
    ]
    seeded.add_study(url, "infinite", trials, directions=("maximize",))
    test = opened("metrics")
    assert "2 of 3 trials have no finite value of accuracy." in captions(test)
    assert list(opened("trials").dataframe[0].value["accuracy"]) == [2.0, -math.inf, math.inf]


def test_a_study_of_infinite_values_has_no_best_trial_anywhere(url: str) -> None:
    trials = [create_trial(value=value) for value in (math.inf, -math.inf)]
    seeded.add_study(url, "infinite", trials, directions=("minimize",))
    assert opened("best").info[0].value.startswith("There is no best configuration: 2 trials")
    assert list(opened("studies").dataframe[0].value["best value"]) == ["none yet"]
    with pytest.raises(StoreError, match="has no best trial: 2 completed, each with an infinite"):
        load_best(url)
    with seeded.looking(url) as connection:
        status = read_status(connection, StoredStudy(id=1, name="infinite"), None, seeded.NOW)
    assert "best: none, each completed trial has an infinite value" in status_text(
        status, seeded.NOW
    )
    study = optuna.load_study(study_name="infinite", storage=url)
    assert Incumbent(study, ["loss"], lambda _: {}).best is None
    study.add_trial(create_trial(value=3.0))
    # Optuna's own best trial is the one of minus infinity.
    best = Incumbent(study, ["loss"], lambda _: {}).best
    assert best is not None
    assert (best.number, best.values) == (2, {"loss": 3.0})
    assert load_best(url).trial_number == 2


def test_what_only_another_program_knows_is_not_called_zero(url: str) -> None:
    optuna.create_study(storage=url, study_name="plain").optimize(lambda _: 1.0, n_trials=2)
    with seeded.looking(url) as connection:
        status = read_status(connection, StoredStudy(id=1, name="plain"), None, seeded.NOW)
    assert "\nspent: 2 trials begun\n" in status_text(status, seeded.NOW)


def test_the_front_of_three_objectives_is_said_to_be_of_all(url: str) -> None:
    trials = [create_trial(values=each) for each in ([1, 2, 3], [2, 1, 3], [3, 3, 1])]
    names = ("a", "b", "c")
    seeded.add_study(url, "three", trials, directions=("minimize",) * 3, objectives=names)
    page = opened("convergence")
    assert "Pareto front: 3 trials" in [each.value for each in page.subheader]
    assert "Of all 3 objectives. The line joins" in captions(page)
    # Nothing was reported, and the study is over.
    assert opened("metrics", view="steps").info[0].value == (
        "No trial has reported a value at a step."
    )


def test_a_few_trials_have_a_tick_each(url: str) -> None:
    trials = [create_trial(value=float(each)) for each in range(11)]
    seeded.add_study(url, "few", trials[:3])
    seeded.add_study(url, "more", trials)
    ticks = {
        name: figures(opened("convergence", study=name))[0]["layout"]["xaxis"].get("dtick")
        for name in ("few", "more")
    }
    assert ticks == {"few": 1, "more": None}


def test_metrics_draws_nothing_where_there_is_nothing(url: str) -> None:
    seeded.add_study(url, "failed", [create_trial(state=TrialState.FAIL)])
    test = opened("metrics")
    assert "1 of 1 trials has no finite value of accuracy." in captions(test)
    assert figures(test) == []


def test_names_are_shown_character_by_character(url: str) -> None:
    name = "<b>loss</b><script>"
    trials = [create_trial(value=1.0, intermediate_values={1: 2.0}), create_trial(value=2.0)]
    seeded.add_study(url, "names", trials, directions=("minimize",), objectives=(name,))
    shown = "&lt;b>loss&lt;/b>&lt;script>"
    for page in ("convergence", "curves", "metrics"):
        title = figures(opened(page))[0]["layout"]["yaxis"]["title"]["text"]
        assert title.startswith(shown), page


def test_names_of_objectives_are_no_markdown(url: str) -> None:
    trials = [create_trial(value=0.5, params={"x": 0.5}, distributions=_X)] * 2
    seeded.add_study(url, "odd", trials, objectives=("loss $x$ _y_",))
    plain = r"loss \$x\$ \_y\_"
    assert opened("convergence").metric[0].label == f"best {plain}"
    assert opened("trials", trial="0").metric[0].value == f"{plain} 0.5"
    assert opened("best").main.markdown[0].value == f"Trial **0**: {plain} 0.5"


def test_the_direction_of_another_study_is_named_where_it_is_the_opposite(url: str) -> None:
    for name, direction in (("up", "maximize"), ("down", "minimize")):
        trials = [create_trial(value=value) for value in (1.0, 3.0, 2.0)]
        seeded.add_study(url, name, trials, directions=(direction,), objectives=("loss",))
    test = opened("convergence", study="down", beside="up")
    traces = {each.get("name"): each for each in figures(test)[0]["data"]}
    assert "best of up (maximize)" in traces
