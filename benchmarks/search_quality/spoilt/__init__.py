"""Recorded tasks made harder to search: other spaces before them, other curves behind."""
