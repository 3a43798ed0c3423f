"""What `tuner studies` and `tuner status` read, on each kind of database."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from optuna.trial import TrialState

from tests.integration.stored_studies.seeded import (
    DEAD_PID,
    HERE,
    NOW,
    SPACE,
    a_trial,
    add_attempt,
    add_dispatcher,
    add_first_study,
    add_study,
    looking,
    optuna_storage,
    place,
    writing,
)
from tuner.config import BudgetConfig
from tuner.domain.budget import Budget
from tuner.errors import EXIT_BAD_INPUT, StoreError
from tuner.queries.locate import choose_study
from tuner.queries.status import StudyStatus, read_status
from tuner.queries.studies import StudySummary, read_studies
from tuner.queries.study_state import EXIT_STOPPED, Standing
from tuner.store.schema.models import AttemptRow, DispatcherRow, LeaseRow
from tuner.terminal.studies import status_text, studies_text
from tuner.terminal.tables import as_json

LATER = NOW + timedelta(seconds=100)


def summaries(url: str) -> dict[str, StudySummary]:
    with looking(url) as connection:
        return {each.name: each for each in read_studies(connection, LATER)}


def status_of(url: str, study: str, budget: BudgetConfig | None = None) -> StudyStatus:
    with looking(url) as connection:
        stored = choose_study(connection, place(url, study))
        return read_status(connection, stored, budget, LATER)


def test_studies_are_told_apart(url: str) -> None:
    add_first_study(url)
    add_study(
        url,
        "second",
        [],
        directions=("minimize", "maximize"),
        objectives=("loss", "speed"),
    )
    found = summaries(url)
    assert list(found) == ["first", "second"]
    first, second = found.values()
    assert [str(each) for each in first.objectives] == ["accuracy (maximize)"]
    assert [str(each) for each in second.objectives] == ["loss (minimize)", "speed (maximize)"]
    assert {state.name: n for state, n in first.trials.items()} == {
        "COMPLETE": 4,
        "PRUNED": 1,
        "FAIL": 1,
        "RUNNING": 1,
        "WAITING": 1,
    }
    assert (second.n_trials, second.best, second.started_at, second.active_at) == (
        0,
        {},
        None,
        None,
    )
    (alive,) = first.dispatchers
    assert (alive.host, alive.beat_at) == (HERE, NOW + timedelta(seconds=90))
    assert second.dispatchers == ()


def test_what_ran_out_of_memory_has_failed(url: str) -> None:
    no_memory = a_trial(
        {"lr": 0.1}, state=TrialState.PRUNED, constraints={"tuner:out_of_memory": 1.0}
    )
    too_large = a_trial({"lr": 0.1}, state=TrialState.PRUNED, constraints={"size": 1.0})
    add_study(url, "mixed", [no_memory, no_memory, too_large, a_trial({"lr": 0.1}, 0.5)])
    add_study(url, "hopeless", [no_memory])
    add_dispatcher(url, "hopeless", is_ended=True)
    found = summaries(url)
    mixed, hopeless = found["mixed"].trials, found["hopeless"].trials
    assert (mixed[TrialState.FAIL], mixed[TrialState.PRUNED], mixed[TrialState.COMPLETE]) == (
        (2, 1, 1)
    )
    assert (hopeless[TrialState.FAIL], hopeless[TrialState.PRUNED]) == (1, 0)
    assert found["mixed"].n_finished == 4
    status = status_of(url, "hopeless", BudgetConfig(trials=1))
    assert status.standing is Standing.FAILED
    assert "trials: 1: 1 failed" in status_text(status, LATER)


def test_best_is_feasible_and_finite(url: str) -> None:
    add_first_study(url)
    assert summaries(url)["first"].best == {"accuracy": 0.9}


def test_studies_of_optuna_alone_are_listed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/plain.db"
    add_study(url, "plain", [a_trial({"lr": 0.01}, 0.5)], space=None, directions=("minimize",))
    (found,) = summaries(url).values()
    assert [str(each) for each in found.objectives] == ["value (minimize)"]
    assert (found.best, found.dispatchers) == ({"value": 0.5}, ())
    assert status_of(url, "plain").standing is Standing.STOPPED


def test_metric_names_of_optuna_are_used(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/plain.db"
    add_study(url, "plain", [], space=None)
    with optuna_storage(url) as storage:
        storage.set_study_system_attr(1, "study:metric_names", ["f1"])
    assert [each.name for each in summaries(url)["plain"].objectives] == ["f1"]


def test_text_of_studies_has_a_line_for_each(url: str) -> None:
    add_first_study(url)
    add_study(url, "second", [])
    header, first, second = studies_text(list(summaries(url).values()), LATER, "x").splitlines()
    assert header.split() == (
        [
            "study",
            "objectives",
            "trials",
            "best",
            "run",
            "by",
            "started",
            "(UTC)",
            "last",
            "activity",
        ]
    )
    assert "8: 4 completed, 1 pruned, 1 failed, 1 running, 1 waiting" in first
    assert "accuracy 0.9" in first
    assert f"{HERE} (" in first
    assert second.split() == ["second", "accuracy", "(maximize)", "0", "-", "-", "-", "-"]
    assert studies_text([], LATER, "x.db") == "x.db holds no study yet."


# -- one study -------------------------------------------------------------------------------


def test_status_tells_what_runs_where(url: str) -> None:
    add_first_study(url)
    status = status_of(url, "first")
    assert (status.standing, status.exit_code) == (Standing.RUNNING, 0)
    (running,) = status.running
    assert (running.trial, running.attempt, running.host) == (4, 1, HERE)
    assert (running.devices, running.pid, running.is_alive) == (("GPU 1",), 42, True)
    assert (running.for_s, running.step, running.values) == (39.0, 10, {"accuracy": 0.4})
    assert status.best is not None
    assert (status.best.number, status.best.params["epochs"]) == (1, 20)
    assert [each.is_alive for each in status.dispatchers] == [True]
    # Six are over, one runs; what waits has spent nothing.
    assert (status.budget.trials, status.spent.trials) == (8, 7)


def test_devices_that_running_trials_hold_are_spent(url: str) -> None:
    add_first_study(url)
    query = (
        sa.select(LeaseRow.leased_at, LeaseRow.released_at, DispatcherRow.beat_at, LeaseRow.share)
        .join(AttemptRow, AttemptRow.id == LeaseRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
    )
    with looking(url) as connection:
        rows = connection.execute(query).all()
    held = [(beat - leased) * share for leased, end, beat, share in rows if end is None]
    ended = [(end - leased) * share for leased, end, _, share in rows if end is not None]
    assert held
    assert ended
    used_s = sum(each.total_seconds() for each in (*held, *ended))
    assert status_of(url, "first").spent.device_s == pytest.approx(used_s, abs=0.01)


def test_text_of_status(url: str) -> None:
    add_first_study(url)
    text = status_text(status_of(url, "first"), LATER)
    assert text.startswith("study first: running (")
    # From the first attempt, a minute after the start, to the dispatcher's last sign.
    assert "\nspent: 7 of 8 trials begun, 30 s, " in text
    assert "\nbest: accuracy 0.9 (trial 1)\n  lr: 0.01\n" in text
    assert f"\n4      1        {HERE} GPU 1  39 s  10    accuracy 0.4\n" in text


def test_status_names_dispatchers_that_run_other_code(url: str) -> None:
    add_first_study(url)
    assert "code differs" not in status_text(status_of(url, "first"), LATER)
    # On another machine, and heard of lately.
    newest = add_dispatcher(url, "first", host="gpu02")
    with writing(url) as connection:
        own = sa.update(DispatcherRow).where(DispatcherRow.id == newest)
        connection.execute(own.values(versions={"code": "77aa"}))
    assert (
        f"\ncode differs: {HERE} (pid {os.getpid()}) runs commit abc with changes; "
        f"gpu02 (pid {DEAD_PID}) runs snapshot 77aa\n"
        in status_text(status_of(url, "first"), LATER)
    )


def test_json_of_status(url: str) -> None:
    add_first_study(url)
    found = json.loads(as_json(status_of(url, "first")))
    assert (found["standing"], found["exit_code"]) == ("running", 0)
    assert found["study"]["trials"]["completed"] == 4
    assert found["running"][0]["since"] == "2026-03-01T12:01:01Z"
    assert found["best"]["state"] == "completed"


def test_dispatchers_are_shown_with_devices_and_what_runs(url: str) -> None:
    add_first_study(url)
    status = status_of(url, "first")
    row = status_text(status, LATER).splitlines()[-1]
    assert row.split("  ")[0] == HERE
    assert "10 s ago" in row
    assert "GPU 0, GPU 1" in row
    assert row.endswith("alive")
    runs = [each.trial for each in status.running if each.dispatcher_id == status.dispatchers[0].id]
    assert runs
    assert f"trial{'s' if len(runs) > 1 else ''} {', '.join(map(str, runs))} " in row


def test_dispatcher_that_gives_no_sign_of_life_is_silent(url: str) -> None:
    add_first_study(url)
    much_later = NOW + timedelta(seconds=90 + 61)
    with looking(url) as connection:
        stored = choose_study(connection, place(url, "first"))
        status = read_status(connection, stored, None, much_later)
    assert (status.standing, status.exit_code) == (Standing.SILENT, 4)
    assert status_text(status, much_later).splitlines()[-1].endswith("alive, but silent")


def test_trials_of_a_dead_dispatcher_are_marked(url: str) -> None:
    add_study(url, "first", [a_trial({}, state=TrialState.RUNNING)])
    add_attempt(url, add_dispatcher(url, "first"), 0, outcome=None)
    status = status_of(url, "first")
    assert (status.standing, status.exit_code) == (Standing.STOPPED, EXIT_STOPPED)
    assert status.reason == "no dispatcher is alive, 0 of 8 trials are done"
    assert [each.is_alive for each in status.running] == [False]
    text = status_text(status, LATER)
    assert "(its dispatcher died)" in text
    assert f"{DEAD_PID}  2026-03-01 12:00" in text
    assert text.endswith("died")


def test_status_tells_why_the_last_start_ended(url: str) -> None:
    add_study(url, "first", [a_trial({}, 0.5)])
    add_dispatcher(url, "first", is_ended=True)
    status = status_of(url, "first")
    assert [each.end_reason for each in status.dispatchers] == ["budget: 5 trials"]
    assert status_text(status, LATER).endswith("ended: budget: 5 trials")


def test_trials_of_another_program_are_shown(url: str) -> None:
    add_study(url, "first", [a_trial({}, state=TrialState.RUNNING)])
    (running,) = status_of(url, "first").running
    assert (running.host, running.attempt, running.is_alive) == (None, None, True)


def test_several_objectives_have_their_last_metrics(url: str) -> None:
    two = {"directions": ("minimize", "maximize"), "objectives": ("loss", "speed")}
    add_study(url, "two", [a_trial({}, state=TrialState.RUNNING)], **two)  # type: ignore[arg-type]
    add_attempt(url, add_dispatcher(url, "two", is_alive=True), 0, outcome=None)
    status = status_of(url, "two")
    (running,) = status.running
    assert (running.step, running.values, status.best) == (1, {"loss": 0.5}, None)


@pytest.mark.parametrize(
    ("trials", "expected"), [(6, Standing.FINISHED), (7, Standing.STOPPED)], ids=["spent", "left"]
)
def test_budget_of_the_study_file_decides(url: str, trials: int, expected: Standing) -> None:
    values = [a_trial({"lr": 0.01}, 0.5) for _ in range(6)]
    add_study(url, "first", values)
    add_dispatcher(url, "first", is_ended=True)
    assert status_of(url, "first", BudgetConfig(trials=trials)).standing is expected


@pytest.mark.parametrize(
    ("state", "of_file", "allowed"),
    [
        ("is_alive", 48, 20),
        ("is_ended", 48, 48),
        ("is_ended", None, 20),
    ],
    ids=["at work", "over", "no file"],
)
def test_what_a_start_may_spend_counts_while_it_works(
    url: str, state: str, of_file: int | None, allowed: int
) -> None:
    add_study(url, "first", [a_trial({"lr": 0.01}, 0.5)])
    add_dispatcher(url, "first", budget=Budget(trials=20), **{state: True})  # type: ignore[arg-type]
    given = None if of_file is None else BudgetConfig(trials=of_file)
    assert status_of(url, "first", given).budget.trials == allowed


def test_grid_that_was_tried_is_an_end(url: str) -> None:
    grid = {"search_space": {"lr": [0.1, 0.05]}}
    # The second has the place of the first, as in a study that was continued: values count.
    trials = [a_trial({"lr": lr}, 0.1, system_attrs=grid | {"grid_id": 0}) for lr in (0.1, 0.05)]
    add_study(url, "second", trials[:1] * 2)
    assert status_of(url, "second").standing is Standing.STOPPED
    add_study(url, "first", trials)
    status = status_of(url, "first")
    assert status.standing is Standing.FINISHED
    assert status.reason == "every configuration of the space was tried"


# -- which study -----------------------------------------------------------------------------


def test_nearest_name_is_suggested(url: str) -> None:
    for name in ("digits", "letters"):
        add_study(url, name, [], space=SPACE)
    assert refusal(url, "digit") == (
        "the database has no study 'digit'. Did you mean 'digits'? It holds: digits, letters."
    )
    assert refusal(url, "zzz") == ("the database has no study 'zzz'. It holds: digits, letters.")
    assert refusal(url, None) == (
        "the database holds 2 studies: digits, letters. Name one of them with --study."
    )


def test_empty_database_says_what_to_do(url: str) -> None:
    assert "holds no study. Run one first" in refusal(url, None)
    assert "has no study 'x'; it holds none" in refusal(url, "x")


def refusal(url: str, study: str | None) -> str:
    with looking(url) as connection, pytest.raises(StoreError) as caught:
        choose_study(connection, place(url, study))
    assert caught.value.exit_code == EXIT_BAD_INPUT
    return str(caught.value)


def test_forecast_of_a_study_that_runs(url: str) -> None:
    values = [0.5 + 0.4 * (7 * i % 40) / 40 for i in range(40)]
    add_study(url, "long", [a_trial({"lr": 0.01}, value) for value in values])
    of = add_dispatcher(url, "long", is_alive=True)
    add_attempt(url, of, 0)
    budget = BudgetConfig.model_validate({"trials": 100})
    status = status_of(url, "long", budget)
    told = status.forecast
    assert told is not None
    assert told.n_more == 60
    assert max(values) <= told.cautious <= told.median <= told.hopeful
    assert status.ends_at is not None
    assert status.ends_at > LATER
    lines = status_text(status, LATER).splitlines()
    (line,) = [each for each in lines if each.startswith("forecast: about ")]
    assert line.endswith(" UTC, after 60 more trials")
    assert '"n_more": 60' in as_json(status)


def test_no_forecast_where_nobody_works(url: str) -> None:
    add_study(url, "over", [a_trial({"lr": 0.01}, i / 40) for i in range(40)])
    add_dispatcher(url, "over", is_ended=True)
    status = status_of(url, "over", BudgetConfig.model_validate({"trials": 100}))
    assert (status.forecast, status.ends_at) == (None, None)
