"""Checkpoint files on disk: where they are, whose they are, which are kept."""
