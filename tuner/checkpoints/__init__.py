"""Checkpoint files on disk: paths, owners and retention."""
