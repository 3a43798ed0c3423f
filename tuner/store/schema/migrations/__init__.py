"""Every change of the tuner's tables, one module a revision. Alembic carries them out.

A revision is never changed once it was released; what it needs of a table stands in it, and not
in `tuner.store.schema.models`, which are of today.
"""
