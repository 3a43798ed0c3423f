"""Results that thousands of tests need, computed once per process.

Each test opens a database of its own. SQLAlchemy keeps the SQL of a statement with the engine, and
Optuna imports all of its migrations to learn which is the newest: a third of the processor time of
the tests of the dispatcher. Streamlit's `AppTest` reads the metadata of every installed package
for each run of a page: four fifths of that of the tests of pages. Commands, which are processes of
their own, are not touched.
"""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa
from optuna.storages._rdb.storage import _VersionManager
from sqlalchemy.util import LRUCache

_DIALECTS = ("sqlite", "postgresql+psycopg", "mysql+pymysql")
_N_STATEMENTS = 5000


def share_caches() -> None:
    """Shares compiled statements among engines of a dialect, and asks Optuna's migrations once."""
    _share_statements()
    _ask_once()


def look_for_components_once() -> None:
    """Lets pages under `AppTest` share what Streamlit finds in the installed packages."""
    from streamlit.components.v2 import manifest_scanner

    manifest_scanner.scan_component_manifests = functools.cache(
        manifest_scanner.scan_component_manifests
    )


def _share_statements() -> None:
    dialects = {sa.make_url(f"{each}://").get_dialect() for each in _DIALECTS}
    statements: LRUCache[Any, Any] = LRUCache(_N_STATEMENTS)
    begin = sa.Engine.__init__

    def begin_with_statements(engine: sa.Engine, *arguments: Any, **options: Any) -> None:
        begin(engine, *arguments, **options)
        if type(engine.dialect) in dialects and engine._compiled_cache is not None:
            engine._compiled_cache = statements

    sa.Engine.__init__ = begin_with_statements  # type: ignore[method-assign]
    for dialect in dialects:
        # It is a part of the key of a statement.
        dialect.__eq__ = lambda one, two: _way(one) == _way(two)  # type: ignore[assignment,method-assign]
        dialect.__hash__ = lambda one: hash(_way(one))  # type: ignore[method-assign]


def _way(dialect: Any) -> tuple[object, ...]:
    """What decides how a dialect compiles a statement and converts its values."""
    return (
        type(dialect),
        dialect.paramstyle,
        dialect.server_version_info,
        dialect.use_insertmanyvalues,
        getattr(dialect, "is_mariadb", None),
        getattr(dialect, "_json_serializer", None),
        getattr(dialect, "_json_deserializer", None),
    )


def _ask_once() -> None:
    ask = _VersionManager.get_head_version
    known: list[str] = []

    def get_head_version(manager: _VersionManager) -> str:
        if not known:
            known.append(ask(manager))
        return known[0]

    _VersionManager.get_head_version = get_head_version  # type: ignore[method-assign]
