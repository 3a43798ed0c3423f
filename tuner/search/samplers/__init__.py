"""Samplers: the registry, and what is wrapped around those of Optuna."""
