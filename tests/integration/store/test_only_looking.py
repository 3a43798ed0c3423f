"""Commands that only look write nothing into a database, however old, and end on a hostile one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa

from tests.contract.store.old_schema import write_database_of_0001
from tests.integration.verbs.seeded import add_first_study
from tuner.errors import StoreError
from tuner.store.database import open_database, store_errors
from tuner.store.engine import limit_statements

WITHOUT_END = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
)
_TUNER = "import sys; sys.argv[0] = 'tuner'; from tuner.cli.main import main; main()"
#: The words before the database, and those after it.
VERBS: tuple[tuple[str, ...], ...] = (
    ("studies", "{}"),
    ("status", "{}"),
    ("trials", "{}"),
    ("best", "{}"),
    ("why", "{}", "0"),
    ("report", "{}", "-o", "report.html"),
    ("db", "status", "{}"),
)


def of_optuna_before_versions(path: Path) -> None:
    """As Optuna 0.9 made it: its tables, and no note of a version."""
    study = optuna.create_study(storage=f"sqlite:///{path}", study_name="s")
    study.tell(study.ask(), 1.0)
    run(path, "DROP TABLE alembic_version", "DELETE FROM version_info")


def of_older_optuna(path: Path) -> None:
    of_optuna_before_versions(path)
    run(
        path,
        "CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)",
        "INSERT INTO alembic_version VALUES ('v2.6.0.a')",
        "INSERT INTO version_info VALUES (1, 12, '2.6.0')",
    )


def of_older_tuner(path: Path) -> None:
    write_database_of_0001(f"sqlite:///{path}")


def of_today(path: Path) -> None:
    url = f"sqlite:///{path}"
    open_database(url).close()
    add_first_study(url)


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for each in statements:
            connection.execute(each)


def tuner(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _TUNER, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


@pytest.mark.parametrize("make", [of_optuna_before_versions, of_older_tuner, of_today])
def test_no_byte_of_it_changes(tmp_path: Path, make) -> None:
    path = tmp_path / "study.db"
    make(path)
    # As a single file, like a copy that somebody sends.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    before = path.read_bytes()
    for verb in VERBS:
        tuned = tuner(tmp_path, *(word.format(f"sqlite:///{path}") for word in verb))
        assert "accident" not in tuned.stderr, (verb, tuned.stderr)
        assert "Traceback" not in tuned.stderr, (verb, tuned.stderr)
        assert path.read_bytes() == before, verb


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("make", [of_optuna_before_versions, of_older_optuna])
def test_tables_of_an_older_optuna_are_refused_untouched(
    tmp_path: Path, make, read_only: bool
) -> None:
    path = tmp_path / "study.db"
    make(path)
    before = dump(path)
    with pytest.raises(StoreError, match=r"\$ optuna storage upgrade --storage"):
        open_database(f"sqlite:///{path}", read_only=read_only)
    assert dump(path) == before


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_query_without_end_is_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    engine = sa.create_engine(url)
    limit_statements(engine, 0.1)
    with engine.connect() as connection:
        with pytest.raises(StoreError, match="took too long"), store_errors(url):
            connection.exec_driver_sql(WITHOUT_END)
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()
