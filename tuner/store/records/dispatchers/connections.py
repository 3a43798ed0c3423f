"""Whether a database server has connections for the dispatchers that work on it."""

from __future__ import annotations

import sqlalchemy as sa

from tuner.store.records.dispatchers.starts import open_dispatchers

#: For commands and the dashboard.
_SPARE = 2
# What ordinary users may have. `pg_stat_database` counts everybody's connections for everybody.
_POSTGRESQL = """
    SELECT current_setting('max_connections')::int
             - current_setting('superuser_reserved_connections')::int
             - coalesce(current_setting('reserved_connections', true), '0')::int,
           (SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database)
"""


def connections_remark(connection: sa.Connection) -> str:
    """Warns if a PostgreSQL server has few connections left; else empty.

    A dispatcher keeps one connection and opens a second one at times, so one should be left for
    each live dispatcher.
    """
    if connection.dialect.name != "postgresql":
        return ""
    limit, used = connection.execute(sa.text(_POSTGRESQL)).one()
    n_dispatchers = len(open_dispatchers(connection, None)) + 1
    left = max(0, limit - used)
    if left >= n_dispatchers + _SPARE:
        return ""
    return (
        f"The database server has {left} of {limit} connections left; dispatchers at work on this "
        f"database: {n_dispatchers}, each of which needs up to two. Raise its max_connections, or "
        "connect through PgBouncer (docs: Several machines)."
    )
