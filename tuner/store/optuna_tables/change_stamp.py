"""Detects cheaply whether another process has changed a database file."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

_MARK = "tuner: which connection"


class FileStamp(NamedTuple):
    """Equal to an earlier stamp of the same connection if no other connection has committed since.

    The connection's own writes do not change it.
    """

    connection: object
    version: int


def file_stamp(connection: sa.Connection) -> FileStamp | None:
    """None for a server, which has no such counter."""
    if connection.dialect.name != "sqlite":
        return None
    mark = connection.info.setdefault(_MARK, object())
    version = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
    return FileStamp(connection=mark, version=version)
