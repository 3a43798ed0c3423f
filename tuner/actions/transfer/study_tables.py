"""Which rows of which tables belong to a study, and how they hang together.

Taken from the foreign keys, so that a table that is added later is exported and deleted as well.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tuner.store.optuna_tables.statements import STUDIES
from tuner.store.optuna_tables.statements import models as optuna_models
from tuner.store.schema.revision import metadata_with_optuna

#: Tables about machines, not studies, and the columns that identify their rows in every database.
SHARED = {"tuner_hosts": ("name",), "tuner_devices": ("host_id", "device")}
#: Not instants, JSON or the like, of which databases have different ideas.
_PLAIN = {sa.Integer, sa.Float, sa.Double, sa.String, sa.Text, sa.Enum}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """A table with rows that belong to studies."""

    table: sa.Table
    #: The column that names the row that a row belongs to; None for the study itself.
    owner: sa.Column[Any] | None
    #: Columns that name rows of other tables, with the names of those tables.
    references: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def key(self) -> sa.Column[Any]:
        return next(iter(self.table.primary_key.columns))

    @property
    def identity(self) -> Sequence[sa.Column[Any]]:
        """All columns of the primary key: without them the order of rows would be the server's."""
        return list(self.table.primary_key.columns)

    @property
    def is_keyed_by_owner(self) -> bool:
        """Whether it has no identifier of its own."""
        return self.key is self.owner

    @property
    def is_referred_to(self) -> bool:
        """Whether rows of other tables name its rows."""
        return any(self.name in each.references.values() for each in _tables().values())

    @property
    def is_plain(self) -> bool:
        """Whether every driver reads and writes its values unchanged."""
        types = {type(column.type) for column in self.table.columns}
        is_leaf = not self.is_referred_to and not self.is_keyed_by_owner
        return is_leaf and len(self.references) == 1 and types <= _PLAIN

    def of_study(self, study_id: int) -> sa.ColumnElement[bool]:
        """The condition for a row to belong to a study."""
        if self.owner is None:
            return self.key == study_id
        above = _tables()[_target(self.owner)]
        return self.owner.in_(sa.select(above.key).where(above.of_study(study_id)))


def study_tables(*, with_ours: bool) -> list[StudyTable]:
    """Tables in the order of their references, referenced ones first."""
    optunas = optuna_models.BaseModel.metadata.tables
    return [each for name, each in _tables().items() if with_ours or name in optunas]


@functools.cache
def _tables() -> dict[str, StudyTable]:
    found: dict[str, StudyTable] = {}
    for table in _all_tables():
        owner = next((each for each in table.columns if _is_owner(each, found)), None)
        if owner is not None or table is STUDIES:
            references = {each.name: _target(each) for each in table.columns if each.foreign_keys}
            found[table.name] = StudyTable(table=table, owner=owner, references=references)
    return found


def _all_tables() -> Iterator[sa.Table]:
    optuna = optuna_models.BaseModel.metadata
    yield from optuna.sorted_tables
    # Some of Optuna's tables are among ours, as targets of foreign keys.
    ours = metadata_with_optuna().sorted_tables
    yield from (each for each in ours if each.name not in optuna.tables)


def _is_owner(column: sa.Column[Any], known: dict[str, StudyTable]) -> bool:
    return any(_target_of(key) in known for key in column.foreign_keys)


def _target(column: sa.Column[Any]) -> str:
    return _target_of(next(iter(column.foreign_keys)))


def _target_of(key: sa.ForeignKey) -> str:
    # Not `key.column`: the target need not be in the same metadata.
    return key.target_fullname.partition(".")[0]
