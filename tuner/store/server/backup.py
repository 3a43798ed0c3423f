"""Dumps of a database into one file, and the way back."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from tuner.errors import EXIT_BAD_INPUT, StoreError
from tuner.store.connection.database import check_file, parse_url, shown_url, store_errors
from tuner.store.connection.engine import open_engine
from tuner.store.connection.filesystem import path_of
from tuner.store.server.programs import client_program

#: Parts of a URL's query that libpq reads from environment variables.
_VARIABLES = {"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT"}
_VARIABLES |= {"sslkey": "PGSSLKEY", "connect_timeout": "PGCONNECT_TIMEOUT"}


def back_up(url: str, output: Path | None) -> Path:
    """Writes a consistent copy while other programs may write.

    Args:
        url: URL of the database.
        output: The file; None for one with the date in its name, in the current folder.

    Returns:
        The file.

    Raises:
        StoreError: If the file exists already or cannot be written, or the database is missing,
            unreachable or MySQL.
        LaunchError: If `pg_dump` is missing.
    """
    parsed = parse_url(url)
    check_file(parsed, must_exist=True)
    kind = parsed.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise StoreError(f"tuner db backup does not support {kind}. Use mysqldump.")
    suffix = "db" if kind == "sqlite" else "dump"
    name = f"{Path(parsed.database or 'tuner').stem}-{datetime.now():%Y%m%d-%H%M%S}.{suffix}"
    path = Path(name) if output is None else output
    if path.exists():
        raise StoreError(f"{path} exists already. Name another file.")
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.touch(mode=0o600)
        if (file := path_of(parsed)) is not None:
            _copy(file, partial)
        else:
            words = ("--format=custom", "--no-owner", "--no-privileges", f"--file={partial}")
            _run(parsed, "pg_dump", *words)
        partial.rename(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def restore_dump(url: str, dump: Path) -> None:
    """Restores a dump into an empty PostgreSQL database, completely or not at all.

    Raises:
        StoreError: If the database has tables, or the dump cannot be read.
        LaunchError: If `pg_restore` is missing.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() != "postgresql":
        raise StoreError(
            "tuner db restore is for PostgreSQL. A copy of an SQLite database is a database: name "
            "it in storage."
        )
    if not dump.is_file():
        raise StoreError(f"There is no file {dump}.")
    if tables := _facts(parsed)[1]:
        raise StoreError(
            f"{shown_url(url)} is not empty (table {tables[0]}). Restore into a new database."
        )
    words = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
    _run(parsed, "pg_restore", *words, f"--dbname={parsed.database}", str(dump.absolute()))


def _copy(source: Path, target: Path) -> None:
    try:
        with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)
    except sqlite3.Error as error:
        raise StoreError(f"{source} could not be copied: {error}.") from error


def _run(url: sa.URL, program: str, *words: str) -> None:
    command = [client_program(program, _facts(url)[0]), "--no-password", *words]
    done = subprocess.run(
        command, env=_environment(url), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise StoreError(f"{program} failed: {done.stderr.strip()[-1000:]}")


def _facts(url: sa.URL) -> tuple[int, list[str]]:
    """Major version of the server, and the tables of the database."""
    with store_errors(url.render_as_string(hide_password=False), exit_code=EXIT_BAD_INPUT):
        engine = open_engine(url, read_only=True)
        try:
            with engine.connect() as connection:
                version = connection.dialect.server_version_info or (0,)
                return int(version[0]), sorted(sa.inspect(connection).get_table_names())
        finally:
            engine.dispose()


def _environment(url: sa.URL) -> Mapping[str, str]:
    """For libpq. Arguments would show the password to everyone on the machine."""
    parts = {
        "PGHOST": url.host,
        "PGPORT": url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.database,
        **{name: url.query.get(part) for part, name in _VARIABLES.items()},
    }
    given = {name: str(value) for name, value in parts.items() if value is not None}
    return {**os.environ, **given, "LC_ALL": "C.UTF-8"}
