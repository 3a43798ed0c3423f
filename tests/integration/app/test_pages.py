"""Every page on databases of every kind, run by Streamlit without a browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from streamlit.testing.v1 import AppTest

from tests.integration.app.charts import numbers_of
from tests.integration.app.devices.device_week import add_week
from tests.integration.app.pages import TIMEOUT_S, figures, fine, opened
from tests.integration.app.population_study import SPACE, add_population
from tests.integration.stored_studies import seeded
from tuner.app.data.page_data import look_at
from tuner.monitoring.dashboard_process import DATABASE_VARIABLE, STUDY_VARIABLE

MAIN = Path(__file__).parents[3] / "app" / "main.py"
PAGES = (
    *("studies", "convergence", "curves", "metrics", "parameters"),
    *("trials", "compare", "devices", "best", "control"),
)
FLOAT = optuna.distributions.FloatDistribution(0, 1)


def seed(url: str, kind: str) -> None:
    match kind:
        case "empty":
            seeded.add_study(url, "empty", [])
        case "one trial":
            seeded.add_study(url, "one", [create_trial(value=0.5)])
        case "waiting":
            seeded.add_study(url, "waiting", [create_trial(state=TrialState.WAITING)])
        case "failed":
            failed = [create_trial(state=TrialState.FAIL)] * 3
            seeded.add_study(url, "failed", failed)
            of = seeded.add_dispatcher(url, "failed", is_ended=True)
            for number in range(3):
                seeded.add_attempt(url, of, number, outcome=seeded.Outcome.FAILED)
        case "two objectives":
            trials = [create_trial(values=[float(i), -float(i % 3)]) for i in range(9)]
            seeded.add_study(
                url,
                "two",
                [*trials, create_trial(state=TrialState.FAIL)],
                directions=("maximize", "minimize"),
                objectives=("accuracy", "latency"),
            )
        case "three objectives":
            seeded.add_study(
                url,
                "three",
                [create_trial(values=[1.0, float(i), 2.0]) for i in range(3)],
                directions=("maximize", "minimize", "minimize"),
                objectives=("accuracy", "latency", "size"),
            )
        case "two hosts":
            seeded.add_first_study(url)
            other = seeded.add_dispatcher(url, "first", host="elsewhere")
            seeded.add_attempt(url, other, 1)
        case "of Optuna alone":
            trials = [
                create_trial(value=0.1 * i, params={"x": 0.1}, distributions={"x": FLOAT})
                for i in range(5)
            ]
            seeded.add_study(url, "plain", trials, space=None)


KINDS = (
    *("no study", "empty", "one trial", "waiting", "failed", "two objectives"),
    *("three objectives", "two hosts", "of Optuna alone"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_page_shows_every_kind_of_study(url: str, kind: str) -> None:
    seed(url, kind)
    for page in PAGES:
        opened(page)


def test_the_whole_dashboard_begins_with_the_studies(url: str) -> None:
    seeded.add_first_study(url)
    test = fine(AppTest.from_file(str(MAIN), default_timeout=TIMEOUT_S).run())
    assert [each.value for each in test.title] == ["Studies"]
    assert list(test.dataframe[0].value["study"]) == ["convergence?study=first"]
    assert test.query_params["study"] == "first"


def test_the_address_names_the_study(url: str) -> None:
    seeded.add_first_study(url, "first")
    seeded.add_study(url, "second", [])
    test = AppTest.from_file(str(MAIN), default_timeout=TIMEOUT_S)
    test.query_params["study"] = "first"
    assert fine(test.run()).selectbox(key="study").value == "first"


def test_the_study_file_names_the_study(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded.add_first_study(url, "first")
    seeded.add_study(url, "second", [])
    assert opened("studies").selectbox(key="study").value == "second"
    monkeypatch.setenv(STUDY_VARIABLE, "first")
    assert opened("studies").selectbox(key="study").value == "first"


@pytest.mark.parametrize("axis", ["wall time", "device-hours"])
def test_convergence_against_every_axis(url: str, axis: str) -> None:
    seeded.add_first_study(url)
    test = opened("convergence")
    test.segmented_control[0].set_value(axis)
    for toggle in test.main.toggle:
        toggle.set_value(True)
    fine(test.run())
    assert test.metric[0].value == "0.9"


def test_convergence_beside_another_study_and_with_a_forecast(url: str) -> None:
    seeded.add_study(url, "old", [create_trial(value=float(i)) for i in range(30)])
    seeded.add_study(url, "new", [create_trial(value=0.1 * i) for i in range(30)])
    test = opened("convergence")
    test.main.selectbox[0].set_value("old")
    test.main.toggle(key="forecast").set_value(True)
    assert "the budget is open" in fine(test.run()).main.caption[1].value
    (figure,) = figures(test)
    assert [each["name"] for each in figure["data"]] == ["completed", "best of old", "best so far"]


def test_a_study_of_another_objective_is_not_drawn_on_this_axis(url: str) -> None:
    trials = [create_trial(value=1.0 / (i + 1)) for i in range(5)]
    seeded.add_study(url, "other", trials, directions=("minimize",), objectives=("loss",))
    seeded.add_study(url, "shown", [create_trial(value=0.1 * i) for i in range(5)])
    test = opened("convergence", state={"beside": "other"})
    notes = [each.value for each in test.main.caption]
    assert notes[1:] == ["Study other is not drawn: it has no objective accuracy, only loss."]
    (figure,) = figures(test)
    assert "best of other" not in [each["name"] for each in figure["data"]]


def test_another_study_is_drawn_with_its_own_objective_and_direction(url: str) -> None:
    # The best of `loss` falls from 5 to 1; it is the other study's second objective.
    trials = [create_trial(values=[0.5, 5.0 - i]) for i in range(5)]
    seeded.add_study(
        url,
        "other",
        trials,
        directions=("maximize", "minimize"),
        objectives=("accuracy", "loss"),
    )
    ours = [create_trial(value=9.0) for _ in range(5)]
    seeded.add_study(url, "shown", ours, directions=("maximize",), objectives=("loss",))
    (figure,) = figures(opened("convergence", state={"beside": "other"}))
    (theirs,) = [each for each in figure["data"] if each["name"] == "best of other (minimize)"]
    assert numbers_of(theirs["y"]) == [5.0, 4.0, 3.0, 2.0, 1.0, 1.0]


def test_a_trial_among_its_rivals_with_the_reason(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("curves", state={"trial_among_rivals": 2})
    assert test.subheader[0].value == "Trial 2"
    assert "pruned" in test.code[0].value
    assert test.query_params["trial"] == "2"


def test_a_population_shows_who_went_on_from_whom(url: str) -> None:
    add_population(url)
    test = opened("curves", state={"trial_among_rivals": 12})
    assert [each.value for each in test.subheader] == ["Population", "Schedule", "Trial 12"]
    _, figure, schedule = figures(test)
    assert [schedule["layout"][axis]["title"]["text"] for axis in ("yaxis", "yaxis2")] == list(
        SPACE
    )
    names = [each.get("name", "") for each in figure["data"]]
    assert names[-3:] == ["replaced (15)", "copy (15)", "training of trial 12"]
    copies = figure["data"][-2]
    assert any("a new configuration" in each for each in copies["text"])
    assert any("a copy of trial" in each and "lr " in each for each in copies["text"])
    assert all("dropout" not in each for each in copies["text"] if "a copy of" in each)


def test_a_study_without_a_population_has_one_figure_of_curves(url: str) -> None:
    seeded.add_first_study(url)
    assert len(figures(opened("curves"))) == 1


def test_trials_are_filtered_by_outcome(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("trials")
    assert len(test.dataframe[0].value) == 8
    test.pills[0].set_value(["out_of_memory"])
    assert list(fine(test.run()).dataframe[0].value["trial"]) == [3]


@pytest.mark.parametrize("page", ["studies", "trials", "devices", "best"])
def test_cells_without_a_value_are_blank(url: str, page: str) -> None:
    seeded.add_first_study(url)
    tables = opened(page).dataframe
    assert tables
    assert [each.proto.placeholder for each in tables] == [""] * len(tables)
    assert all(each.proto.HasField("placeholder") for each in tables)


def test_trials_have_their_costs_to_sort_and_filter_by(url: str) -> None:
    seeded.add_first_study(url)
    shown = opened("trials").dataframe[0].value.set_index("trial")
    look = look_at(url)
    study = look.studies()["first"]
    n_ended = 0
    for number in shown.index.tolist():
        found = look.trial(study, number, seeded.NOW + timedelta(hours=1))
        assert found is not None
        uses = [each.use for each in found.trial.attempts]
        times_s = [each.device_s for each in uses if each.device_s is not None]
        if not uses or len(times_s) < len(uses):
            continue
        n_ended += 1
        assert shown["device-hours"][number] == pytest.approx(sum(times_s) / 3600)
        told = [each.energy_kwh for each in uses if each.energy_kwh is not None]
        if told:
            assert shown["energy (kWh)"][number] == pytest.approx(sum(told))
    assert n_ended > 2
    least = shown["device-hours"].min()
    passed = opened("trials", where=f"device-hours > {least}").dataframe[0].value
    assert set(passed["trial"]) == set(shown.index[shown["device-hours"] > least])


def test_one_trial_shows_its_attempts_and_why(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("trials", state={"trial": 3})
    assert test.title[0].value == "Trial 3"
    sections = [each.value for each in test.subheader]
    assert sections[:2] == ["Log", "Parameters"]
    assert sections[2:4] == ["Attempt 2", "Attempt 1"]
    assert test.markdown[0].value.startswith("**Out of memory**, after 2 attempts: ")
    assert any("out of memory" in each.value for each in test.code)
    fine(test.button[0].click().run())
    assert test.title[0].value == "Trials"


def test_one_trial_shows_what_its_devices_did(url: str) -> None:
    add_week(url, datetime.now(UTC), n_devices=1, days=0.1, trial_s=600)
    test = opened("trials", state={"trial": 10})
    assert "Usage" in [each.value for each in test.subheader]
    assert "Means over 5 s." in [each.value for each in test.main.caption]
    (figure,) = figures(test)
    axes = [figure["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis", "yaxis2")]
    assert axes == ["Time in attempts (min)", "Utilization (%)", "Memory (GiB)"]
    assert any("582 device-seconds" in each.value for each in test.markdown)


def test_a_trial_whose_devices_nobody_looked_at_says_so(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("trials", state={"trial": 0})
    assert any("No device usage was recorded" in each.value for each in test.main.caption)
    # A trial that waits never had a device.
    assert "Usage" not in [each.value for each in opened("trials", state={"trial": 5}).subheader]


def test_one_trial_shows_the_states_it_has_saved(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("trials", state={"trial": 3})
    assert "Checkpoints" in [each.value for each in test.subheader]
    shown = test.dataframe[-1].value
    assert list(shown["attempt"]) == [2, 1]
    assert list(shown["step"]) == [2, 2]
    assert list(shown["size (MiB)"]) == [8192, 8192]
    assert list(shown["path"]) == ["/studies/trial-3/step-2.pt"] * 2
    assert list(shown["host"]) == [seeded.HERE] * 2
    saved_at = (seeded.NOW + timedelta(seconds=62)).replace(tzinfo=None)
    assert [each.to_pydatetime() for each in shown["saved (UTC)"]] == [saved_at] * 2


def test_a_trial_without_a_saved_state_has_no_table_of_them(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("trials", state={"trial": 1})
    assert test.title[0].value == "Trial 1"
    assert "Checkpoints" not in [each.value for each in test.subheader]


def test_the_address_names_the_trial(url: str) -> None:
    seeded.add_first_study(url)
    assert opened("trials", trial="0").title[0].value == "Trial 0"


def test_a_trial_that_is_not_there(url: str) -> None:
    seeded.add_first_study(url)
    assert "no trial 99" in opened("trials", state={"trial": 99}).warning[0].value


def test_best_tells_of_fresh_runs(url: str) -> None:
    seeded.add_study(url, "tried", [create_trial(value=0.9), create_trial(value=0.8)])
    runs = [
        create_trial(value=value, user_attrs={"tuner:confirms": number})
        for number, value in [(0, 0.5), (1, 0.7), (0, 0.6), (1, 0.8)]
    ]
    seeded.add_study(url, "tried.confirm", runs)
    page = opened("best")
    table = page.dataframe[0].value
    assert table["trial"].tolist() == [1, 0]
    assert table["mean accuracy"].tolist() == [pytest.approx(0.75), pytest.approx(0.55)]
    assert table["single accuracy"].tolist() == [0.8, 0.9]
    assert 0.5 < table["probability of the best mean"].tolist()[0] < 1.0
    said = [each.value for each in page.markdown]
    assert said[:2] == [
        "Trial 1 is the best: its mean accuracy over 2 confirmation runs with new seeds is the "
        "highest of 2 configurations; trial 0, which the other pages show as the best, has the "
        "highest single value, 0.9, which is biased because it was selected among 2 trials.",
        "Trial **1**: accuracy 0.8",
    ]


def test_best_as_text_in_each_form(url: str) -> None:
    seeded.add_first_study(url)
    texts = [each.value for each in opened("best").code]
    assert texts[0].startswith("- study: first\n  trial_number: 1")
    assert '"trial_number": 1' in texts[1]
    assert "--lr=0.01" in texts[2]
    assert "tuner.load_best" in texts[-1]


def test_a_database_that_is_gone_is_said_and_is_no_accident(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE_VARIABLE, f"sqlite:///{tmp_path}/none.db")
    test = AppTest.from_file(str(MAIN), default_timeout=TIMEOUT_S).run()
    assert [each.message for each in test.exception] == []
    assert "There is no database" in test.error[0].value


def test_a_study_of_optuna_alone_has_a_timeline_of_its_trials(url: str) -> None:
    study = optuna.create_study(study_name="plain", storage=url)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=4)
    (figure,) = figures(opened("devices"))
    numbers = [int(text) for trace in figure["data"] for text in trace["text"]]
    assert sorted(numbers) == [0, 1, 2, 3]
    assert figure["layout"]["yaxis"]["title"]["text"] == "Trials at the same time"
    spans = [x for trace in figure["data"] for x in numbers_of(trace["x"])]
    known = [each.duration for each in study.trials]
    assert sorted(spans) == pytest.approx(
        sorted(each.total_seconds() * 1000 for each in known if each), abs=1
    )


def test_columns_of_trials_are_chosen_and_ordered(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("trials")
    (columns,) = [each for each in test.multiselect if each.label == "Columns"]
    assert "lr" in columns.options
    fine(columns.set_value(["lr", "outcome"]).run())
    shown = test.dataframe[0].proto.column_order
    assert list(shown) == ["trial", "lr", "outcome"]
    linked = opened("trials", columns=["started (UTC)", "lr"])
    assert list(linked.dataframe[0].proto.column_order) == ["trial", "started (UTC)", "lr"]
