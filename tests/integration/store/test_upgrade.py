"""A database of the first tuner, brought up to date: nothing lost, nothing half done."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa

from tests.contract.store.old_schema import connected, rows_of, write_database_of_0001
from tests.contract.store.test_schema import drop_ours, tables_of
from tests.hosts import ALIVE, DEAD
from tuner.errors import EXIT_BAD_INPUT, StoreError
from tuner.store.connection.database import open_database
from tuner.store.schema.models import SCHEMA_REVISION, VERSION_TABLE
from tuner.store.schema.status import database_status
from tuner.store.schema.upgrade import Upgrade, upgrade_database

NEW_TABLES = {
    *(VERSION_TABLE, "tuner_claims", "tuner_commands", "tuner_checkpoints"),
    *("tuner_usage", "tuner_attempt_usage", "tuner_idle"),
    *("tuner_allocations", "tuner_uploads"),
}
NEW_COLUMNS = {
    "peak_memory_bytes": None,
    "held_slot": 0,
    "share": 1.0,
    "end_reason": "",
    "n_batches": 0,
    "devices": None,
    "budget": None,
    "allocation_id": None,
}


def upgraded(url: str) -> Upgrade:
    return upgrade_database(url, here=ALIVE.process)


def refused(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        upgraded(url)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    return str(caught.value)


def write_old_database(url: str) -> None:
    """One whose dispatcher that did not record its end is known to be gone.

    Otherwise an upgrade watches for a minute whether it gives a sign of life.
    """
    write_database_of_0001(url)
    with connected(url) as connection:
        versions = json.dumps({"python": "3.11", **DEAD.process.facts()})
        set_versions = sa.text("UPDATE tuner_dispatchers SET versions = :v WHERE pid = 4999999")
        connection.execute(set_versions, {"v": versions})


@pytest.fixture
def old_url(new_url: str) -> str:
    write_old_database(new_url)
    return new_url


def without_new_columns(rows: dict[str, list[dict[str, object]]]) -> object:
    return {
        table: [{k: v for k, v in row.items() if k not in NEW_COLUMNS} for row in found]
        for table, found in rows.items()
        if table not in NEW_TABLES
    }


def test_upgrade_keeps_every_row(old_url: str) -> None:
    before = rows_of(old_url)
    done = upgraded(old_url)
    assert done.before == "0001"
    assert (done.backup is not None) == old_url.startswith("sqlite")
    after = rows_of(old_url)
    assert without_new_columns(after) == without_new_columns(before)
    assert after[VERSION_TABLE] == [{"version_num": SCHEMA_REVISION}]
    assert {row["peak_memory_bytes"] for row in after["tuner_attempts"]} == {None}
    assert {(row["held_slot"], row["share"]) for row in after["tuner_leases"]} == {(0, 1.0)}


def test_upgraded_database_has_the_tables_of_a_new_one(old_url: str) -> None:
    upgraded(old_url)
    with connected(old_url) as connection:
        of_old = tables_of(connection)
        drop_ours(connection)
    open_database(old_url).close()
    with connected(old_url) as connection:
        assert tables_of(connection) == of_old


def test_upgraded_database_opens_and_takes_what_is_new(old_url: str) -> None:
    upgraded(old_url)
    database = open_database(old_url)
    with database.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE tuner_attempts SET cause = 'port_taken', peak_memory_bytes = 5")
        )
        connection.execute(
            sa.text(
                "INSERT INTO tuner_leases (attempt_id, device_id, held_device_id, held_slot, "
                "share, leased_at) VALUES (3, 1, 1, 1, 0.5, '2026-01-03 00:00:00')"
            )
        )
    with pytest.raises(sa.exc.DBAPIError), database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE tuner_attempts SET cause = 'bad luck'"))
    database.close()
    assert optuna.load_study(study_name="s", storage=old_url).best_value == 0.5


def test_second_upgrade_does_nothing(old_url: str) -> None:
    upgraded(old_url)
    assert upgraded(old_url) == Upgrade(before=SCHEMA_REVISION)


def test_database_of_optuna_alone_has_nothing_to_upgrade(new_url: str) -> None:
    optuna.create_study(storage=new_url)
    assert upgraded(new_url) == Upgrade(before=None)
    assert rows_of(new_url) == {}


@pytest.mark.parametrize("read_only", [False, True])
def test_older_database_is_refused_with_the_way_out(old_url: str, read_only: bool) -> None:
    before = rows_of(old_url)
    with pytest.raises(StoreError) as caught:
        open_database(old_url, read_only=read_only)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    source = shlex.quote(old_url) if old_url.startswith("sqlite") else "study.yaml"
    reason = f"written by an older tuner (schema 0001; this one needs {SCHEMA_REVISION})"
    assert reason in str(caught.value)
    assert f"tuner db upgrade {source} " in str(caught.value)
    assert rows_of(old_url) == before


def test_upgrade_is_refused_while_a_dispatcher_works(old_url: str) -> None:
    with connected(old_url) as connection:
        connection.execute(
            sa.text(
                "UPDATE tuner_dispatchers SET pid = :pid, versions = :versions "
                "WHERE ended_at IS NULL"
            ),
            {"pid": os.getpid(), "versions": json.dumps(ALIVE.process.facts())},
        )
    before = rows_of(old_url)
    text = refused(old_url)
    assert f"being run now, on here (pid {os.getpid()}, since 2026-01-02 10:00 UTC)" in text
    assert rows_of(old_url) == before


def test_newer_database_is_not_touched(old_url: str) -> None:
    with connected(old_url) as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    assert "newer tuner (schema 9999" in refused(old_url)


def test_status_tells_of_an_old_database(old_url: str) -> None:
    status = database_status(old_url)
    assert status.revision == "0001"
    assert status.optuna_revision
    assert status.size_bytes > 0
    assert (status.rows["trials"], status.rows["tuner_attempts"]) == (2, 3)
    assert status.server.split()[0] in ("SQLite", "PostgreSQL", "MariaDB")
    assert status.server.split()[1][0].isdigit()


# MySQL cannot take a change of tables back.
@pytest.mark.parametrize("new_url", ["sqlite", "postgresql"], indirect=True)
def test_upgrade_that_fails_half_way_changes_nothing(old_url: str) -> None:
    # Names that the second half needs.
    in_the_way = {"sqlite": "_alembic_tmp_tuner_leases", "postgresql": "uq_tuner_leases_held"}
    with connected(old_url) as connection:
        connection.exec_driver_sql(f"CREATE TABLE {in_the_way[connection.dialect.name]} (x INT)")
        before = tables_of(connection)
    assert "already exists" in refused(old_url)
    with connected(old_url) as connection:
        assert tables_of(connection) == before


# -- SQLite's backup ---------------------------------------------------------------------------


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    write_old_database(f"sqlite:///{tmp_path}/study.db")
    return tmp_path / "study.db"


def test_sqlite_file_is_copied_first(old_file: Path) -> None:
    before = rows_of(f"sqlite:///{old_file}")
    backup = upgraded(f"sqlite:///{old_file}").backup
    assert backup == old_file.with_name("study.db.bak-0001")
    assert rows_of(f"sqlite:///{backup}") == before


def test_backup_overwrites_nothing(old_file: Path) -> None:
    first = old_file.with_name("study.db.bak-0001")
    first.write_text("mine")
    assert upgraded(f"sqlite:///{old_file}").backup == first.with_name("study.db.bak-0001-1")
    assert first.read_text() == "mine"


def test_backup_holds_what_is_in_the_log_only(old_file: Path) -> None:
    writer = sqlite3.connect(old_file)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("UPDATE tuner_devices SET name = 'late' WHERE id = 1")
    writer.commit()
    backup = upgraded(f"sqlite:///{old_file}").backup
    writer.close()
    assert rows_of(f"sqlite:///{backup}")["tuner_devices"][0]["name"] == "late"


def test_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "There is no database at" in refused(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []
