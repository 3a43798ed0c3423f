"""A broken or hostile database gives a message, and no accident."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from tests.databases import new_database
from tests.integration.stored_studies.seeded import add_first_study
from tuner.cli.main import app
from tuner.errors import EXIT_BAD_INPUT, EXIT_STUDY_FAILED
from tuner.store.connection import engine
from tuner.store.connection.damage import find_damage

VERBS = (
    ("studies", "{}"),
    ("status", "{}"),
    ("trials", "{}"),
    ("best", "{}"),
    ("why", "{}", "0"),
    ("db", "status", "{}"),
)
WITHOUT_END = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT i AS trial_value_id, 1 AS trial_id, 0 AS objective, 0.5 AS value, "
    "'FINITE' AS value_type FROM n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    add_first_study(new_database(tmp_path))
    return tmp_path / "study.db"


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        for each in statements:
            connection.execute(each)


def look(file: Path) -> list[str]:
    """What each verb says that refuses."""
    said = []
    for verb in VERBS:
        ended = CliRunner().invoke(app, [word.format(f"sqlite:///{file}") for word in verb])
        assert "accident" not in ended.output, (verb, ended.output)
        is_exit = isinstance(ended.exception, SystemExit | None)
        assert is_exit, (verb, repr(ended.exception))
        assert ended.exit_code in (0, EXIT_BAD_INPUT, EXIT_STUDY_FAILED, 3, 4, 5), verb
        if ended.exit_code in (EXIT_BAD_INPUT, EXIT_STUDY_FAILED):
            said.append(ended.output)
    return said


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE trials SET state = 'NONE SUCH'",),
        ("UPDATE trials SET datetime_start = 'yesterday'",),
        ("UPDATE trials SET datetime_start = x'00ff'",),
        ("UPDATE trials SET number = 'many'",),
        ("UPDATE trial_values SET value = 'high'",),
        ("UPDATE trial_values SET value_type = 'odd'",),
        ("UPDATE trial_params SET distribution_json = '{'",),
        ("UPDATE trial_params SET distribution_json = '[]'",),
        ("UPDATE study_user_attributes SET value_json = '{'",),
        ("UPDATE study_user_attributes SET value_json = '7'",),
        ("UPDATE study_directions SET direction = 'UP'",),
        ("UPDATE tuner_attempts SET state = 'odd', params = '{'",),
        ("UPDATE tuner_dispatchers SET versions = '[', started_at = 'x'",),
        ("UPDATE tuner_dispatchers SET versions = '[1]', pid = -1",),
        ("UPDATE tuner_dispatchers SET pid = 99999999999999999, devices = '7'",),
        ("DROP TABLE trial_values",),
        ("DROP TABLE tuner_attempts",),
        ("ALTER TABLE trials DROP COLUMN datetime_start",),
        ("DELETE FROM study_directions",),
        ("DELETE FROM tuner_alembic_version",),
    ],
    ids=lambda statements: statements[0][:60],
)
def test_a_message_says_what_is_wrong(file: Path, statements: tuple[str, ...]) -> None:
    change(file, *statements)
    look(file)


@pytest.mark.parametrize("of", ["tuner", "optuna"])
def test_a_sound_database_has_no_damage(file: Path, tmp_path: Path, of: str) -> None:
    if of == "optuna":
        file = tmp_path / "optuna.db"
        optuna.create_study(storage=f"sqlite:///{file}").optimize(lambda trial: 0.5, n_trials=1)
    with sa.create_engine(f"sqlite:///{file}").connect() as connection:
        assert find_damage(connection) == ""


def test_damage_of_a_database_is_not_told_of_the_next_one(file: Path, tmp_path: Path) -> None:
    change(file, "UPDATE trials SET state = 'NONE SUCH'")
    assert look(file)
    (tmp_path / "second").mkdir()
    sound = new_database(tmp_path / "second")
    add_first_study(sound)
    change(tmp_path / "second" / "study.db", "DELETE FROM study_directions")
    said = look(tmp_path / "second" / "study.db")
    assert said
    assert all("a study has no direction" in each and str(file) not in each for each in said)


def test_a_cell_of_a_wrong_kind_is_named(file: Path) -> None:
    change(file, "UPDATE trials SET state = 'NONE SUCH'")
    assert any("the table trials has" in each and "column state" in each for each in look(file))


def test_a_file_that_is_cut_off_or_has_random_bytes(file: Path) -> None:
    whole = file.read_bytes()
    rng = random.Random(0)
    for _ in range(8):
        broken = bytearray(whole[: rng.randrange(2048, len(whole))])
        for at in rng.sample(range(100, len(broken)), 200):
            broken[at] = rng.randrange(256)
        file.write_bytes(broken)
        look(file)


def test_a_view_without_end_in_the_place_of_a_table(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "READING_LIMIT_S", 0.2)
    change(file, "DROP TABLE trial_values", f"CREATE VIEW trial_values AS {WITHOUT_END}")
    assert any("took too long" in each for each in look(file))
