"""Migrations of the tuner's tables, one module per revision, run by Alembic.

A released revision never changes. It defines the tables that it needs by itself, because
`tuner.store.schema.models` holds only the latest ones.
"""
