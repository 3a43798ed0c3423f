"""A PostgreSQL server for those who have none, and dumps of databases."""
