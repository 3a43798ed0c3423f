"""Optuna's own storage of a database, for programs that use Optuna's API inside of a trial."""

from __future__ import annotations

from functools import partial
from typing import Any

from optuna.storages import BaseStorage, get_storage

from tuner.store.connection.database import optuna_backend, parse_url


def open_storage(url: str) -> BaseStorage:
    """Opens Optuna's storage of a database that has its tables already.

    Args:
        url: Any SQLAlchemy URL.

    Raises:
        StoreError: If it is malformed, or has tables of another Optuna.
    """
    storage = get_storage(optuna_backend(parse_url(url), makes_tables=False))
    # In memory Optuna takes arrays, such as the scores of a cross-validation; JSON holds lists.
    storage.set_trial_system_attr = (  # type: ignore[method-assign]
        partial(_set_plain_attr, storage)
    )
    return storage


def _set_plain_attr(storage: BaseStorage, trial_id: int, key: str, value: Any) -> None:
    type(storage).set_trial_system_attr(storage, trial_id, key, _plain(value))


def _plain(value: Any) -> Any:
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else value
