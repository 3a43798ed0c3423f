"""The tables, their revision, and the migrations."""
