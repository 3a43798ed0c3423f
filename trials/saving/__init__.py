"""Writes checkpoints: in the background, as folders of files, as copies of a state."""
