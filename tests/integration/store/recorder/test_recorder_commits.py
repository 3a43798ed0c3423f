"""Batches of the recorder: one commit, few statements, and what another writer does to it."""

from __future__ import annotations

from dataclasses import replace

import pymysql
import pytest
import sqlalchemy as sa

from tests.integration.store.recorder.recorded import (
    GPUS,
    NOW,
    Statements,
    Store,
    later,
    lease,
)
from tuner.domain.attempt import AttemptState, Cause, Ending, Outcome, advance
from tuner.errors import StoreError
from tuner.store.schema.models import (
    AttemptRow,
    DispatcherRow,
    EventRow,
    LeaseRow,
    table_of,
)


def test_batch_that_the_database_has_lost_after_it_confirmed_it_is_told(store: Store) -> None:
    recorder = store.recorder()
    recorder.note("a", at=NOW)
    recorder.commit()
    with store.database.engine.begin() as connection:
        connection.execute(sa.update(table_of(DispatcherRow)).values(n_batches=0))
    recorder.note("b", at=NOW)
    with pytest.raises(StoreError, match="lost changes that it had confirmed"):
        recorder.commit()


def test_study_that_was_deleted_is_written_no_more(store: Store) -> None:
    recorder = store.recorder()
    with store.database.engine.begin() as connection:
        connection.execute(sa.delete(table_of(DispatcherRow)))
    recorder.note("b", at=NOW)
    with pytest.raises(StoreError, match="It writes no more"):
        recorder.commit()


def test_transaction_that_loses_against_another_is_tried_again(store: Store) -> None:
    recorder = store.recorder()
    losses = []

    def lose(*arguments: object) -> None:
        if "tuner_events" in str(arguments[2]) and len(losses) < 3:
            losses.append(1)
            error = pymysql.OperationalError(1213, "Deadlock found when trying to get lock")
            raise sa.exc.OperationalError("INSERT", None, error)

    sa.event.listen(store.database.engine, "before_cursor_execute", lose)
    recorder.note("a", at=NOW)
    recorder.commit()
    assert len(losses) == 3
    assert [row["name"] for row in store.rows(EventRow)] == ["a"]


def test_moves_and_events_of_a_batch_are_one_statement_each(store: Store) -> None:
    recorder = store.recorder()
    attempts = [store.attempt(), store.attempt()]
    for attempt, gpu in zip(attempts, GPUS, strict=True):
        lease(recorder, attempt, gpu)
    recorder.commit()
    running = [advance(each, AttemptState.RUNNING, at=later(1)) for each in attempts]
    with Statements(store) as texts:
        for each in running:
            recorder.moved(each, at=later(1))
            recorder.moved(advance(each, AttemptState.STOPPING, at=later(2)), at=later(2))
        recorder.commit()
    assert [text.split()[:3] for text in texts] == [
        ["UPDATE", "tuner_dispatchers", "SET"],
        ["UPDATE", "tuner_attempts", "SET"],
        ["INSERT", "INTO", "tuner_events"],
    ]
    events = [(row["attempt_id"], row["name"]) for row in store.rows(EventRow)[2:]]
    first, second = (row["id"] for row in store.rows(AttemptRow))
    assert events == [(id_, name) for id_ in (first, second) for name in ("running", "stopping")]
    assert {row["state"] for row in store.rows(AttemptRow)} == {AttemptState.STOPPING}


def test_attempt_that_begins_and_ends_in_one_batch_is_there_as_it_ended(store: Store) -> None:
    recorder = store.recorder()
    first, second = store.attempt(), store.attempt()
    lease(recorder, first, GPUS[0])
    ending = Ending(outcome=Outcome.FAILED, cause=Cause.PRUNER, detail="why")
    cleared = advance(replace(first, ending=ending), AttemptState.CLEARING, at=later(2))
    recorder.moved(cleared, at=later(2), params={"x": 1})
    recorder.moved(advance(cleared, AttemptState.FINISHED, at=later(3)), at=later(3))
    lease(recorder, second, GPUS[0])
    recorder.commit()
    rows = [(row["state"], row["outcome"], row["params"]) for row in store.rows(AttemptRow)]
    assert rows[0] == (AttemptState.FINISHED, Outcome.FAILED, {"x": 1})
    assert rows[1] == (AttemptState.LEASED, None, {"x": 0.5})
    released = [row["released_at"] for row in store.rows(LeaseRow)]
    assert released == [later(3).replace(tzinfo=None), None]
    names = [event["name"] for event in store.rows(EventRow)]
    assert names == ["leased", "clearing", "finished", "leased"]


def test_several_that_move_where_one_was_taken_over_are_refused(store: Store) -> None:
    recorder = store.recorder()
    attempts = [store.attempt(), store.attempt()]
    for attempt, gpu in zip(attempts, GPUS, strict=True):
        lease(recorder, attempt, gpu)
    recorder.commit()
    with store.database.engine.begin() as connection:
        rows = table_of(AttemptRow)
        first = sa.update(rows).where(rows.c.trial_id == attempts[0].trial_id)
        connection.execute(first.values(state=AttemptState.FINISHED))
    for attempt in attempts:
        recorder.moved(advance(attempt, AttemptState.RUNNING, at=NOW), at=NOW)
    with pytest.raises(StoreError, match="taken over by another dispatcher"):
        recorder.commit()
    assert store.rows(AttemptRow)[1]["state"] is AttemptState.LEASED


def test_new_trial_takes_few_statements_and_counts_nothing(store: Store) -> None:
    store.recorder()
    for _ in range(3):
        store.study.ask()
    store.database.storage.flush()
    with Statements(store) as texts:
        store.database.storage.create_new_trial(store.study._study_id)
    n_of_lock = 0 if store.url.startswith("sqlite") else 1
    n_of_number = 1 if store.url.startswith("mysql") and len(texts) > 4 else 0
    assert len(texts) == n_of_lock + n_of_number + 3
    assert not any("count(" in text for text in texts)
