"""Optuna's own storage of a database, for programs that use Optuna's API inside of a trial."""

from __future__ import annotations

from optuna.storages import BaseStorage, get_storage

from tuner.store.connection.database import optuna_backend, parse_url


def open_storage(url: str) -> BaseStorage:
    """Opens Optuna's storage of a database that has its tables already.

    Args:
        url: Any SQLAlchemy URL.

    Raises:
        StoreError: If it is malformed, or has tables of another Optuna.
    """
    return get_storage(optuna_backend(parse_url(url), makes_tables=False))
