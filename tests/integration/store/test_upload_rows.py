"""What an object store has acknowledged: recorded once, shared by copies, removed when unwanted."""

from __future__ import annotations

from dataclasses import replace

from tests.hosts import ALIVE
from tests.integration.store.recorder.recorded import GPUS, Store, later, lease
from tuner.checkpoints.scan import SavedState
from tuner.domain.attempt import Attempt
from tuner.store.records.recorder import Recorder
from tuner.store.records.upload_rows import NewUpload, StoredUpload
from tuner.store.schema.models import UploadKind, UploadRow


def begun(recorder: Recorder, store: Store, gpu: int = 0) -> Attempt:
    attempt = store.attempt()
    lease(recorder, attempt, GPUS[gpu])
    recorder.commit()
    return attempt


def upload(attempt: Attempt, step: int) -> NewUpload:
    stored = StoredUpload(
        step=step,
        name=f"step-{step}.pt",
        uri=f"s3://b/trial-{attempt.trial_number}/step-{step}",
        size_bytes=10,
        saved_at=later(step),
    )
    return NewUpload(
        trial_id=attempt.trial_id, attempt=1, kind=UploadKind.CHECKPOINT, stored=stored
    )


def steps(recorder: Recorder, trial_id: int) -> list[int]:
    return [each.step for each in recorder.uploads.of_trial(trial_id)]


def test_an_upload_is_recorded_once(store: Store) -> None:
    recorder = store.recorder()
    attempt = begun(recorder, store)
    recorder.uploads.add([upload(attempt, 1), upload(attempt, 2)])
    recorder.uploads.add([upload(attempt, 2)])
    assert recorder.uploads.of_trial(attempt.trial_id) == [
        upload(attempt, 2).stored,
        upload(attempt, 1).stored,
    ]
    assert recorder.uploads.sizes() == {attempt.trial_number: 20}


def test_only_the_newest_are_kept_and_objects_go_once_nobody_wants_them(store: Store) -> None:
    recorder = store.recorder()
    attempt = begun(recorder, store)
    recorder.uploads.add([upload(attempt, step) for step in (1, 2, 3)])
    recorder.uploads.rotate([attempt.trial_id], 2)
    assert steps(recorder, attempt.trial_id) == [3, 2]
    assert recorder.uploads.take_unwanted() == [upload(attempt, 1).stored.uri]
    # As after a crash: it is known until it is gone.
    assert recorder.uploads.take_unwanted() == [upload(attempt, 1).stored.uri]
    recorder.uploads.forget(upload(attempt, 1).stored.uri)
    assert recorder.uploads.take_unwanted() == []
    assert len(store.rows(UploadRow)) == 2


def test_a_copy_refers_to_the_object_of_its_parent(store: Store) -> None:
    recorder = store.recorder()
    parent, replaced = begun(recorder, store, 0), begun(recorder, store, 1)
    child = store.attempt()
    recorder.uploads.add([upload(parent, 4)])
    assert recorder.uploads.hand_on(parent.trial_number, replaced.trial_number) == 4
    assert steps(recorder, replaced.trial_id) == []
    assert recorder.uploads.give(replaced.trial_number, child.trial_number) == 4
    # The same however often it is done.
    assert recorder.uploads.give(replaced.trial_number, child.trial_number) == 4
    assert recorder.uploads.of_trial(child.trial_id) == [upload(parent, 4).stored]
    recorder.uploads.remove([parent.trial_number])
    assert steps(recorder, parent.trial_id) == []
    assert recorder.uploads.take_unwanted() == []
    recorder.uploads.remove([child.trial_number])
    assert recorder.uploads.take_unwanted() == [upload(parent, 4).stored.uri]


def test_what_is_not_handed_on_after_all_is_dropped(store: Store) -> None:
    recorder = store.recorder()
    parent, replaced = begun(recorder, store, 0), begun(recorder, store, 1)
    recorder.uploads.add([upload(parent, 4)])
    recorder.uploads.hand_on(parent.trial_number, replaced.trial_number)
    recorder.uploads.drop(replaced.trial_number)
    assert recorder.uploads.newest_of(replaced.trial_number, UploadKind.HANDED_ON) is None
    assert recorder.uploads.take_unwanted() == []
    assert steps(recorder, parent.trial_id) == [4]


def test_an_object_that_is_to_be_removed_is_referred_to_no_more(store: Store) -> None:
    recorder = store.recorder()
    parent, child = begun(recorder, store, 0), begun(recorder, store, 1)
    recorder.uploads.add([upload(parent, 4)])
    copy = replace(upload(parent, 4), trial_id=child.trial_id)
    recorder.uploads.remove([parent.trial_number])
    assert not recorder.uploads.refer(copy)
    assert steps(recorder, child.trial_id) == []


def test_what_was_saved_here_and_never_acknowledged_is_found_again(store: Store) -> None:
    recorder = store.recorder(ALIVE)
    attempt = begun(recorder, store)
    for step in (1, 2):
        path = f"/c/step-{step}.pt"
        recorder.saved(
            attempt, SavedState(path=path, step=step, size_bytes=10, saved_at=later(step))
        )
    recorder.commit()
    recorder.uploads.add([upload(attempt, 1)])
    (unsent,) = recorder.uploads.unsent("here")
    assert (unsent.path, unsent.attempt, unsent.trial_id) == ("/c/step-2.pt", 1, attempt.trial_id)
    assert recorder.uploads.unsent("there") == []
    saved = recorder.uploads.newest_saved(attempt.trial_id)
    # Nobody waits for what this dispatcher uploads itself.
    assert saved is not None
    assert (saved.step, saved.is_awaited) == (2, False)
