"""Checkpoint folders that are proven to belong to trials of one study."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from tuner.checkpoints.hand_over import StateCopies
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.trial_folders import StudyKey, TrialKey, belongs_to
from tuner.search.population.stored_copies import StoredCopies
from tuner.store.connection.transactions import Unavailable
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.upload_rows import UploadRecords

BegunAt = Callable[[int, int], datetime | None]
"""When the first attempt of a trial, by number and id, got its devices."""


def copies_in(
    files: StudyFiles,
    begun_at: BegunAt | None,
    *,
    storage: BufferedStorage,
    study_id: int,
    key: StudyKey,
    uploads: UploadRecords | None = None,
) -> StateCopies:
    """Builds the object that copies checkpoints between the trials of a study.

    Args:
        files: Paths of the checkpoints.
        begun_at: Start times of the trials; None if folders hold no identity files.
        storage: Holds the study.
        study_id: Its id in the storage.
        key: Identifies the files of the study.
        uploads: Records of an object store; None if there is none.
    """
    if begun_at is None:
        return StateCopies(files)
    is_own = partial(
        _is_own, files=files, begun_at=begun_at, storage=storage, study_id=study_id, key=key
    )
    if uploads is not None:
        return StoredCopies(files, is_own, uploads)
    return StateCopies(files, is_own)


def _is_own(
    number: int,
    *,
    files: StudyFiles,
    begun_at: BegunAt,
    storage: BufferedStorage,
    study_id: int,
    key: StudyKey,
) -> bool:
    try:
        trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
        trial_key = TrialKey(
            study=key,
            number=number,
            begun_at=begun_at(number, trial_id),
            params=storage.get_trial(trial_id).params,
        )
        return belongs_to(files.trial(number), trial_key)
    except (OSError, Unavailable):
        return False  # A folder whose owner is unknown is left alone.
