"""Devices that have no trial now: `tuner status` says why, and `tuner why` where a trial waits."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from optuna.trial import TrialState, create_trial

from tests.integration.stored_studies.seeded import (
    HERE,
    NOW,
    a_trial,
    add_attempt,
    add_dispatcher,
    add_idle,
    add_study,
    looking,
    place,
)
from tuner.devices.idle_causes import IdleCause
from tuner.queries.locate import choose_study
from tuner.queries.status import StudyStatus, read_status
from tuner.queries.study_state import Standing
from tuner.search.pruners.hyperband import FIRST_RUNG_KEY
from tuner.store.optuna_tables.pauses import PAUSED_KEY
from tuner.terminal.studies import status_text
from tuner.terminal.tables import as_json
from tuner.terminal.why import explain

LATER = NOW + timedelta(seconds=100)


def add_waiting(url: str) -> int:
    """Trial 0 waits, trial 1 was asked for, trial 2 runs; gives the dispatcher that is alive."""
    asked = a_trial({"lr": 0.01, "optimizer": "adamw"}, state=TrialState.RUNNING)
    add_study(url, "first", [create_trial(state=TrialState.WAITING), asked, asked])
    dispatcher_id = add_dispatcher(url, "first", is_alive=True)
    add_attempt(url, dispatcher_id, 2, outcome=None, device=7)
    return dispatcher_id


def status(url: str, study: str = "first") -> StudyStatus:
    with looking(url) as connection:
        return read_status(connection, choose_study(connection, place(url, study)), None, LATER)


def why(url: str, number: int) -> str:
    with looking(url) as connection:
        return explain(connection, choose_study(connection, place(url)), number, LATER)


def test_a_trial_that_another_program_runs_waits_for_no_device(url: str) -> None:
    running = a_trial({"lr": 0.01, "optimizer": "adamw"}, state=TrialState.RUNNING)
    add_study(url, "first", [running])
    first, *_, last = why(url, 0).splitlines()
    assert first == "Trial 0 of study 'first': running"
    assert last == "It was run by another program than the tuner, or imported."
    add_dispatcher(url, "first", is_alive=True)
    assert why(url, 0).splitlines()[0].endswith(": was asked for, and waits for devices")


def test_what_is_idle_now_is_told_with_its_cause(url: str) -> None:
    alive = add_waiting(url)
    for device in (0, 1):
        add_idle(url, alive, device, IdleCause.NO_SUGGESTION, since_s=10, until_s=82)
        add_idle(url, alive, device, IdleCause.DISK_FULL, since_s=82, until_s=95)
    text = status_text(status(url), LATER)
    assert f"\nidle: GPU 0, GPU 1 of {HERE}: disk full, for 18 s\n" in text
    (first, second, *_) = json.loads(as_json(status(url)))["idle"]
    assert (first["device"], first["cause"]) == ("GPU 0", "disk_full")
    assert (second["device"], second["host"]) == ("GPU 1", HERE)


def test_a_device_that_has_got_a_trial_is_not_idle(url: str) -> None:
    alive = add_waiting(url)
    add_idle(url, alive, 7, IdleCause.DISK_FULL, since_s=10, until_s=95)
    assert [each.device for each in status(url).idle] == []


def test_a_cpu_slot_that_has_got_a_trial_is_not_idle(url: str) -> None:
    """Slots are each dispatcher's own: the same slot of another dispatcher may be idle."""
    add_study(url, "first", [a_trial({"lr": 0.1}, state=TrialState.RUNNING)] * 2)
    alive, ended = add_dispatcher(url, "first", is_alive=True), add_dispatcher(url, "first")
    add_attempt(url, alive, 0, outcome=None, device=0, is_held=False)
    add_attempt(url, ended, 1, outcome=None, device=1, is_held=False)
    for device in (0, 1):
        add_idle(url, alive, device, IdleCause.NO_SUGGESTION, since_s=82, until_s=95)
    assert [each.device for each in status(url).idle] == ["GPU 1"]


def test_what_is_over_or_of_a_dead_dispatcher_is_not_of_now(url: str) -> None:
    add_study(url, "first", [create_trial(state=TrialState.WAITING)])
    alive, dead = add_dispatcher(url, "first", is_alive=True), add_dispatcher(url, "first")
    add_idle(url, alive, 0, IdleCause.DISK_FULL, since_s=10, until_s=79)
    add_idle(url, dead, 1, IdleCause.DISK_FULL, since_s=10, until_s=95)
    assert status(url).idle == []
    assert "disk full" not in why(url, 0)


@pytest.mark.parametrize("number", [0, 1], ids=["waits", "was-asked-for"])
def test_why_says_what_holds_a_trial_up(url: str, number: int) -> None:
    alive = add_waiting(url)
    add_idle(url, alive, 0, IdleCause.DISK_FULL, since_s=82, until_s=95)
    add_idle(url, alive, 1, IdleCause.QUARANTINED, since_s=40, until_s=95)
    add_idle(url, alive, 2, IdleCause.NOTHING_LEFT, since_s=40, until_s=95)
    told = why(url, number)
    assert f"\n  No trial starts on GPU 0 of {HERE}: disk full, for 18 s." in told
    assert f"\n  No trial starts on GPU 1 of {HERE}: quarantined, for 1 min 00 s." in told
    assert "GPU 2" not in told
    assert "No trial starts" not in why(url, 2), "it runs"


def test_paused_trials_are_spent_and_not_done(url: str) -> None:
    paused = create_trial(state=TrialState.WAITING, system_attrs={PAUSED_KEY: 3})
    done = a_trial({"lr": 0.01, "optimizer": "adamw"}, 0.5)
    add_study(url, "first", [done, *[paused] * 7])
    add_dispatcher(url, "first")
    found = status(url)
    assert (found.budget.trials, found.spent.trials) == (8, 8)
    assert found.standing is Standing.STOPPED
    assert found.reason == "no dispatcher is alive, 1 of 8 trials are done"


def test_trial_that_was_put_back_is_not_spent(url: str) -> None:
    resumed = create_trial(state=TrialState.WAITING, system_attrs={PAUSED_KEY: None})
    add_study(url, "first", [resumed, create_trial(state=TrialState.WAITING)])
    assert status(url).spent.trials == 0


@pytest.mark.parametrize(
    ("first", "told"), [(9, "compared first at step 9"), (0, "trained to its")]
)
def test_the_bracket_of_a_trial_is_told(url: str, first: int, told: str) -> None:
    trial = a_trial({"lr": 0.01, "optimizer": "adamw"}, state=TrialState.RUNNING)
    trial.system_attrs = {FIRST_RUNG_KEY: first}
    add_study(url, "first", [trial])
    assert f"\n  bracket: {told}" in why(url, 0)
