"""Buttons that do what the command line does, for those who know the token."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from streamlit.testing.v1 import AppTest

from tests.databases import new_database
from tests.integration.app.pages import opened, show_database
from tests.integration.stored_studies import seeded
from tuner.app.views.requests import permission
from tuner.monitoring.dashboard_process import (
    TOKEN_VARIABLE,
    USERS_VARIABLE,
)
from tuner.store.schema.models import DispatcherRow
from tuner.store.schema.statements import in_utc

TOKEN = "correct horse battery"
#: The trial of the first study that runs.
RUNNING = 4
_TIMEOUT_S = 30


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    url = new_database(tmp_path)
    seeded.add_first_study(url)
    show_database(monkeypatch, url)
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    permission._doorkeeper.cache_clear()
    yield url
    permission._doorkeeper.cache_clear()


def unlocked(token: str = TOKEN) -> AppTest:
    test = opened("control")
    test.text_input(key="control token").set_value(token)
    test.text_input(key="control name").set_value("Ann")
    return press(test, "Unlock")


def press(test: AppTest, label: str) -> AppTest:
    (button,) = [each for each in test.button if each.label == label]
    done = button.click().run()
    assert [each.message for each in done.exception] == []
    return done


def commands(url: str) -> list[tuple[object, ...]]:
    with seeded.looking(url) as connection:
        query = sa.text("SELECT name, trial_number, asked_by FROM tuner_commands ORDER BY id")
        return [tuple(row) for row in connection.execute(query)]


def test_without_the_token_there_is_no_button(url: str) -> None:
    test = opened("control")
    assert [each.label for each in test.button] == ["Unlock"]
    assert [each.label for each in opened("trials", state={"trial": 4}).button] == ["All trials"]


def test_a_dashboard_without_a_token_only_shows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE)
    permission._doorkeeper.cache_clear()
    test = opened("control")
    assert list(test.button) == []
    assert "read-only" in test.info[0].value


def test_a_wrong_token_is_refused(url: str) -> None:
    test = unlocked("wrong")
    assert "Wrong token" in test.error[0].value
    assert [each.label for each in test.button] == ["Unlock"]


def test_pause_is_recorded_with_who_asked(url: str) -> None:
    test = press(unlocked(), "Pause study")
    assert "Sent to study 'first': pause" in test.success[0].value
    ((name, trial, who),) = commands(url)
    assert (name, trial) == ("pause", None)
    assert str(who).startswith("says to be Ann (dashboard)@")
    assert list(test.dataframe[1].value["what"]) == ["pause"]


def test_the_token_is_nowhere_on_the_page(url: str) -> None:
    test = press(press(unlocked(), "Pause study").run(), "Resume study")
    assert TOKEN not in str(test.main) + str(test.sidebar) + str(dict(test.query_params))
    assert "control token" not in test.session_state
    assert [each.label for each in press(test, "Lock").button] == ["Unlock"]


def test_what_makes_no_sense_is_refused_in_words(url: str) -> None:
    test = unlocked()
    test.text_area[0].set_value("/etc/passwd")
    assert "must be a configuration" in press(test, "Enqueue").error[0].value
    assert "lr" in opened_enqueue(unlocked(), "{lr: lots}").error[0].value


def opened_enqueue(test: AppTest, text: str) -> AppTest:
    test.text_area[0].set_value(text)
    return press(test, "Enqueue")


def test_enqueue_and_retry_make_trials_that_say_who_asked(url: str) -> None:
    test = opened_enqueue(unlocked(), "{lr: 0.01}")
    assert test.success[0].value == "Enqueued: trial 8."
    page = opened("trials", state={"trial": 0, "who controls": "Ann (dashboard)@here"})
    assert "Trial 9 waits" in press(page, "Retry trial").success[0].value
    with seeded.looking(url) as connection:
        query = "SELECT value_json FROM trial_user_attributes WHERE \"key\" = 'tuner:asked_by'"
        found = [row[0] for row in connection.execute(sa.text(query))]
        noted = connection.execute(sa.text("SELECT name, asked_by FROM tuner_commands")).all()
    assert [(name, who.partition("@")[0]) for name, who in noted] == [("retry", "Ann (dashboard)")]
    assert len(found) == 2
    assert all("Ann (dashboard)@" in each for each in found)


def test_a_trial_that_runs_can_be_stopped_and_one_that_has_ended_cannot(url: str) -> None:
    who = {"who controls": "Ann (dashboard)@here"}
    done = press(opened("trials", state={"trial": RUNNING, **who}), "Stop trial")
    assert f"Sent to trial {RUNNING}: stop" in done.success[0].value
    ((name, trial, asked_by),) = commands(url)
    assert (name, trial, str(asked_by).partition("@")[0]) == ("stop", RUNNING, "Ann (dashboard)")
    assert "Stop trial" not in [
        each.label for each in opened("trials", state={"trial": 0, **who}).button
    ]


def test_budget_is_changed_by_the_same_words(url: str) -> None:
    test = unlocked()
    (value,) = [each for each in test.text_input if each.label == "New value"]
    value.set_value("many")
    assert "budget.trials" in press(test, "Change").error[0].value


def test_a_login_that_was_not_set_up_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USERS_VARIABLE, "ann@example.org")
    permission._doorkeeper.cache_clear()
    test = press(opened("control"), "Log in")
    assert "Login does not work: " in test.error[0].value


def change(test: AppTest, limit: str, value: str) -> AppTest:
    (name,) = [each for each in test.selectbox if each.label == "Limit"]
    name.set_value(limit)
    (text,) = [each for each in test.text_input if each.label == "New value"]
    text.set_value(value)
    return press(test, "Change")


def test_the_present_and_the_one_button_that_fits(url: str) -> None:
    test = unlocked()
    assert test.markdown[0].value.startswith("**Silent**: ")
    labels = [each.label for each in test.button]
    assert ("Pause study" in labels, "Resume study" in labels) == (True, False)
    paused = press(test, "Pause study").run()
    assert paused.markdown[0].value.startswith("**Paused** by says to be Ann ")
    labels = [each.label for each in paused.button]
    assert ("Pause study" in labels, "Resume study" in labels) == (False, True)
    budget = paused.dataframe[0].value
    assert list(budget["budget"]) == ["trials", "time", "device-hours", "energy"]


def test_running_since_the_start_or_a_later_resume(url: str) -> None:
    since = "Running since "
    seeded.add_study(url, "live", [])
    seeded.add_dispatcher(url, "live", is_alive=True)
    first = unlocked()
    (told,) = [each.value for each in first.caption if each.value.startswith(since)]
    assert f"(pid {os.getpid()})." in told.replace("\\", "")
    resumed = press(press(first, "Pause study").run(), "Resume study").run()
    (told,) = [each.value for each in resumed.caption if each.value.startswith(since)]
    assert "by says to be Ann " in told


def test_a_paused_study_is_paused_on_the_page_of_studies(url: str) -> None:
    seeded.add_study(url, "live", [])
    seeded.add_dispatcher(url, "live", is_alive=True)
    with seeded.writing(url) as connection:
        beat = sa.update(DispatcherRow).values(beat_at=in_utc(datetime.now(UTC)))
        connection.execute(beat)

    def line() -> tuple[str, str]:
        table = opened("studies").dataframe[0].value.set_index("study")
        row = table.loc["convergence?study=live"]
        return row["state"], row["why"]

    assert line()[0] == "running"
    paused = press(unlocked(), "Pause study").run()
    state, why = line()
    assert state == "paused"
    assert why.startswith("paused by says to be Ann ")
    press(paused, "Resume study").run()
    assert line()[0] == "running"


def test_a_budget_below_what_is_spent_asks_first(url: str) -> None:
    asked = change(unlocked(), "trials", "1")
    assert commands(url) == []
    assert "it ends the study at once" in asked.warning[0].value
    assert list(press(asked, "Keep the budget").warning) == []
    assert commands(url) == []
    again = change(unlocked(), "trials", "1")
    press(again, "End the study with this budget")
    assert [name for name, *_ in commands(url)] == ["set"]


@pytest.mark.parametrize(("limit", "value"), [("trials", "10000"), ("energy", "900kWh")])
def test_a_larger_budget_is_set_at_once(url: str, limit: str, value: str) -> None:
    done = change(unlocked(), limit, value)
    assert list(done.warning) == []
    assert [name for name, *_ in commands(url)] == ["set"]
