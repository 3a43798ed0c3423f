"""Translates database errors into what to do. Never contains a password or a statement."""

from __future__ import annotations

import re

from sqlalchemy import exc

_DRIVERS = {
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pymysql": "mysql",
    "MySQLdb": "mysql",
}
#: Texts of SQLite, libpq, psycopg, PostgreSQL, PyMySQL and MariaDB; their meaning, where {0} is
#: their first line; and what to do.
_REASONS = (
    (
        r"disk is full|No space left|table .* is full",
        "The disk is full: the database could not be written",
        "Free some space and start the same command again; trials that finished before are safe",
    ),
    (
        r"^interrupted$",
        "A query of the database took too long and was stopped: the file is damaged, or holds a "
        "view in the place of a table",
        "",
    ),
    (
        "unable to open database file",
        "The database file cannot be opened: its folder is missing or not writable",
        "Make it writable, or name another storage",
    ),
    (
        "readonly database",
        "The database file is read-only",
        "Make it writable or name another storage",
    ),
    (
        r"no such table|relation .* does not exist|Table .* doesn't exist",
        "The database has no study in it yet",
        "Run the study first",
    ),
    (
        "not a database|malformed",
        "The file is not an SQLite database",
        "Name another storage",
    ),
    (
        r"is locked|lock timeout|Lock wait timeout",
        "The database stayed locked by another program",
        "End that program, then start again",
    ),
    (
        r"Connection refused|Can't connect to|could not translate host name|timed? ?out"
        r"|failed to resolve host|No route to host|Network is unreachable",
        "The database server did not answer: {0}",
        "Start it, or correct its host and port in storage",
    ),
    (
        r"server closed the connection|Lost connection|has gone away|terminating connection"
        r"|is shutting down|is starting up|connection is (lost|closed)|Broken pipe|reset by peer",
        "The database server ended the connection: {0}",
        "Start it again, then the same command; what was finished is safe",
    ),
    (
        r"too many clients already|remaining connection slots|no more connections allowed"
        r"|Too many connections",
        "The database server has no connection left: {0}",
        "Raise max_connections of the server, or put PgBouncer in front of it",
    ),
    (
        r"authentication failed|Access denied for user .*using password|no password supplied",
        "The database server refuses the user or the password: {0}",
        "Correct them in storage, or in the variable or file that storage takes them from",
    ),
    (
        r'database ".*" does not exist|Unknown database',
        "There is no such database on the server: {0}",
        "Make it (CREATE DATABASE), or correct its name in storage",
    ),
    (
        r"(duplicate key|Duplicate entry|UNIQUE constraint).*"
        r"(uq_tuner_leases_held|tuner_leases\.held_device_id)",
        "A device of this machine is still leased to another dispatcher, which runs in another "
        "container or did not record its end",
        "Wait a minute and start the same command again: a dispatcher without a heartbeat for 60 s "
        "loses its leases",
    ),
    (
        r"permission denied|command denied|Access denied",
        "The database user may not do that: {0}",
        "Grant it all rights on this database (PostgreSQL: GRANT ALL ON SCHEMA public TO that "
        "user)",
    ),
)


def reason_of(error: exc.DBAPIError) -> str:
    """The problem and what to do, without the last full stop."""
    return ". ".join(part for part in _told(error) if part)


def problem_of(error: exc.DBAPIError) -> str:
    """The problem alone, for callers that retry by themselves."""
    return _told(error)[0]


def _told(error: exc.DBAPIError) -> tuple[str, str]:
    text = _text_of(error)
    first_line = text.splitlines()[0] if text else type(error).__name__
    for pattern, problem, remedy in _REASONS:
        if re.search(pattern, text):
            return problem.format(first_line), remedy
    return f"The database could not be used: {first_line}", ""


def missing_driver(error: ModuleNotFoundError) -> str:
    extra = _DRIVERS.get(error.name or "")
    install = f"pip install 'gpu-tuner[{extra}]'" if extra else f"pip install {error.name}"
    return f"storage needs the Python package {error.name!r}, which is not installed. {install}"


def _text_of(error: exc.DBAPIError) -> str:
    # The drivers of MySQL have a number first and the words after it.
    match getattr(error.orig, "args", ()):
        case (int(), str() as words, *_):
            return words.strip()
    return str(error.orig).strip()
