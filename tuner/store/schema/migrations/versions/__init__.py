"""The revisions. Alembic finds them by their `revision` and `down_revision`."""
