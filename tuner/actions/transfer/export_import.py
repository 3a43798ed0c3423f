"""`tuner export` and `tuner import`: a study to a file and back.

The file is an ordinary SQLite database with one study, and its confirmation runs if there are any:
`optuna.load_study`, `tuner trials` and `tuner best` read it, and it contains the versions of its
tables.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tuner.actions.close_running import CloseRunning
from tuner.actions.transfer.import_check import check_is_whole, check_tables
from tuner.actions.transfer.row_transfer import Transfer
from tuner.config.sections.confirm import confirmation_of
from tuner.errors import ConfigError, StoreError
from tuner.queries.locate import (
    Place,
    StoredStudy,
    choose_study,
    is_sqlite,
    reading,
    refuse_taken,
    stored_studies,
    writing,
)
from tuner.store.connection.engine import without_idle_limit
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.schema.upgrade import upgrade_database

_BUSY_TIMEOUT_S = 30.0
_STUDY_FILES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A study that was copied."""

    study: str
    n_trials: int
    #: Its new place.
    target: Place


# -- to a file -------------------------------------------------------------------------------


def export_study(place: Place, file: Path, *, force: bool) -> Moved:
    """Writes a study to a file atomically.

    Args:
        place: The study.
        file: The file.
        force: Whether an existing file may be replaced.

    Raises:
        TunerError: If the file exists, or cannot be written, or there is no such study.
    """
    _check_writable(file, force=force)
    # Elsewhere first: it may go to a network share, on which SQLite is not safe.
    with tempfile.TemporaryDirectory(prefix="tuner-export-") as folder:
        built = Path(folder) / "study.db"
        target = Place(url=f"sqlite:///{built}", study=None, shown=str(file))
        with reading(place) as (_, source):
            stored = choose_study(source, place)
            n_trials = _move(source, target, stored, stored.name)
        _make_single_file(built)
        _put(built, file)
    return Moved(study=stored.name, n_trials=n_trials, target=target)


def _check_writable(file: Path, *, force: bool) -> None:
    if file.exists() and not force:
        problem = "exists already. Name another file, or replace it with --force."
        raise ConfigError(problem, file=str(file))
    if file.is_dir() or not file.parent.is_dir():
        problem = "cannot be written: it must be a file in a folder that is there."
        raise ConfigError(problem, file=str(file))


def _make_single_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def _put(built: Path, file: Path) -> None:
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(built, partial)
        partial.replace(file)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}. Name a file that you may write."
        raise ConfigError(problem, file=str(file)) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


# -- from a file -----------------------------------------------------------------------------


def import_study(origin: Place, new_name: str | None, place_of: Callable[[str], Place]) -> Moved:
    """Copies a study of another database, which need not be the tuner's.

    Args:
        origin: Its place: a file that `export_study` has written, or any database of Optuna.
        new_name: Its name here; None for the same.
        place_of: Returns the place of a study of this name.

    Raises:
        TunerError: If there is no such study, or it is incomplete, or the name is in use here.
    """
    with _opened(origin) as source:
        check_tables(source, origin.shown)
        stored = choose_study(source, origin)
        _check_are_whole(source, stored, origin.shown)
        name = new_name or stored.name
        target = place_of(name)
        n_trials = _move(source, target, stored, name)
    return Moved(study=name, n_trials=n_trials, target=target)


def _check_are_whole(source: sa.Connection, stored: StoredStudy, shown: str) -> None:
    ids = stored_studies(source)
    for name in (stored.name, confirmation_of(stored.name)):
        if name in ids:
            check_is_whole(source, ids[name], name, shown)


def check_importable(source: str) -> None:
    """Checks the source of an import.

    Raises:
        ConfigError: If it is a file that is neither a database nor a study file.
    """
    path = Path(source)
    if "://" in source or is_sqlite(path) or path.suffix in _STUDY_FILES:
        return
    problem = "there is no such file." if not path.exists() else "holds no study."
    raise ConfigError(
        f"{problem} Give a file that `tuner export` has written, the SQLite file or the URL of a "
        "database, or a study file (.yaml).",
        file=source,
    )


@contextmanager
def _opened(origin: Place) -> Iterator[sa.Connection]:
    """Opens an SQLite file as a copy, which is upgraded if an older tuner wrote it."""
    path = origin.sqlite_path
    if path is None or not path.exists():
        with reading(origin) as (_, connection):
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="tuner-import-") as folder:
        copy = Path(folder) / "study.db"
        _copy_database(path, copy)
        url = f"sqlite:///{copy}"
        place = Place(url=url, study=origin.study, shown=origin.shown)
        with _named(url, origin):
            upgrade_database(url, here=None)
            with reading(place) as (_, connection):
                yield connection


@contextmanager
def _named(url: str, origin: Place) -> Iterator[None]:
    """Makes messages name the user's file instead of the copy."""
    try:
        yield
    except StoreError as error:
        text = str(error).replace(url, origin.shown)
        raise StoreError(text, exit_code=error.exit_code) from error


def _copy_database(path: Path, copy: Path) -> None:
    try:
        # Not with mode=ro, which leaves the files of a write-ahead log behind.
        with (
            closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            names = {name for (name,) in target.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error as error:
        problem = f"cannot be read: {error}. Give a whole file that you may read."
        raise ConfigError(problem, file=str(path)) from error
    if not {"studies", "trials"} <= names:
        problem = "is an SQLite database, but neither Optuna nor the tuner has a study in it."
        raise ConfigError(problem, file=str(path))


def _move(source: sa.Connection, target: Place, stored: StoredStudy, name: str) -> int:
    """Copies a study and its confirmation runs; returns its number of trials."""
    with writing(target) as (_, connection):
        without_idle_limit(connection)
        runs_id = stored_studies(source).get(confirmation_of(stored.name))
        for each in (name, *([] if runs_id is None else [confirmation_of(name)])):
            refuse_taken(connection, target, each, "Give it another name with --as.")
        study_id = Transfer(source, connection, CloseRunning().changes).copy(stored.id, name)
        if runs_id is not None:
            again = Transfer(source, connection, CloseRunning().changes)
            again.copy(runs_id, confirmation_of(name))
        count = sa.select(sa.func.count()).where(TRIALS.c.study_id == study_id)
        return int(connection.execute(count).scalar_one())
