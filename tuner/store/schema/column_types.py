"""Column types that hold the same on SQLite, PostgreSQL and MySQL.

Left to their defaults, MySQL cuts instants to seconds and texts to 64 KB, PostgreSQL refuses the
character NUL in a text, and both refuse NaN in JSON.
"""

from __future__ import annotations

import json
import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql


class PlainText(sa.TypeDecorator[str]):
    """Text for display: up to 16 MB, with any characters that a program printed."""

    impl = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql")
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else storable(value)


class PlainJson(sa.TypeDecorator[Any]):
    """JSON; NaN and infinities are the texts `nan`, `inf` and `-inf`."""

    impl = sa.JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            return _without_nan(value)
        return value


def instant() -> sa.DateTime:
    """In UTC without a zone, to the microsecond."""
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")


def storable(text: str) -> str:
    """The text with `\\ufffd` and `?` in place of characters that a database cannot store."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _without_nan(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: _without_nan(each) for key, each in value.items()}
        case list() | tuple():
            return [_without_nan(each) for each in value]
    return value
