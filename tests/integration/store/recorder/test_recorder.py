"""What the dispatcher writes, and what it is refused, on every database."""

from __future__ import annotations

from dataclasses import replace

import optuna
import pytest
import sqlalchemy as sa

from tests.hosts import DEAD
from tests.integration.store.recorder.recorded import (
    GPUS,
    NOW,
    Store,
    finish,
    later,
    lease,
    refuse_table,
    run_to_its_end,
)
from tuner.devices.allocation.width import parts_of
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.domain.attempt import AttemptState, Cause, Outcome, advance
from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.store.records.attempt_rows import RowIds
from tuner.store.records.queries import origin_of
from tuner.store.schema.models import (
    AttemptRow,
    DeviceRow,
    DispatcherRow,
    EventRow,
    HostRow,
    LeaseRow,
    MetricRow,
)


def test_life_of_an_attempt_is_in_the_database(store: Store):
    recorder = store.recorder()
    attempt = run_to_its_end(recorder, store.attempt(), Outcome.PRUNED)
    (row,) = store.rows(AttemptRow)
    assert (row["state"], row["outcome"]) == (AttemptState.FINISHED, Outcome.PRUNED)
    assert (row["cause"], row["detail"], row["pid"]) == (Cause.PRUNER, "why", 42)
    assert (row["params"], row["seed"], row["log_path"]) == ({"x": 0.5, "y": 1}, 11, "/log")
    instants = [row[f"{name}_at"] for name in ("leased", "started", "ended", "finished")]
    assert instants == [later(s).replace(tzinfo=None) for s in range(4)]
    assert [event["name"] for event in store.rows(EventRow)] == [
        "leased",
        "running",
        "clearing",
        "finished",
    ]
    (held,) = store.rows(LeaseRow)
    assert held["held_device_id"] is None
    assert held["released_at"] == later(3).replace(tzinfo=None)
    assert recorder.history.attempts_of(attempt.trial_id) == 1


def test_nothing_is_written_before_commit(store: Store):
    recorder = store.recorder()
    lease(recorder, store.attempt())
    recorder.metrics(store.attempt().id, 1, {})
    recorder.note("hello", at=NOW)
    assert recorder.has_pending
    assert store.rows(AttemptRow) == store.rows(EventRow) == []
    recorder.commit()
    assert not recorder.has_pending
    assert len(store.rows(AttemptRow)) == 1
    assert [event["name"] for event in store.rows(EventRow)] == ["leased", "hello"]


def test_trials_of_optuna_and_attempts_are_written_together(store: Store):
    recorder = store.recorder()
    attempt = store.attempt()
    lease(recorder, attempt)
    store.study.tell(attempt.trial_number, 0.5)
    other = optuna.load_study(study_name="s", storage=store.url)
    assert other.trials[0].state.name == "RUNNING"
    recorder.commit()
    assert other.trials[0].state.name == "COMPLETE"


def test_refused_commit_writes_nothing_and_forgets_nothing(store: Store):
    recorder = store.recorder()
    lease(recorder, store.attempt())
    recorder.note("x", at=NOW)
    refuse = refuse_table("tuner_events")
    sa.event.listen(store.database.engine, "before_cursor_execute", refuse)
    with pytest.raises(StoreError) as caught:
        recorder.commit()
    assert caught.value.exit_code == EXIT_STUDY_FAILED
    assert store.rows(AttemptRow) == []
    sa.event.remove(store.database.engine, "before_cursor_execute", refuse)
    recorder.commit()
    assert len(store.rows(AttemptRow)) == 1
    assert len(store.rows(EventRow)) == 2


def test_move_is_refused_when_the_state_has_changed_behind_it(store: Store):
    recorder = store.recorder()
    attempt = store.attempt()
    lease(recorder, attempt)
    recorder.commit()
    store.change(AttemptRow, state=AttemptState.FINISHED)
    recorder.moved(advance(attempt, AttemptState.RUNNING, at=NOW), at=NOW)
    recorder.note("must not be there either", at=NOW)
    with pytest.raises(StoreError, match="trial 0 was taken over by another dispatcher") as caught:
        recorder.commit()
    assert caught.value.exit_code == EXIT_STUDY_FAILED
    (row,) = store.rows(AttemptRow)
    assert (row["state"], row["started_at"]) == (AttemptState.FINISHED, None)
    assert [event["name"] for event in store.rows(EventRow)] == ["leased"]


def test_gpu_is_leased_once_whatever_the_programs_believe(store: Store):
    recorder = store.recorder()
    lease(recorder, store.attempt(), GPUS[0])
    recorder.commit()
    lease(recorder, store.attempt(), GPUS[0])
    with pytest.raises(StoreError, match="A device of this machine is still leased to another"):
        recorder.commit()
    assert len(store.rows(AttemptRow)) == 1


def test_attempts_that_share_a_gpu_are_numbered_and_none_gets_all_of_it(store: Store):
    recorder = store.recorder()
    first = store.attempt()
    quarter = parts_of(0.25)
    lease(recorder, first, GPUS[0], parts=quarter)
    lease(recorder, store.attempt(), GPUS[0], parts=quarter)
    recorder.commit()
    assert [(r["held_slot"], r["share"]) for r in store.rows(LeaseRow)] == [(0, 0.25), (1, 0.25)]
    finish(recorder, first, Outcome.COMPLETED)
    lease(recorder, store.attempt(), GPUS[0], parts=quarter)
    recorder.commit()
    assert [r["held_slot"] for r in store.rows(LeaseRow)] == [0, 1, 0]
    lease(recorder, store.attempt(), GPUS[0])
    with pytest.raises(StoreError):
        recorder.commit()


def test_gpu_can_be_leased_again_once_it_was_released(store: Store):
    recorder = store.recorder()
    run_to_its_end(recorder, store.attempt(), Outcome.COMPLETED)
    run_to_its_end(recorder, store.attempt(), Outcome.COMPLETED)
    assert len(store.rows(LeaseRow)) == 2


def test_cpu_slots_are_each_dispatchers_own(store: Store):
    slots = CpuProbe(2, n_cores=2).devices()
    recorder = store.recorder(devices=slots)
    lease(recorder, store.attempt(), slots[0])
    lease(recorder, store.attempt(), slots[0])
    recorder.commit()
    assert [row["held_device_id"] for row in store.rows(LeaseRow)] == [None, None]


def test_second_attempt_with_a_number_that_is_taken_is_refused(store: Store):
    recorder = store.recorder()
    attempt = store.attempt()
    lease(recorder, attempt, GPUS[0])
    lease(recorder, attempt, GPUS[1])
    with pytest.raises(StoreError):
        recorder.commit()


def test_metrics_are_rows_with_nan_as_null(store: Store):
    recorder = store.recorder()
    attempt = store.attempt()
    lease(recorder, attempt)
    recorder.metrics(attempt.id, 3, {"loss": 0.5, "bad": float("nan")})
    recorder.commit()
    found = {row["name"]: (row["step"], row["value"]) for row in store.rows(MetricRow)}
    assert found == {"loss": (3, 0.5), "bad": (3, None)}


def test_whatever_a_program_printed_is_stored(store: Store):
    recorder = store.recorder()
    attempt = store.attempt()
    lease(recorder, attempt)
    printed = "nul \0, byte \udcff, " + "é 🙂 " * 20_000
    finish(recorder, attempt, Outcome.FAILED, detail=printed)
    (row,) = store.rows(AttemptRow)
    assert row["detail"] == printed.replace("\0", "\ufffd").replace("\udcff", "?")


def test_parameters_that_are_no_number_are_stored_as_text(store: Store):
    recorder = store.recorder()
    params = {"x": float("nan"), "y": [float("-inf"), 0.5], "z": {"deep": float("inf")}}
    lease(recorder, store.attempt(), params=params)
    recorder.commit()
    assert store.rows(AttemptRow)[0]["params"] == {
        "x": "nan",
        "y": ["-inf", 0.5],
        "z": {"deep": "inf"},
    }


def test_instants_are_kept_to_the_microsecond(store: Store):
    at = NOW.replace(microsecond=123_456)
    store.recorder(replace(DEAD, process_created_at_s=1_774_000_123.25), at=at)
    (row,) = store.rows(DispatcherRow)
    assert row["started_at"] == at.replace(tzinfo=None)
    assert row["process_created_at_s"] == 1_774_000_123.25


def test_hosts_and_devices_are_kept_once(store: Store):
    store.recorder().end(NOW)
    store.recorder(at=later(10))
    assert [row["name"] for row in store.rows(HostRow)] == ["here"]
    assert [row["device"] for row in store.rows(DeviceRow)] == [gpu.id for gpu in GPUS]
    assert len(store.rows(DispatcherRow)) == 2


def test_origin_names_the_attempt_that_completed_a_trial(store: Store):
    attempt = run_to_its_end(store.recorder(), store.attempt(), Outcome.COMPLETED)
    origin = origin_of(store.database, attempt.trial_id)
    assert origin is not None
    assert (origin.seed, origin.attempt_number, origin.git_commit) == (11, 1, "abc")
    assert origin_of(store.database, attempt.trial_id + 1) is None


def test_rows_of_old_attempts_are_read_instead_of_kept(store: Store, monkeypatch):
    recorder = store.recorder()
    monkeypatch.setattr(recorder, "_rows", RowIds(store.study._study_id, most=3))
    running = store.attempt()
    lease(recorder, running)
    recorder.commit()

    for _ in range(5):
        attempt = store.attempt()
        lease(recorder, attempt, GPUS[1])
        finish(recorder, attempt, Outcome.COMPLETED)
    recorder.metrics(running.id, 1, {"speed": 2.0})
    finish(recorder, running, Outcome.PRUNED)

    assert len(recorder._rows) == 3
    rows = {row["id"]: row for row in store.rows(AttemptRow)}
    [metric] = store.rows(MetricRow)
    assert rows[metric["attempt_id"]]["trial_id"] == running.trial_id
    assert rows[metric["attempt_id"]]["outcome"] is Outcome.PRUNED
    assert [row["released_at"] is not None for row in store.rows(LeaseRow)] == [True] * 6
