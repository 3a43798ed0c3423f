"""Opening a database: what is made, what is refused, and that no password is ever shown."""

from __future__ import annotations

import sqlite3
import traceback
from pathlib import Path

import pytest
import sqlalchemy as sa
from optuna.exceptions import StorageInternalError
from optuna.study import StudyDirection

from tuner.errors import EXIT_BAD_INPUT, EXIT_STUDY_FAILED, StoreError
from tuner.store.database import open_database, parse_url, shown_url, store_errors
from tuner.store.models import SCHEMA_REVISION, VERSION_TABLE, TunerBase
from tuner.store.queries import find_study


def refusal(url: str, **keywords: bool) -> StoreError:
    with pytest.raises(StoreError) as caught:
        open_database(url, **keywords)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    return caught.value


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


def test_open_makes_optunas_tables_and_ours(url: str):
    database = open_database(url)
    tables = set(sa.inspect(database.engine).get_table_names())
    assert {"studies", "trials", "trial_params", VERSION_TABLE} <= tables
    assert set(TunerBase.metadata.tables) <= tables
    database.close()


def test_open_again_keeps_what_is_there(url: str):
    database = open_database(url)
    database.storage.create_new_study([StudyDirection.MINIMIZE], "s")
    database.close()
    database.close()
    again = open_database(url)
    assert find_study(again, None)[1] == "s"
    again.close()


def test_sqlite_is_in_wal_mode_with_foreign_keys(url: str):
    database = open_database(url)
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    database.close()


def test_read_only_makes_no_file(url: str, tmp_path: Path):
    assert "There is no database at" in str(refusal(url, read_only=True))
    assert list(tmp_path.iterdir()) == []


def test_read_only_makes_no_table(tmp_path: Path, url: str):
    sqlite3.connect(tmp_path / "study.db").close()
    (tmp_path / "study.db").touch()
    assert "has no study in it yet" in str(refusal(url, read_only=True))
    connection = sqlite3.connect(tmp_path / "study.db")
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connection.close()


def test_newer_schema_is_refused(url: str, tmp_path: Path):
    open_database(url).close()
    connection = sqlite3.connect(tmp_path / "study.db")
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    connection.commit()
    connection.close()
    text = str(refusal(url))
    assert "newer tuner (schema 9999; this one knows " + SCHEMA_REVISION in text
    assert "pip install -U tuner" in text


def test_file_that_is_no_database_is_refused(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("Dear diary, " * 100)
    text = str(refusal(f"sqlite:///{tmp_path}/notes.txt"))
    assert "not an SQLite database" in text


def test_folder_that_is_not_there_is_named(tmp_path: Path):
    text = str(refusal(f"sqlite:///{tmp_path}/none/study.db"))
    assert "folder is missing or not writable" in text


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
