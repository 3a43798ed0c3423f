"""What one dispatcher may write, statement by statement; `test_peers` has several at work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from optuna.trial import TrialState, create_trial

from tests.databases import new_database
from tests.integration.stored_studies import seeded
from tuner.errors import StoreError
from tuner.host.clock import SystemClock
from tuner.store.optuna_tables.pauses import PAUSED_KEY
from tuner.store.records.dispatchers.ownership import NoTrialLeft, Ownership, TakenOver


@dataclass(frozen=True, kw_only=True)
class Place:
    """A study `s` in a database."""

    url: str
    engine: sa.Engine
    study: optuna.Study

    def join(self, n_trials: int | None = None, study: optuna.Study | None = None) -> Ownership:
        study = study or self.study
        dispatcher_id = seeded.add_dispatcher(self.url, study.study_name)
        return Ownership(dispatcher_id, study._study_id, n_trials, SystemClock())

    def another_study(self) -> optuna.Study:
        return optuna.create_study(study_name="another", storage=self.study._storage)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]

    def end(self, one: Ownership) -> None:
        with self.engine.begin() as connection:
            query = sa.text("UPDATE tuner_dispatchers SET ended_at = beat_at WHERE id = :id")
            connection.execute(query, {"id": one.dispatcher_id})

    def pause(self, trial_id: int, step: int | None) -> None:
        self.study._storage.set_trial_system_attr(trial_id, PAUSED_KEY, step)

    def may_begin(self, one: Ownership, trial_id: int) -> bool:
        with self.engine.begin() as connection:
            return one.may_begin_waiting(connection, trial_id)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    url = new_database(tmp_path)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"poolclass": sa.NullPool})
    yield Place(url=url, engine=engine, study=optuna.create_study(study_name="s", storage=storage))
    storage.remove_session()
    engine.dispose()


def waiting(study: optuna.Study) -> int:
    study.enqueue_trial({})
    return study.get_trials()[-1]._trial_id


def test_each_renews_its_own_record_until_it_is_ended(place: Place) -> None:
    one, other = place.join(), place.join()
    before = dict(place.rows("SELECT id, beat_at FROM tuner_dispatchers"))
    with place.engine.begin() as connection:
        one.renew(connection)
    after = dict(place.rows("SELECT id, beat_at FROM tuner_dispatchers"))
    assert after[one.dispatcher_id] != before[one.dispatcher_id]
    assert after[other.dispatcher_id] == before[other.dispatcher_id]
    place.end(one)
    with place.engine.begin() as connection, pytest.raises(TakenOver):
        one.renew(connection)
    with place.engine.begin() as connection, pytest.raises(TakenOver):
        one.begin(connection)
    with place.engine.begin() as connection:
        other.begin(connection)


#: A wait for a lock ends soon.
_IMPATIENT = {
    "sqlite": "PRAGMA busy_timeout = 100",
    "postgresql": "SET lock_timeout = '100ms'",
    "mysql": "SET innodb_lock_wait_timeout = 1",
}


def test_nobody_else_begins_before_the_end_of_a_transaction(url: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    study = optuna.create_study(study_name="s", storage=url)
    one, other = (
        Ownership(seeded.add_dispatcher(url, "s"), study._study_id, None, SystemClock())
        for _ in range(2)
    )
    with engine.connect() as first, engine.connect() as second:
        second.exec_driver_sql(_IMPATIENT[engine.dialect.name])
        second.commit()
        with first.begin():
            one.begin(first)
            with pytest.raises(sa.exc.OperationalError), second.begin():
                other.begin(second)
        with second.begin():
            other.begin(second)


def test_a_batch_is_written_once(place: Place) -> None:
    one, other = place.join(), place.join()

    def is_to_be_written(number: int, who: Ownership = one) -> bool:
        with place.engine.begin() as connection:
            return who.begin_batch(connection, number)

    assert is_to_be_written(1) is True
    assert is_to_be_written(1) is False
    assert is_to_be_written(2) is True
    assert is_to_be_written(1, other) is True
    # The database was restored from a copy of before.
    with pytest.raises(StoreError, match=r"batch 4 .* knows of 2") as lost:
        is_to_be_written(4)
    assert not isinstance(lost.value, TakenOver)
    place.end(one)
    assert is_to_be_written(2) is False, "it was written before"
    with pytest.raises(TakenOver):
        is_to_be_written(3)
    nobody = Ownership(999, place.study._study_id, None, SystemClock())
    with pytest.raises(TakenOver):
        is_to_be_written(1, nobody)


def test_no_more_trials_are_begun_than_allowed_but_those_that_were_begun_go_on(
    place: Place,
) -> None:
    place.study.ask()
    place.study.add_trial(create_trial(value=1.0))
    first, second = waiting(place.study), waiting(place.study)
    other = place.another_study()
    for _ in range(5):
        other.ask()
    place.pause(waiting(other), 3)
    assert place.may_begin(place.join(None), first)
    assert place.may_begin(place.join(3), first)
    assert not place.may_begin(place.join(2), first)
    place.pause(second, None)
    place.study._storage.set_trial_system_attr(second, "another key", 1)
    assert not place.may_begin(place.join(2), second), "it was resumed, and waits for a device"
    assert place.may_begin(place.join(3), first)
    place.pause(second, 3)
    assert place.may_begin(place.join(2), second), "it was begun before it paused"
    assert not place.may_begin(place.join(2), first)
    assert not place.may_begin(place.join(3), first), "one that is paused was begun"
    assert place.may_begin(place.join(4), first)


def test_a_new_trial_has_to_be_within_the_budget(place: Place) -> None:
    place.join(None).check_room(10)
    place.join(2).check_room(1)
    with pytest.raises(NoTrialLeft):
        place.join(2).check_room(2)


def test_a_claim_replaces_that_of_another_one(place: Place) -> None:
    one, other = place.join(), place.join()
    ids = [place.study.ask()._trial_id for _ in range(2)]
    with place.engine.begin() as connection:
        for trial_id in ids:
            other.claim_new(connection, trial_id)
        one.claim(connection, ids[0])
    claims = "SELECT trial_id, dispatcher_id FROM tuner_claims ORDER BY trial_id"
    assert place.rows(claims) == [(ids[0], one.dispatcher_id), (ids[1], other.dispatcher_id)]
    # SQLite gives the id of a deleted trial out again.
    with place.engine.begin() as connection:
        one.claim_new(connection, ids[1])
    assert place.rows(claims) == [(trial_id, one.dispatcher_id) for trial_id in ids]


def test_claims_that_a_dispatcher_knows_nothing_of_are_given_up(place: Place) -> None:
    another = place.another_study()
    one, other = place.join(), place.join()
    known, unknown, ended, theirs = (place.study.ask() for _ in range(4))
    elsewhere = another.ask()
    place.study.tell(ended, 1.0)
    with place.engine.begin() as connection:
        for trial in (known, unknown, ended, elsewhere):
            one.claim(connection, trial._trial_id)
        other.claim(connection, theirs._trial_id)
        one.give_up_all_but(connection, [known._trial_id])
    states = [trial.state for trial in (*place.study.get_trials(), *another.get_trials())]
    running = TrialState.RUNNING
    assert states == [running, TrialState.WAITING, TrialState.COMPLETE, running, running]
    claimed = {trial_id for (trial_id,) in place.rows("SELECT trial_id FROM tuner_claims")}
    assert claimed == {each._trial_id for each in (known, ended, elsewhere, theirs)}
