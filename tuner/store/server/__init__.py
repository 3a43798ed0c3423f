"""Runs a PostgreSQL server for users without one, and makes database backups."""
