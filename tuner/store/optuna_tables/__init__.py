"""Optuna's tables: a cached storage, and statements that read and write them."""
