"""Opening a database: what is made, what is refused, and that no password is ever shown."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from optuna.exceptions import StorageInternalError
from optuna.study import StudyDirection

from tests.contract.store.old_schema import connected
from tests.databases import SERVERS
from tests.servers import PASSWORD, Mariadb, Postgresql, Server
from tuner.errors import EXIT_BAD_INPUT, EXIT_STUDY_FAILED, StoreError
from tuner.store.connection.database import (
    Database,
    open_database,
    parse_url,
    shown_url,
    store_errors,
)
from tuner.store.records.queries import find_study
from tuner.store.schema.models import (
    SCHEMA_REVISION,
    VERSION_TABLE,
    DispatcherRow,
    TunerBase,
    table_of,
)
from tuner.store.schema.status import database_status


def find_study_names(database: Database) -> list[str]:
    return [study.study_name for study in database.storage.get_all_studies()]


def write_a_start(url: str) -> None:
    """A study `s`, and a dispatcher that worked on it."""
    study = optuna.create_study(storage=url, study_name="s")
    with connected(url) as connection:
        connection.exec_driver_sql(
            "INSERT INTO tuner_hosts (name, n_cores, memory_bytes) VALUES ('here', 1, 1)"
        )
        connection.execute(
            sa.insert(table_of(DispatcherRow)).values(
                study_id=study._study_id,
                host_id=connection.exec_driver_sql("SELECT id FROM tuner_hosts").scalar(),
                pid=1,
                process_created_at_s=0.0,
                started_at=datetime(2026, 1, 1),
                beat_at=datetime(2026, 1, 1),
                seed=1,
                study_file="",
                folder="",
                versions={},
            )
        )


def refusal(url: str, **keywords: bool) -> StoreError:
    with pytest.raises(StoreError) as caught:
        open_database(url, **keywords)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    return caught.value


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


def test_open_makes_optunas_tables_and_ours(new_url: str):
    database = open_database(new_url)
    tables = set(sa.inspect(database.engine).get_table_names())
    assert {"studies", "trials", "trial_params", VERSION_TABLE} <= tables
    assert set(TunerBase.metadata.tables) <= tables
    database.close()


def test_open_again_keeps_what_is_there(new_url: str):
    database = open_database(new_url)
    database.storage.create_new_study([StudyDirection.MINIMIZE], "s")
    database.close()
    database.close()
    again = open_database(new_url)
    assert find_study(again, None)[1] == "s"
    again.close()


def test_opened_at_once_by_several_it_is_made_once(new_url: str):
    with ThreadPoolExecutor(4) as threads:
        for database in threads.map(open_database, [new_url] * 4):
            assert find_study_names(database) == []
            database.close()


def test_tables_of_optuna_alone_get_ours_beside_them(new_url: str):
    optuna.create_study(storage=new_url, study_name="s")
    database = open_database(new_url)
    assert find_study_names(database) == ["s"]
    assert set(TunerBase.metadata.tables) <= set(sa.inspect(database.engine).get_table_names())
    database.close()


def test_deleted_study_takes_its_rows_in_our_tables_with_it(url: str):
    write_a_start(url)
    database = open_database(url)
    optuna.delete_study(study_name="s", storage=database.storage)
    with database.engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count(DispatcherRow.id))).scalar() == 0
    database.close()


def test_sqlite_is_in_wal_mode_with_foreign_keys(file_url: str):
    database = open_database(file_url)
    for engine in (database.engine, database.storage._backend.engine):
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    database.close()


def test_read_only_leaves_the_file_as_it_is(file_url: str, tmp_path: Path):
    open_database(file_url).close()
    path = tmp_path / "study.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    before = path.read_bytes()
    database = open_database(file_url, read_only=True)
    assert find_study_names(database) == []
    database_status(file_url)
    database.close()
    assert path.read_bytes() == before


def test_read_only_makes_no_file(file_url: str, tmp_path: Path):
    assert "There is no database at" in str(refusal(file_url, read_only=True))
    assert list(tmp_path.iterdir()) == []


def test_read_only_makes_no_table(new_url: str, tmp_path: Path):
    (tmp_path / "study.db").touch()
    assert "has no study in it yet" in str(refusal(new_url, read_only=True))
    with connected(new_url) as connection:
        assert sa.inspect(connection).get_table_names() == []


def test_newer_schema_is_refused(new_url: str):
    open_database(new_url).close()
    with connected(new_url) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    text = str(refusal(new_url))
    assert "newer tuner (schema 9999; this one knows " + SCHEMA_REVISION in text
    assert "pip install -U gpu-tuner" in text


def test_file_that_is_no_database_is_refused(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("Dear diary, " * 100)
    text = str(refusal(f"sqlite:///{tmp_path}/notes.txt"))
    assert "not an SQLite database" in text


def test_folder_that_is_not_there_is_named(tmp_path: Path):
    text = str(refusal(f"sqlite:///{tmp_path}/none/study.db"))
    assert "folder is missing or not writable" in text


# -- servers -----------------------------------------------------------------------------------


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


@pytest.fixture
def server_url(server: Server) -> Iterator[str]:
    url = server.new_database()
    yield url
    server.drop_database(url)


def as_user(url: str, user: str, password: str | None) -> str:
    parsed = sa.make_url(url).set(username=user, password=password)
    return parsed.render_as_string(hide_password=False)


def test_url_without_a_driver_takes_the_one_that_is_installed(server_url: str):
    scheme, _, rest = server_url.partition("://")
    database = open_database(f"{scheme.partition('+')[0]}://{rest}")
    assert database.engine.driver == scheme.partition("+")[2]
    database.close()


def test_password_with_every_sign_opens_the_database(server: Server, server_url: str):
    user = server.new_user(server_url, PASSWORD)
    open_database(as_user(server_url, user, PASSWORD)).close()


def test_wrong_password_is_said_and_not_shown(server: Server, server_url: str):
    user = server.new_user(server_url, PASSWORD)
    error = refusal(as_user(server_url, user, "S3CRET"))
    assert str(error).startswith("The database server refuses the user or the password: ")
    assert user in str(error)
    assert "S3CRET" not in "".join(traceback.format_exception(error))


def test_database_that_the_server_lacks_is_said(server_url: str):
    text = str(refusal(sa.make_url(server_url).set(database="nosuch").render_as_string()))
    assert text.startswith("There is no such database on the server: ")
    assert "'nosuch'" in text.replace('"', "'")


def test_pgpass_file_gives_a_password(
    postgresql: Postgresql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = postgresql.new_database()
    user = postgresql.new_user(url, "simple")
    (tmp_path / "pgpass").write_text(f"*:*:*:{user}:simple\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    open_database(as_user(url, user, None)).close()
    postgresql.drop_database(url)


def test_user_who_may_not_make_tables_is_told_so(postgresql: Postgresql):
    url = postgresql.new_database()
    user = postgresql.new_user(url, PASSWORD, is_reader=True)
    text = str(refusal(as_user(url, user, PASSWORD)))
    assert text.startswith("The database user may not do that: ")
    assert "GRANT ALL ON SCHEMA public" in text
    postgresql.drop_database(url)


def test_database_without_all_characters_is_refused_with_the_way_out(mariadb: Mariadb):
    url = mariadb.new_database(characters="latin1")
    name = sa.make_url(url).database
    advice = f"ALTER DATABASE `{name}` CHARACTER SET utf8mb4"
    assert advice in str(refusal(url))
    mariadb.execute(advice)
    open_database(url).close()
    mariadb.drop_database(url)


# -- passwords ---------------------------------------------------------------------------------

SECRET_URLS = {
    "unreachable": "postgresql://user:secret@127.0.0.1:1/x",
    "unreachable psycopg": "postgresql+psycopg://user:secret@127.0.0.1:1/x",
    "unreachable mysql": "mysql+pymysql://user:secret@127.0.0.1:1/x",
    "missing driver": "mysql+cymysql://user:secret@127.0.0.1:1/x",
    "missing driver psycopg2": "postgresql+psycopg2://user:secret@127.0.0.1:1/x",
    "unknown database": "nosuch://user:secret@host/x",
    "unknown driver": "postgresql+nosuch://user:secret@host/x",
    "bad port": "postgresql://user:secret@host:port/x",
    "no url": "user:secret@host",
    "no slashes": "postgresql:user:secret@host/x",
}


@pytest.mark.parametrize("case", SECRET_URLS)
def test_password_is_never_shown(case: str):
    error = refusal(SECRET_URLS[case])
    assert "secret" not in str(error)
    assert "storage" in str(error)


def test_password_with_signs_is_never_shown():
    error = refusal("postgresql+psycopg://user:s%40cret%2Fpw@127.0.0.1:1/x")
    assert "s@cret" not in str(error)
    assert "s%40cret" not in str(error)


@pytest.mark.parametrize("case", ["unreachable psycopg", "unreachable mysql"])
def test_password_is_not_in_the_traceback_either(case: str):
    error = refusal(SECRET_URLS[case])
    assert "secret" not in "".join(traceback.format_exception(error))


def test_shown_url_hides_the_password_only():
    assert shown_url("postgresql+psycopg://user:secret@host/x") == (
        "postgresql+psycopg://user:***@host/x"
    )
    assert shown_url("sqlite:////a/b.db") == "sqlite:////a/b.db"


def test_missing_driver_says_what_to_install():
    text = str(refusal("mysql+cymysql://user:secret@127.0.0.1:1/x"))
    assert "'cymysql'" in text
    assert "pip install" in text


def test_malformed_url_shows_how_one_looks():
    with pytest.raises(StoreError, match=r"sqlite:///study\.db"):
        parse_url("study.db")


REASONS = {
    "database or disk is full": "The disk is full",
    "attempt to write a readonly database": "read-only",
    "database is locked": "stayed locked by another program",
    "database disk image is malformed": "not an SQLite database",
    "unable to open database file": "cannot be opened",
    "something else\nwith more lines": "The database could not be used: something else (",
}


@pytest.mark.parametrize("text", REASONS)
def test_errors_of_the_driver_become_words(text: str):
    with (
        pytest.raises(StoreError) as caught,
        store_errors("postgresql+psycopg://user:secret@host/x"),
    ):
        raise sa.exc.OperationalError("INSERT", None, sqlite3.OperationalError(text))
    assert REASONS[text] in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "with more lines" not in str(caught.value)
    assert caught.value.exit_code == EXIT_STUDY_FAILED


def test_errors_behind_optunas_own_are_found():
    full = sa.exc.OperationalError("INSERT", None, sqlite3.OperationalError("disk is full"))
    with pytest.raises(StoreError, match="The disk is full"), store_errors("sqlite:///x.db"):
        raise StorageInternalError("An exception is raised during the commit.") from full


def test_find_study_names_what_is_there(url: str):
    database = open_database(url)
    with pytest.raises(StoreError, match="holds no study"):
        find_study(database, None)
    for name in ("b", "a"):
        database.storage.create_new_study([StudyDirection.MINIMIZE], name)
    with pytest.raises(StoreError, match=r"holds a, b\. Name one"):
        find_study(database, None)
    with pytest.raises(StoreError, match=r"has no study 'c'\. It holds a, b"):
        find_study(database, "c")
    assert find_study(database, "a")[1] == "a"
    database.close()
