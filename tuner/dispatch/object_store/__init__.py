"""Checkpoints in an object store: the order of uploads, downloads and removals."""
