"""Resolves a command's source: a study file, a database URL or an SQLite file, and its study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import sqlalchemy as sa

from tuner.config import StudyConfig, load_study_file
from tuner.config.sections.confirm import only_study
from tuner.config.storage_url import resolve_storage
from tuner.errors import EXIT_BAD_INPUT, ConfigError, StoreError
from tuner.search_spaces.space import nearest
from tuner.store.connection.database import Database, open_database, shown_url, store_errors
from tuner.store.optuna_tables.statements import STUDIES

_SQLITE_MAGIC = b"SQLite format 3\0"
_MAX_NAMES = 8
#: A study named without a file is searched in the database of this file in the current folder.
_STUDY_FILE = "study.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A database, and the requested study."""

    url: str = field(repr=False)
    #: None: the only one of the database.
    study: str | None
    #: The study file, if one was named.
    config: StudyConfig | None = None
    #: As the user named it, without a password.
    shown: str

    @property
    def sqlite_path(self) -> Path | None:
        """None if it is no file."""
        url = sa.make_url(self.url)
        path = url.database or ""
        is_file = url.get_backend_name() == "sqlite" and not path.startswith("file:")
        return Path(path) if is_file else None

    @property
    def exists(self) -> bool:
        """False for an SQLite file that is not there; of a server it is not known."""
        return self.sqlite_path is None or self.sqlite_path.exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """A study of a database."""

    id: int
    name: str


def find_place(
    source: str, study: str | None, environ: Mapping[str, str], *, is_new: bool = False
) -> Place:
    """Resolves the user's source argument.

    Args:
        source: The path of a study file or of an SQLite file, a database URL, or the name of a
            study in the database of this folder's study.yaml.
        study: `--study`, which overrides the study file.
        environ: Values for `${VARIABLE}` in a URL.
        is_new: Whether the study may be missing.

    Raises:
        TunerError: If there is no such file, or the file or the URL is wrong.
    """
    if "://" in source:
        return Place(url=_resolve(source, environ), study=study, shown=shown_url(source))
    path = Path(source)
    if is_sqlite(path):
        url = sa.URL.create("sqlite", database=str(path.resolve()))
        return Place(url=url.render_as_string(), study=study, shown=source)
    is_name = study is None and not is_new and not path.suffix and not path.exists()
    if is_name and Path(_STUDY_FILE).exists():
        return find_place(_STUDY_FILE, source, environ)
    config = load_study_file(path, environ=environ, study=study)
    place = place_of(config)
    if is_new or study is None or place.exists:
        return place
    # A file that names no storage has a database for each study: it may be in the file's own.
    own = place_of(load_study_file(path, environ=environ))
    return replace(own, study=study, config=config)


def place_of(config: StudyConfig) -> Place:
    """The place of a study file's study."""
    shown = shown_url(config.storage)
    return Place(url=config.storage, study=config.study, config=config, shown=shown)


def is_sqlite(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    except OSError:
        return False


def _resolve(url: str, environ: Mapping[str, str]) -> str:
    try:
        return resolve_storage(url, folder=Path.cwd(), environ=environ)
    except ValueError as error:
        raise ConfigError(str(error), key="The database URL") from error


@contextmanager
def reading(place: Place) -> Iterator[tuple[Database, sa.Connection]]:
    """Opens a database for reading from a consistent snapshot.

    Raises:
        StoreError: If it does not exist, cannot be read, or has another schema.
    """
    database = open_database(place.url, read_only=True)
    try:
        with store_errors(place.url), snapshot(database.engine) as connection:
            yield database, connection
    finally:
        database.close()


@contextmanager
def writing(place: Place) -> Iterator[tuple[Database, sa.Connection]]:
    """Opens a database and a transaction, which is committed unless an error is raised.

    Raises:
        StoreError: If it cannot be opened or written, or has another schema.
    """
    database = open_database(place.url)
    try:
        with store_errors(place.url), database.engine.begin() as connection:
            if database.engine.dialect.name == "sqlite":
                # Waits here for other writers: a transaction that has read cannot wait any more.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield database, connection
    finally:
        database.close()


@contextmanager
def snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction in which all statements see the same state of the database."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            yield connection
        return
    with engine.execution_options(isolation_level="REPEATABLE READ").connect() as connection:
        yield connection


def choose_study(connection: sa.Connection, place: Place) -> StoredStudy:
    """The requested study.

    Raises:
        StoreError: If there is none with this name, or several and no name was given.
    """
    studies = stored_studies(connection)
    name = place.study
    name = name or only_study(set(studies))
    if name is None:
        raise StoreError(_which(place.shown, sorted(studies)))
    if name not in studies:
        raise StoreError(_no_such(place.shown, name, sorted(studies)))
    return StoredStudy(id=studies[name], name=name)


def stored_studies(connection: sa.Connection) -> dict[str, int]:
    """Ids by name."""
    query = sa.select(STUDIES.c.study_name, STUDIES.c.study_id).order_by(STUDIES.c.study_id)
    return {name: study_id for name, study_id in connection.execute(query)}


def refuse_taken(connection: sa.Connection, place: Place, name: str, way_out: str) -> None:
    """Refuses a study name that is in use.

    Raises:
        StoreError: If there is a study with this name.
    """
    if name in stored_studies(connection):
        raise StoreError(
            f"{place.shown} has a study {name!r} already. {way_out}", exit_code=EXIT_BAD_INPUT
        )


def _which(shown: str, names: list[str]) -> str:
    if not names:
        return f"{shown} holds no study. Run one first: python -m tuner.run study.yaml"
    return f"{shown} holds {len(names)} studies: {_listed(names)}. Name one of them with --study."


def _no_such(shown: str, name: str, names: list[str]) -> str:
    if not names:
        return f"{shown} has no study {name!r}; it holds none. Run the study first."
    near = nearest(name, names)
    if near is None:
        return f"{shown} has no study {name!r}. It holds: {_listed(names)}."
    others = f" It holds: {_listed(names)}." if len(names) > 1 else ""
    return f"{shown} has no study {name!r}. Did you mean {near!r}?{others}"


def _listed(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
