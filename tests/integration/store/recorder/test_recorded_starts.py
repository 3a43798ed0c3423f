"""What a start finds of earlier dispatchers and of what they used, on every database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import optuna
import pytest
import sqlalchemy as sa

from tests.hosts import ALIVE, DEAD, ELSEWHERE
from tests.integration.store.recorder.recorded import GPUS, NOW, Store, later, lease, run_to_its_end
from tuner.devices.allocation.width import parts_of
from tuner.domain.attempt import AttemptState, Cause, Ending, Outcome, advance
from tuner.errors import StoreError
from tuner.store.records.dispatchers.ownership import TakenOver
from tuner.store.records.dispatchers.peers import work_elsewhere
from tuner.store.records.dispatchers.starts import (
    StartRecord,
    host_id_of,
    insert_dispatcher,
    open_dispatchers,
    past_use,
)
from tuner.store.records.programs import CODE, other_code_text
from tuner.store.records.provenance import GitState, HostFacts
from tuner.store.records.queries import first_seed
from tuner.store.records.recorder import Recorder
from tuner.store.schema.models import (
    AttemptRow,
    DeviceRow,
    DispatcherRow,
    HostRow,
    LeaseRow,
)


# -- other dispatchers -------------------------------------------------------------------------
@pytest.fixture
def sqlite_store(store: Store) -> Store:
    if not store.url.startswith("sqlite"):
        pytest.skip("the dispatchers of a server's study work side by side")
    return store


def test_second_dispatcher_is_refused_while_the_first_is_alive(sqlite_store: Store):
    store = sqlite_store
    store.recorder(ALIVE)
    with pytest.raises(StoreError, match=r"being run already, on here \(pid \d+, since") as caught:
        store.recorder(ALIVE, at=later(3600))
    assert "--study NEW_NAME" in str(caught.value)
    assert len(store.rows(DispatcherRow)) == 1


def test_dispatchers_that_run_other_code_are_named(store: Store):
    def said(host: HostFacts, git: GitState) -> str:
        start = StartRecord(
            study_id=store.study._study_id,
            host=host,
            seed=1,
            study_file="study: s",
            folder="/studies",
            versions={CODE: git.snapshot} if git.snapshot else {},
            git=git,
        )
        with store.database.engine.begin() as connection:
            text = other_code_text(connection, start)
            insert_dispatcher(connection, start, host_id_of(connection, host), NOW)
        return text

    commit = GitState(commit="9c4b" * 10, is_dirty=False)
    assert said(ALIVE, commit) == ""
    assert said(ELSEWHERE, commit) == ""
    dirty = said(ALIVE, replace(commit, is_dirty=True))
    assert "this dispatcher runs commit 9c4b9c4b9c4b with changes; others of the study" in dirty
    snapshot = said(ALIVE, replace(commit, snapshot="1f3a"))
    assert "runs snapshot 1f3a; others of the study run other code: here (pid " in snapshot
    store.change(DispatcherRow, ended_at=NOW)
    assert said(ALIVE, replace(commit, snapshot="77aa")) == ""


def test_dispatcher_that_has_ended_stands_in_nobodys_way(store: Store):
    first = store.recorder(ALIVE)
    first.end(later(5))
    first.commit()
    store.recorder(ALIVE, at=later(6))


def test_dispatcher_of_another_study_stands_in_nobodys_way(store: Store):
    store.recorder(ALIVE)
    other = optuna.create_study(storage=store.database.storage, study_name="other")
    store.recorder(ALIVE, study_id=other._study_id)


def test_studies_that_start_at_once_on_a_new_host_share_its_rows(store: Store):
    others = [optuna.create_study(storage=store.database.storage) for _ in range(3)]
    ids = [store.study._study_id, *(other._study_id for other in others)]
    ended = at_once([partial(store.recorder, ALIVE, study_id=study_id) for study_id in ids])
    assert len(ended) == len(ids)
    assert len(store.rows(HostRow)) == 1
    assert len(store.rows(DeviceRow)) == len(GPUS)


def at_once(calls: Sequence[Callable[[], Recorder]]) -> list[Recorder]:
    barrier = threading.Barrier(len(calls))

    def carry_out(call: Callable[[], Recorder]) -> Recorder:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(carry_out, calls))


def test_dispatcher_elsewhere_is_alive_unless_it_was_watched_in_vain(sqlite_store: Store):
    store = sqlite_store
    first = store.recorder(ELSEWHERE)
    first.beat(later(100), ())
    first.commit()
    with store.database.engine.connect() as connection:
        silent = [one.sign for one in open_dispatchers(connection, None)]
    with pytest.raises(StoreError, match="on there"):
        store.recorder(ALIVE, at=later(10_000))
    first.beat(later(101), ())
    first.commit()
    with pytest.raises(StoreError, match="on there"):
        store.recorder(ALIVE, at=later(10_000), silent=silent)
    with store.database.engine.connect() as connection:
        silent = [one.sign for one in open_dispatchers(connection, None)]
    store.recorder(ALIVE, at=later(102), silent=silent)
    first.note("late", at=later(103))
    with pytest.raises(TakenOver):
        first.commit()


def test_dead_dispatcher_is_taken_over(store: Store):
    first = store.recorder(DEAD)
    running, stopping = store.attempt(), store.attempt()
    lease(first, running, GPUS[0])
    lease(first, stopping, GPUS[1])
    first.moved(advance(running, AttemptState.RUNNING, at=NOW), at=NOW)
    first.moved(advance(stopping, AttemptState.STOPPING, at=NOW), at=NOW)
    first.commit()
    second = store.recorder(ALIVE, at=later(1000))
    lost = store.rows(AttemptRow)
    assert {row["state"] for row in lost} == {AttemptState.FINISHED}
    assert {row["outcome"] for row in lost} == {Outcome.LOST}
    assert {row["cause"] for row in lost} == {Cause.DISPATCHER_GONE}
    assert {row["held_device_id"] for row in store.rows(LeaseRow)} == {None}
    assert store.rows(DispatcherRow)[0]["ended_at"] == store.rows(DispatcherRow)[0]["beat_at"]
    lease(second, store.attempt(), *GPUS)
    second.commit()


def test_finished_attempts_of_a_dead_dispatcher_stay_as_they_are(store: Store):
    run_to_its_end(store.recorder(DEAD), store.attempt(), Outcome.COMPLETED)
    before = store.rows(AttemptRow), store.rows(LeaseRow)
    store.recorder(ALIVE, at=later(1000))
    assert (store.rows(AttemptRow), store.rows(LeaseRow)) == before


# -- what was spent ----------------------------------------------------------------------------
def test_past_of_a_new_study_is_nothing(store: Store):
    past = store.recorder().past
    assert (past.time_s, past.device_s) == (0, 0)


def test_past_adds_up_earlier_starts_and_leases(store: Store):
    first = store.recorder()
    run_to_its_end(first, store.attempt(), Outcome.COMPLETED)
    first.end(later(10))
    first.commit()
    second = store.recorder(at=later(100))
    assert (second.past.time_s, second.past.device_s) == (10, 3)
    # It waits for a device for 20 s: that time is not spent.
    lease(second, replace(store.attempt(), leased_at=later(120)))
    second.end(later(125))
    second.commit()
    third = store.recorder(at=later(200))
    assert third.past.time_s == 15
    third.end(later(300))
    third.commit()
    assert store.recorder(at=later(400)).past.time_s == 15


def test_past_counts_a_dead_dispatcher_until_its_last_beat(store: Store):
    first = store.recorder(DEAD)
    lease(first, store.attempt(), *GPUS)
    first.beat(later(30), ())
    first.commit()
    second = store.recorder(DEAD, at=later(7 * 24 * 3600))
    assert (second.past.time_s, second.past.device_s) == (30, 60)
    third = store.recorder(ALIVE, at=later(8 * 24 * 3600))
    assert (third.past.time_s, third.past.device_s) == (30, 60)


def test_past_of_a_lease_after_the_last_beat_is_never_negative(store: Store):
    first = store.recorder(DEAD, at=later(-20))
    lease(first, store.attempt())
    first.commit()
    assert store.recorder(ALIVE, at=later(50)).past.device_s == 0


def test_past_is_the_time_in_which_anybody_worked(store: Store):
    """0-10 and 5-30 side by side, 20-25 within, a pause, and 40-50 of one that works still."""
    times = [(0, 10), (5, 30), (20, 25), (40, 50)]
    study_id = store.study._study_id
    trial_ids = [store.study.ask()._trial_id for _ in times]
    with store.database.engine.begin() as connection:
        for trial_id, (begin, end) in zip(trial_ids, times, strict=True):
            start = StartRecord(
                study_id=study_id,
                host=ELSEWHERE,
                seed=1,
                study_file="",
                folder="",
                versions={},
                git=GitState(),
            )
            host_id = host_id_of(connection, ELSEWHERE)
            row_id = insert_dispatcher(connection, start, host_id, later(begin))
            at = later(end).replace(tzinfo=None)
            change = {"beat_at": at} if begin == 40 else {"beat_at": at, "ended_at": at}
            row = sa.update(DispatcherRow).where(DispatcherRow.id == row_id)
            connection.execute(row.values(change))
            attempt = {
                "dispatcher_id": row_id,
                "trial_id": trial_id,
                "number": 1,
                "state": AttemptState.FINISHED,
                "detail": "",
                "params": {},
                "seed": 1,
                "log_path": "",
                "leased_at": later(begin).replace(tzinfo=None),
            }
            connection.execute(sa.insert(AttemptRow).values(attempt))
        assert past_use(connection, study_id).time_s == 40


def test_past_of_shares_and_parts_of_a_second_is_exact(store: Store):
    first = store.recorder()
    attempt = replace(store.attempt(), leased_at=later(0.75))
    lease(first, attempt, GPUS[0], parts=parts_of(0.25))
    attempt = advance(
        replace(attempt, ending=Ending(outcome=Outcome.FAILED, cause=Cause.PRUNER, detail="")),
        AttemptState.CLEARING,
        at=later(86_400),
    )
    first.moved(attempt, at=later(86_400), params={})
    first.moved(advance(attempt, AttemptState.FINISHED, at=later(86_400.25)), at=later(86_400.25))
    first.commit()
    with store.database.engine.connect() as connection:
        assert past_use(connection, store.study._study_id).device_s == 86_399.5 / 4
        assert work_elsewhere(connection, store.study._study_id, own_id=0) == 86_399.5 / 4


# -- reading it again --------------------------------------------------------------------------
def test_first_seed_is_that_of_the_first_start(store: Store):
    study_id = store.study._study_id
    assert first_seed(store.database, study_id) is None
    store.recorder(DEAD, seed=5)
    store.recorder(DEAD, seed=6, at=later(10))
    assert first_seed(store.database, study_id) == 5
