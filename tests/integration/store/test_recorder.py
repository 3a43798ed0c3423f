"""What the dispatcher writes, and what it is refused, on every database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import optuna
import pymysql
import pytest
import sqlalchemy as sa

from tests.fakes import a_gpu
from tests.hosts import ALIVE, DEAD, ELSEWHERE
from tuner.attempt import Attempt, AttemptState, Cause, Ending, Outcome, advance
from tuner.devices.allocation.pool import Lease
from tuner.devices.allocation.width import WHOLE, parts_of
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device
from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.host.clock import Instant
from tuner.messages import Json
from tuner.store.connection.database import Database, open_database
from tuner.store.records.dispatchers.ownership import TakenOver
from tuner.store.records.dispatchers.peers import work_elsewhere
from tuner.store.records.dispatchers.starts import (
    Sign,
    StartRecord,
    host_id_of,
    insert_dispatcher,
    open_dispatchers,
    past_use,
)
from tuner.store.records.provenance import GitState, HostFacts
from tuner.store.records.queries import first_seed, origin_of
from tuner.store.records.recorder import Recorder
from tuner.store.schema.models import (
    AttemptRow,
    DeviceRow,
    DispatcherRow,
    EventRow,
    HostRow,
    LeaseRow,
    MetricRow,
    TunerBase,
    table_of,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GPUS = (a_gpu(0), a_gpu(1))
X_IS_HALF: Mapping[str, Json] = {"x": 0.5}


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class StandingClock:
    def __init__(self, at: datetime) -> None:
        self._now = Instant(utc=at, monotonic_s=0.0)

    def now(self) -> Instant:
        return self._now


class Store:
    """A database with one study in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.database: Database = open_database(url)
        self.study = optuna.create_study(storage=self.database.storage, study_name="s")

    def recorder(
        self,
        host: HostFacts = DEAD,
        *,
        at: datetime = NOW,
        devices: tuple[Device, ...] = GPUS,
        study_id: int | None = None,
        seed: int = 5,
        silent: Collection[Sign] = (),
    ) -> Recorder:
        start = StartRecord(
            study_id=self.study._study_id if study_id is None else study_id,
            host=host,
            seed=seed,
            study_file="study: s",
            folder="/studies",
            versions={"python": "3"},
            git=GitState(commit="abc", is_dirty=True),
        )
        return Recorder(self.database, start, devices, clock=StandingClock(at), silent=silent)

    def attempt(self, number: int = 1) -> Attempt:
        trial = self.study.ask()
        return Attempt(
            trial_id=trial._trial_id,
            trial_number=trial.number,
            number=number,
            seed=11,
            leased_at=NOW,
        )

    def rows(self, table: type[TunerBase]) -> list[dict[str, object]]:
        with self.database.engine.connect() as connection:
            query = sa.select(table_of(table)).order_by(table_of(table).c.id)
            return [dict(row) for row in connection.execute(query).mappings()]

    def change(self, table: type[TunerBase], **values: object) -> None:
        with self.database.engine.begin() as connection:
            connection.execute(sa.update(table).values(**values))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(url)
    yield store
    store.database.close()


def lease(
    recorder: Recorder,
    attempt: Attempt,
    *devices: Device,
    parts: int = WHOLE,
    params: Mapping[str, Json] = X_IS_HALF,
) -> None:
    held = Lease(number=1, attempt_id=attempt.id, devices=devices or GPUS[:1], parts=parts)
    recorder.lease(attempt, held, params=params, log_path="/log")


def run_to_its_end(recorder: Recorder, attempt: Attempt, outcome: Outcome) -> Attempt:
    lease(recorder, attempt)
    return finish(recorder, attempt, outcome)


def finish(
    recorder: Recorder, attempt: Attempt, outcome: Outcome, *, detail: str = "why"
) -> Attempt:
    """Moves it through its states, a second each."""
    ending = Ending(outcome=outcome, cause=Cause.PRUNER, detail=detail)
    attempt = replace(advance(attempt, AttemptState.RUNNING, at=later(1)), pid=42)
    recorder.moved(attempt, at=later(1))
    attempt = advance(replace(attempt, ending=ending), AttemptState.CLEARING, at=later(2))
    recorder.moved(attempt, at=later(2), params={"x": 0.5, "y": 1})
    attempt = advance(attempt, AttemptState.FINISHED, at=later(3))
    recorder.moved(attempt, at=later(3))
    recorder.commit()
    return attempt


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
    refuse = _refuse_table("tuner_events")
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
    with pytest.raises(StoreError):
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
    second.end(later(105))
    second.commit()
    assert store.recorder(at=later(200)).past.time_s == 15


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
    with store.database.engine.begin() as connection:
        for begin, end in times:
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


def test_origin_names_the_attempt_that_completed_a_trial(store: Store):
    attempt = run_to_its_end(store.recorder(), store.attempt(), Outcome.COMPLETED)
    origin = origin_of(store.database, attempt.trial_id)
    assert origin is not None
    assert (origin.seed, origin.attempt_number, origin.git_commit) == (11, 1, "abc")
    assert origin_of(store.database, attempt.trial_id + 1) is None


def _refuse_table(name: str):
    def refuse(*arguments: object) -> None:
        if f"INSERT INTO {name}" in str(arguments[2]):
            raise sa.exc.OperationalError(str(arguments[2]), None, OSError("No space left"))

    return refuse


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


# -- few statements ----------------------------------------------------------------------------


class Statements:
    """Those that an engine executes while it is entered."""

    def __init__(self, store: Store) -> None:
        self._engine = store.database.engine
        self.texts: list[str] = []

    def __enter__(self) -> list[str]:
        sa.event.listen(self._engine, "before_cursor_execute", self._note)
        return self.texts

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "before_cursor_execute", self._note)

    def _note(self, *arguments: object) -> None:
        self.texts.append(str(arguments[2]))


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
