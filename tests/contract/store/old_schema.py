"""A database as the first tuner left it: its tables as it made them, rows by SQL of that time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import optuna
import sqlalchemy as sa

_FOLDER = Path(__file__).with_name("schema_0001")
_DDL = {"sqlite": "sqlite.sql", "postgresql": "postgresql.sql", "mysql": "mariadb.sql"}


def write_database_of_0001(url: str) -> None:
    """Makes Optuna's tables with one study of two trials, and the tuner's of schema 0001."""
    study = optuna.create_study(storage=url, study_name="s")
    study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), 0.5)
    study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    with connected(url) as connection:
        for file in (_DDL[connection.dialect.name], "rows.sql"):
            # Each statement as it stands: a colon is no parameter.
            for statement in (_FOLDER / file).read_text().split(";\n"):
                if statement.strip():
                    connection.exec_driver_sql(statement)


def rows_of(url: str) -> dict[str, list[dict[str, object]]]:
    """The rows of the tuner's tables, by table."""
    with connected(url) as connection:
        tables = sa.inspect(connection).get_table_names()
        return {
            name: [
                dict(row)
                for row in connection.execute(
                    sa.text(f"SELECT * FROM {name} ORDER BY 1")
                ).mappings()
            ]
            for name in tables
            if name.startswith("tuner_")
        }


@contextlib.contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()
