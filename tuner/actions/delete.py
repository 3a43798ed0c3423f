"""`tuner delete`: a study with all that belongs to it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from tuner.actions.delete_objects import object_folders
from tuner.actions.transfer.study_tables import study_tables
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.study_folder import NOTES, own_files
from tuner.config.sections.confirm import confirmation_of
from tuner.errors import ConfigError
from tuner.host.process_identity import ProcessIdentity
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.locate import Place, StoredStudy, choose_study, reading, stored_studies, writing
from tuner.search.study_identity import key_of
from tuner.store.optuna_tables.statements import IDENTITY_ATTR, STUDIES, STUDY_ATTRS, TRIALS, ids_of
from tuner.store.records.dispatchers.silence import watch_silent
from tuner.store.records.dispatchers.starts import (
    OpenDispatcher,
    Sign,
    open_dispatchers,
    refuse_living,
)
from tuner.store.schema.models import AttemptRow

_IS_RUN = "This study is being run, on {place}. End it there with Ctrl-C, then delete it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What would be deleted."""

    study: StoredStudy
    n_trials: int
    n_attempts: int
    #: Its dispatchers that did not record their end and were watched for a minute in vain.
    silent: frozenset[Sign] = frozenset()
    #: Identifies its files; None if a version without such ids created it.
    files_id: str | None = None
    #: The same of the runs of its leaders.
    files_id_of_runs: str | None = None
    #: Folders of its objects in an object store, such as `s3://bucket/prefix/study-5f1c`.
    object_folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesExtent:
    """Logs and checkpoints of a study."""

    root: Path
    #: Folder of its confirmation runs.
    root_of_runs: Path
    #: Paths to remove there: other studies of this name may have files there too.
    own: tuple[Path, ...]
    n_files: int
    n_bytes: int


def check_is_named(place: Place, *, with_files: bool) -> None:
    """Checks that the study is named explicitly.

    Raises:
        ConfigError: If it is not clear what would be deleted.
    """
    if place.study is None:
        raise ConfigError("Name the study to delete: --study NAME. See `tuner studies`.")
    if with_files and place.config is None:
        raise ConfigError("--files needs the study file: the files are in its folder.")


def measure(place: Place, here: ProcessIdentity, say: Callable[[str], None]) -> Extent:
    """Counts what would be deleted.

    Args:
        place: The study.
        here: This process.
        say: Shows that a dispatcher is watched for a minute.

    Raises:
        StoreError: If there is no such study, or a live dispatcher works on it.
    """
    silent = watch_silent(partial(_look, place), here, say)
    with reading(place) as (_, connection):
        stored = choose_study(connection, place)
        for study_id in _with_runs(connection, stored):
            _refuse_living(connection, study_id, here, silent)
        count = sa.select(sa.func.count())
        n_trials = connection.execute(count.where(TRIALS.c.study_id == stored.id)).scalar_one()
        n_attempts = 0
        if has_our_tables(connection):
            attempts = count.where(AttemptRow.trial_id.in_(ids_of(stored.id)))
            n_attempts = connection.execute(attempts).scalar_one()
        runs = stored_studies(connection).get(confirmation_of(stored.name))
        files_id = _files_id(connection, stored.id)
        files_id_of_runs = None if runs is None else _files_id(connection, runs)
        objects = object_folders(connection, stored.id, files_id)
        if runs is not None:
            objects += object_folders(connection, runs, files_id_of_runs)
        return Extent(
            study=stored,
            n_trials=n_trials,
            n_attempts=n_attempts,
            silent=silent,
            files_id=files_id,
            files_id_of_runs=files_id_of_runs,
            object_folders=objects,
        )


def _look(place: Place) -> list[OpenDispatcher]:
    with reading(place) as (_, connection):
        if not has_our_tables(connection):
            return []
        studies = _with_runs(connection, choose_study(connection, place))
        return [one for study_id in studies for one in open_dispatchers(connection, study_id)]


def _with_runs(connection: sa.Connection, stored: StoredStudy) -> list[int]:
    """Ids of a study and of the study that holds the runs of its leaders."""
    runs = stored_studies(connection).get(confirmation_of(stored.name))
    return [stored.id] if runs is None else [stored.id, runs]


def _refuse_living(
    connection: sa.Connection, study_id: int, here: ProcessIdentity, silent: Collection[Sign]
) -> None:
    if has_our_tables(connection):
        refuse_living(connection, here, silent, _IS_RUN, study_id=study_id)


def _files_id(connection: sa.Connection, study_id: int) -> str | None:
    query = sa.select(STUDY_ATTRS.c.value_json).where(
        STUDY_ATTRS.c.study_id == study_id, STUDY_ATTRS.c.key == IDENTITY_ATTR
    )
    stored = connection.execute(query).scalar()
    key = None if stored is None else key_of(json.loads(stored))
    return None if key is None else key.id


def measure_files(place: Place, extent: Extent) -> FilesExtent:
    """The files of a study file's study.

    Raises:
        ConfigError: If its folder cannot be read.
    """
    assert place.config is not None, "checked before"
    folder, name = place.config.home, place.config.study
    files = StudyFiles(folder=folder, study=name)
    of_runs = StudyFiles(folder=folder, study=confirmation_of(name))
    try:
        own = (
            *own_files(files, extent.files_id),
            *own_files(of_runs, extent.files_id_of_runs),
        )
    except OSError as error:
        raise ConfigError(f"cannot be read: {error}.", file=str(files.root)) from error
    sizes = [size for path in own for size in _sizes(path)]
    return FilesExtent(
        root=files.root,
        root_of_runs=of_runs.root,
        own=own,
        n_files=len(sizes),
        n_bytes=sum(sizes),
    )


def _sizes(root: Path) -> Iterator[int]:
    for path in (root, *root.rglob("*")):
        # What the tuner itself notes there is not worth counting.
        if path.is_file() and not path.is_symlink() and path.name not in NOTES:
            yield path.stat().st_size


def delete_study(
    place: Place, here: ProcessIdentity, silent: Collection[Sign] = frozenset()
) -> None:
    """Deletes a study and its confirmation runs, including Optuna's rows, in one transaction.

    Args:
        place: The study.
        here: This process.
        silent: From its `Extent`.

    Raises:
        StoreError: If it is gone, or a dispatcher has started to work on it.
    """
    with writing(place) as (_, connection):
        stored = choose_study(connection, place)
        for study_id in _with_runs(connection, stored):
            _delete(connection, study_id, here, silent)


def _delete(
    connection: sa.Connection, study_id: int, here: ProcessIdentity, silent: Collection[Sign]
) -> None:
    # As a dispatcher does when it starts: either it sees no study, or it is seen here.
    lock = sa.select(STUDIES.c.study_id).where(STUDIES.c.study_id == study_id)
    connection.execute(lock.with_for_update())
    _refuse_living(connection, study_id, here, silent)
    for each in reversed(study_tables(with_ours=has_our_tables(connection))):
        connection.execute(sa.delete(each.table).where(each.of_study(study_id)))


def delete_files(files: FilesExtent) -> None:
    """Deletes the files of a study.

    Raises:
        ConfigError: If a file cannot be removed.
    """
    for path in files.own:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            problem = f"cannot be removed: {error}. The study is deleted; remove it by hand"
            raise ConfigError(f"{problem}.", file=str(path)) from error
    for root in (files.root, files.root_of_runs):
        # Unless files of another study are there.
        for folder in (StudyFiles.moved_aside_below(root), root):
            with contextlib.suppress(OSError):
                folder.rmdir()
