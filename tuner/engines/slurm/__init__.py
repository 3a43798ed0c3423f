"""Slurm: an array of one-node jobs."""
