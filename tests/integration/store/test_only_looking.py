"""Commands that only look write nothing into a database, however old, and end on a hostile one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa

from tests.contract.store.old_schema import write_database_of_0001
from tests.e2e.study_folder import Ended, StudyFolder
from tests.integration.stored_studies.seeded import add_first_study
from tuner.app.data.connection import ReadOnlyDatabase
from tuner.checkpoints.paths import StudyFiles
from tuner.errors import StoreError
from tuner.queries.locate import stored_studies
from tuner.store.connection.database import open_database, store_errors
from tuner.store.connection.engine import limit_statements

WITHOUT_END = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
)
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


def tuner(folder: Path, *words: str, before: tuple[str, ...] = ()) -> Ended:
    return StudyFolder(path=folder).start_tuner(*words, prefix=before).wait(timeout_s=100.0)


@pytest.mark.parametrize("make", [of_optuna_before_versions, of_older_tuner, of_today])
def test_no_byte_of_it_changes(tmp_path: Path, make) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    path = folder / "study.db"
    make(path)
    make_single_file(path)
    before = path.read_bytes()
    for verb in VERBS if make is of_today else VERBS_OF_OLD:
        tuned = tuner(folder, *(word.format(f"sqlite:///{path}") for word in verb))
        assert "accident" not in tuned.err, (verb, tuned.err)
        assert "Traceback" not in tuned.err, (verb, tuned.err)
        assert path.read_bytes() == before, verb


#: Whether a database is too old is found where it is opened, which all do alike.
VERBS_OF_OLD = tuple(verb for verb in VERBS if verb[0] in ("status", "report", "db"))
#: Exit codes; `tuner status` says 4 of a study whose dispatcher is silent.
_LOOKED = (0, 4)
#: Those that are given a study file.
FILE_VERBS: tuple[tuple[str, ...], ...] = (
    ("validate", "study.yaml"),
    ("run", "study.yaml", "--dry-run"),
    ("logs", "0", "study.yaml"),
    ("report", "study.yaml", "-o", "../report.html"),
    ("status", "study.yaml"),
)


def write_study_file(folder: Path) -> None:
    (folder / "train.py").write_text("def train(trial):\n    pass\n")
    (folder / "study.yaml").write_text(
        "trial: {function: train:train}\nstudy: first\nstorage: sqlite:///study.db\n"
        "objectives: {accuracy: maximize}\n"
        "search_space: {lr: {type: float, low: 0.1, high: 1.0}}\n"
        "devices: cpu:1\nbudget: {trials: 8}\n"
    )
    log = StudyFiles(folder=folder, study="first").log(0, 1, 0)
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1\n")


def contents(folder: Path) -> dict[str, bytes]:
    # Of the processes that look; `tuner validate` reads the program and imports nothing.
    of_an_import = ("imports.log", ".pyc")
    files = (each for each in folder.rglob("*") if each.is_file())
    files = (each for each in files if not each.name.endswith(of_an_import))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "make",
    # By day: `test_no_byte_of_it_changes`.
    [pytest.param(of_older_tuner, marks=pytest.mark.nightly), of_today],
)
def test_what_looks_at_a_study_file_changes_no_file(tmp_path: Path, make) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    make(folder / "study.db")
    make_single_file(folder / "study.db")
    write_study_file(folder)
    before = contents(folder)
    for verb in FILE_VERBS:
        tuned = tuner(folder, *verb)
        assert "accident" not in tuned.err, (verb, tuned.err)
        assert "Traceback" not in tuned.err, (verb, tuned.err)
        assert tuned.code in _LOOKED or make is of_older_tuner, (verb, tuned.err)
        assert contents(folder) == before, verb


@pytest.mark.timeout(300)
def test_what_may_not_be_written_can_be_looked_at(tmp_path: Path) -> None:
    """A colleague's study: neither the file nor its folder can be written."""
    folder = tmp_path / "study"
    folder.mkdir()
    of_today(folder / "study.db")
    make_single_file(folder / "study.db")
    write_study_file(folder)
    before, without_rights = contents(folder), give_away(folder)
    others = (verb for verb in VERBS if verb[0] in ("best", "db"))
    # Each starts anew; the other verbs open the database as `tuner status` does.
    of_files = (verb for verb in FILE_VERBS if verb[0] in ("run", "status"))
    for verb in (*of_files, *others):
        tuned = tuner(
            folder, *(word.format("sqlite:///study.db") for word in verb), before=without_rights
        )
        assert tuned.code in _LOOKED, (verb, tuned.err)
    assert contents(folder) == before


def give_away(folder: Path) -> tuple[str, ...]:
    """Takes the right to write from us; returns the words before a command that keep it away."""
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() != 0:
        return ()
    # Root may write whatever is not allowed, unless it lacks this capability.
    words = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    touched = folder / "touched"
    try:
        for path in paths:
            os.chown(path, 65534, 65534)
        subprocess.run([*words, "touch", str(touched)], check=False, capture_output=True)
    except OSError:
        pytest.skip("needs setpriv, and the right to give files away")
    if touched.exists():
        pytest.skip("root cannot be kept from writing here")
    return words


def make_single_file(path: Path) -> None:
    """Makes it a single file, like a copy that somebody sends."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def test_the_dashboard_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    of_today(path)
    make_single_file(path)
    before = path.read_bytes()
    database = ReadOnlyDatabase(f"sqlite:///{path}")
    assert list(database.read(stored_studies)) == ["first"]
    with pytest.raises(StoreError, match="read-only"):
        database.read(lambda connection: connection.exec_driver_sql("DELETE FROM trials"))
    database.close()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["study.db"]


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


def test_every_database_refuses_a_write_of_who_only_looks(url: str) -> None:
    add_first_study(url)
    look = open_database(url, read_only=True)
    rename = "UPDATE studies SET study_name = 'other'"
    # Each transaction anew, also on a connection that was used before.
    for _ in range(2):
        with (
            pytest.raises(sa.exc.DBAPIError, match=r"(?i)read-? ?only"),
            look.engine.begin() as connection,
        ):
            connection.exec_driver_sql(rename)
    with look.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT study_name FROM studies").scalar() == "first"
    look.close()
    # Whoever writes is not hindered.
    written = open_database(url)
    with written.engine.begin() as connection:
        connection.exec_driver_sql(rename)
    written.close()


def test_a_query_without_end_is_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    engine = sa.create_engine(url)
    limit_statements(engine, 0.1)
    with engine.connect() as connection:
        with pytest.raises(StoreError, match="took too long"), store_errors(url):
            connection.exec_driver_sql(WITHOUT_END)
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()
