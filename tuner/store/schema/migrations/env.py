"""Run by Alembic for each command; `tuner.store.schema.upgrade` provides the connection."""

from __future__ import annotations

from alembic import context

from tuner.store.schema.models import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    # SQLite cannot change a column: Alembic copies the table there.
    render_as_batch=True,
)
# The transaction is the caller's.
context.run_migrations()
