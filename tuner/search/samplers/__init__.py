"""Samplers: the registry, and wrappers around Optuna's samplers."""
