"""The tables of a new database are those that the migrations make, on every database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from optuna.storages import RDBStorage

from tests.contract.store.old_schema import connected, write_database_of_0001
from tuner.store.connection.database import open_database
from tuner.store.schema.models import VERSION_TABLE
from tuner.store.schema.revision import OPTUNA_REVISION, metadata_with_optuna, optuna_revision
from tuner.store.schema.upgrade import migrate


def test_models_and_migrations_make_the_same_tables(new_url: str) -> None:
    open_database(new_url).close()
    with connected(new_url) as connection:
        assert differences_from_models(connection) == []
        made = tables_of(connection)
        drop_ours(connection)
    with connected(new_url) as connection:
        migrate(connection)
        assert differences_from_models(connection) == []
        assert tables_of(connection) == made


def test_first_revision_makes_the_tables_of_the_first_tuner(new_url: str) -> None:
    write_database_of_0001(new_url)
    with connected(new_url) as connection:
        made = tables_of(connection)
        drop_ours(connection)
    with connected(new_url) as connection:
        migrate(connection, "0001")
        assert tables_of(connection) == made


def test_optunas_revision_is_that_of_the_optuna_that_is_installed(new_url: str) -> None:
    open_database(new_url).close()
    backend = RDBStorage(new_url)
    assert backend.get_head_version() == backend.get_current_version() == OPTUNA_REVISION
    backend.engine.dispose()
    with connected(new_url) as connection:
        assert optuna_revision(connection) == OPTUNA_REVISION


def test_optunas_tables_are_those_that_optuna_makes(new_url: str) -> None:
    RDBStorage(new_url).engine.dispose()
    with connected(new_url) as connection:
        made, versions = tables_of(connection, of_us=False), versions_of(connection)
        drop_all(connection)
    open_database(new_url).close()
    with connected(new_url) as connection:
        assert tables_of(connection, of_us=False) == made
        assert versions_of(connection) == versions


def test_database_of_optuna_that_was_begun_is_completed(new_url: str) -> None:
    """Its tables are made one by one where the database has no transaction for that."""
    RDBStorage(new_url).engine.dispose()
    with connected(new_url) as connection:
        made = tables_of(connection, of_us=False)
        for name in ("alembic_version", "version_info", "trial_values"):
            connection.exec_driver_sql(f"DROP TABLE {name}")
    open_database(new_url).close()
    with connected(new_url) as connection:
        assert tables_of(connection, of_us=False) == made
        assert optuna_revision(connection) == OPTUNA_REVISION


def versions_of(connection: sa.Connection) -> list[list[sa.Row[Any]]]:
    names = ("alembic_version", "version_info")
    return [list(connection.exec_driver_sql(f"SELECT * FROM {name}")) for name in names]


def differences_from_models(connection: sa.Connection) -> list[Any]:
    """As `alembic check` sees them."""
    options = {
        "version_table": VERSION_TABLE,
        "include_name": lambda name, kind, _: kind != "table" or name.startswith("tuner_"),
        "include_object": lambda _, name, kind, *__: kind != "table" or name.startswith("tuner_"),
        "compare_type": is_other_type,
        "compare_server_default": True,
    }
    context = MigrationContext.configure(connection, opts=options)
    return compare_metadata(context, metadata_with_optuna())


def is_other_type(
    context: object, column: object, model: object, found: object, type_of_model: object
) -> bool | None:
    # Alembic does not know MySQL's DOUBLE by its name of FLOAT(53).
    is_double = isinstance(found, sa.Double) and isinstance(type_of_model, sa.Float)
    return False if is_double else None


def tables_of(connection: sa.Connection, *, of_us: bool = True) -> dict[str, dict[str, Any]]:
    """All that the database tells of the tuner's tables; Alembic does not compare it all."""
    inspector = sa.inspect(connection)
    names = [name for name in inspector.get_table_names() if name.startswith("tuner_") == of_us]
    return {name: _table(inspector, name) for name in names}


def _table(inspector: sa.Inspector, name: str) -> dict[str, Any]:
    return {
        "columns": {
            column["name"]: (str(column["type"]), column["nullable"], column["default"])
            for column in inspector.get_columns(name)
        },
        "primary key": inspector.get_pk_constraint(name),
        "foreign keys": sorted(
            (key["constrained_columns"], key["referred_table"], sorted(key["options"].items()))
            for key in inspector.get_foreign_keys(name)
        ),
        "unique": _by_name(inspector.get_unique_constraints(name)),
        "indexes": _by_name(inspector.get_indexes(name)),
        "checks": _by_name(inspector.get_check_constraints(name)),
    }


def _by_name(found: Any) -> list[Any]:
    return sorted(found, key=lambda each: (str(each["name"]), str(each)))


def drop_all(connection: sa.Connection) -> None:
    metadata = sa.MetaData()
    metadata.reflect(connection)
    metadata.drop_all(connection)


def drop_ours(connection: sa.Connection) -> None:
    ours = [table.name for table in reversed(metadata_with_optuna().sorted_tables)]
    for name in (*ours, VERSION_TABLE):
        if name.startswith("tuner_"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")
