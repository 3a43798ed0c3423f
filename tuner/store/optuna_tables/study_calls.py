"""Optuna storage methods about studies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar
from uuid import uuid4

from optuna.exceptions import DuplicatedStudyError
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from sqlalchemy.exc import IntegrityError

from tuner.store.connection.transactions import Access
from tuner.store.optuna_compat import DEFAULT_STUDY_NAME_PREFIX, FrozenStudy
from tuner.store.optuna_tables import studies as optuna_studies

T = TypeVar("T")


class StudyCalls(BaseStorage):
    """The storage methods about studies.

    Args:
        make_backend: Makes Optuna's storage of the same database, for rare methods. Called on first
            use, because Optuna then imports Alembic.
        access: Runs transactions on that database.
    """

    def __init__(self, make_backend: Callable[[], RDBStorage], access: Access) -> None:
        self._make_backend = make_backend
        self._access = access
        self._names: dict[int, str] = {}
        self._directions: dict[int, list[StudyDirection]] = {}

    @cached_property
    def _backend(self) -> RDBStorage:
        return self._make_backend()

    def close(self) -> None:
        """Closes all connections. Unflushed rows are lost. Safe to call twice."""
        if "_backend" in self.__dict__:
            self._backend.engine.dispose()
        self._access.close()

    def engines(self) -> list[object]:
        """Connection pools of Optuna's storage, if it is in use."""
        return [self._backend.engine.pool] if "_backend" in self.__dict__ else []

    def move_to(self, make_backend: Callable[[], RDBStorage]) -> None:
        """Switches Optuna's storage to another database with the same rows."""
        self._make_backend = make_backend
        if "_backend" in self.__dict__:
            self._backend.engine.dispose()
            del self.__dict__["_backend"]

    def remove_session(self) -> None:
        if "_backend" in self.__dict__:
            self._backend.remove_session()

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        name = f"{DEFAULT_STUDY_NAME_PREFIX}{uuid4()}" if study_name is None else study_name
        try:
            return self._access.run(lambda c: optuna_studies.make_study(c, name, directions))
        except IntegrityError as error:
            raise DuplicatedStudyError(f"There is a study {name!r} already.") from error

    def delete_study(self, study_id: int) -> None:
        self._backend.delete_study(study_id)
        self._names.pop(study_id, None)
        self._directions.pop(study_id, None)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self._access.run(lambda c: optuna_studies.set_user_attr(c, study_id, key, value))

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._access.run(lambda c: optuna_studies.set_system_attr(c, study_id, key, value))

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._access.run(lambda c: optuna_studies.id_of(c, study_name))

    def get_study_name_from_id(self, study_id: int) -> str:
        if study_id not in self._names:
            self._names[study_id] = self._access.run(lambda c: optuna_studies.name_of(c, study_id))
        return self._names[study_id]

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        if study_id not in self._directions:
            self._directions[study_id] = self._access.run(
                lambda c: optuna_studies.directions_of(c, study_id)
            )
        return list(self._directions[study_id])

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._access.run(lambda c: optuna_studies.user_attrs_of(c, study_id))

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._access.run(lambda c: optuna_studies.system_attrs_of(c, study_id))

    def get_all_studies(self) -> list[FrozenStudy]:
        return self._ask(lambda backend: backend.get_all_studies())

    def _ask(self, question: Callable[[RDBStorage], T]) -> T:
        return self._access.call(lambda: question(self._backend))
