"""Searches that were written for other systems: sweeps of W&B and Hydra, spaces of Ray."""
