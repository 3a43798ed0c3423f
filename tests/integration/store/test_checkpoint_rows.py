"""Checkpoints in the database: those that were seen, once each, and gone when the files are."""

from __future__ import annotations

from dataclasses import replace

from tests.hosts import ALIVE, ELSEWHERE
from tests.integration.store.recorder.recorded import GPUS, Store, later, lease
from tuner.checkpoints.scan import SavedState
from tuner.domain.attempt import Attempt
from tuner.queries.checkpoints import read_checkpoints
from tuner.store.records.recorder import Recorder
from tuner.store.schema.models import CheckpointRow

STATE = SavedState(path="/c/step-1.pt", step=1, size_bytes=2**40, saved_at=later(1.25))
NEXT = SavedState(path="/c/step-2.pt", step=2, size_bytes=7, saved_at=later(2))


def begun(recorder: Recorder, store: Store) -> Attempt:
    attempt = store.attempt()
    lease(recorder, attempt, GPUS[attempt.trial_number])
    return attempt


def stored(store: Store) -> list[tuple[object, ...]]:
    columns = ("path", "step", "size_bytes", "saved_at")
    return [tuple(row[name] for name in columns) for row in store.rows(CheckpointRow)]


def as_row(state: SavedState) -> tuple[object, ...]:
    return (state.path, state.step, state.size_bytes, state.saved_at.replace(tzinfo=None))


def test_states_are_written_with_the_next_batch(store: Store) -> None:
    recorder = store.recorder()
    attempt = begun(recorder, store)
    recorder.saved(attempt, STATE)
    assert recorder.has_pending
    assert stored(store) == []
    recorder.commit()
    assert stored(store) == [as_row(STATE)]
    with store.database.engine.connect() as connection:
        (shown,) = read_checkpoints(connection, [attempt.trial_id])[attempt.trial_id]
    assert (shown.host, shown.attempt, shown.saved_at) == ("here", 1, STATE.saved_at)


def test_state_that_was_written_anew_takes_the_place_of_the_old(store: Store) -> None:
    recorder = store.recorder()
    attempt = begun(recorder, store)
    recorder.saved(attempt, STATE)
    recorder.commit()
    anew = replace(STATE, size_bytes=9, saved_at=later(5))
    recorder.saved(attempt, anew)
    recorder.saved(attempt, NEXT)
    recorder.commit()
    assert stored(store) == [as_row(anew), as_row(NEXT)]


def test_state_that_is_gone_is_forgotten(store: Store) -> None:
    recorder = store.recorder()
    attempt, other = begun(recorder, store), begun(recorder, store)
    for each in (attempt, other):
        recorder.saved(each, STATE)
        recorder.saved(each, NEXT)
    recorder.commit()
    recorder.removed(attempt.trial_id, STATE.path)
    recorder.commit()
    assert sorted(stored(store)) == sorted([as_row(NEXT), as_row(STATE), as_row(NEXT)])


def test_later_attempt_that_finds_a_state_does_not_take_it_for_its_own(store: Store) -> None:
    first = store.recorder(ELSEWHERE)
    attempt = begun(first, store)
    first.saved(attempt, STATE)
    first.end(later(9))
    first.commit()
    second = store.recorder(ALIVE)
    again = replace(attempt, number=2)
    lease(second, again, GPUS[1])
    second.saved(again, STATE)
    second.saved(again, NEXT)
    second.commit()
    with store.database.engine.connect() as connection:
        shown = read_checkpoints(connection, [attempt.trial_id])[attempt.trial_id]
    assert [(each.step, each.attempt, each.host) for each in shown] == [
        (2, 2, "here"),
        (1, 1, "there"),
    ]
    newest = second.history.checkpoints_of(attempt.trial_id)[0]
    assert (newest.step, newest.host, newest.path) == (2, "here", NEXT.path)


def test_what_a_trial_had_in_a_folder_is_forgotten_also_after_the_end(store: Store) -> None:
    recorder = store.recorder()
    attempt, other = begun(recorder, store), begun(recorder, store)
    elsewhere = replace(NEXT, path="/c2/step-2.pt")
    for state in (STATE, NEXT, elsewhere):
        recorder.saved(attempt, state)
    recorder.saved(other, STATE)
    recorder.end(later(9))
    recorder.commit()
    recorder.forget_checkpoints(attempt.trial_number, "/c")
    recorder.write_removals()
    assert sorted(stored(store)) == sorted([as_row(elsewhere), as_row(STATE)])
    assert not recorder.has_pending


def test_trial_without_states_has_none(store: Store) -> None:
    recorder = store.recorder()
    assert recorder.history.checkpoints_of(begun(recorder, store).trial_id) == []


def test_state_gets_another_path_where_another_machine_sees_it(store: Store) -> None:
    recorder = store.recorder()
    attempt = begun(recorder, store)
    recorder.saved(attempt, STATE)
    recorder.commit()
    moved = replace(STATE, path="/mnt/c/step-1.pt")
    recorder.renamed(attempt.trial_id, STATE.path, moved.path)
    recorder.saved(attempt, moved)
    recorder.commit()
    assert stored(store) == [as_row(moved)]
