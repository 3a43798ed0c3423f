"""Checkpoints in an object store: what is uploaded, fetched and removed, and in which order."""
