"""Curves of trials: read from the database on first use, or growing while a trial runs."""
