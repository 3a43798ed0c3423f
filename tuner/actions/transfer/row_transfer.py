"""Moves a study from one database to another, with new identifiers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import sqlalchemy as sa

from tuner.actions.transfer.study_tables import SHARED, StudyTable, study_tables
from tuner.queries.dispatchers import has_our_tables
from tuner.store.schema.models import TunerBase

_BATCH = 2000

Row: TypeAlias = dict[str, Any]
#: Converts a row for the other database; None drops it.
Change: TypeAlias = Callable[[Row], Row | None]


def leave_out(_row: Row) -> None:
    """A change for all rows of a table."""


class Transfer:
    """Copies one study. Everything is written in the caller's transaction.

    Args:
        source: With a consistent snapshot.
        target: In a transaction of a database that has all tables.
        changes: By table, called for each row, owners before the rows that refer to them. Rows of
            other tables are copied unchanged.
    """

    def __init__(
        self, source: sa.Connection, target: sa.Connection, changes: Mapping[str, Change]
    ) -> None:
        self._source = source
        self._target = target
        self._changes = changes
        # Now: while rows are streamed, some drivers cannot ask for others.
        self._shared = _read_shared(source)
        #: By table: ids in the target by ids in the source.
        self._ids: dict[str, dict[int, int]] = {}

    def copy(self, study_id: int, name: str, tables: Sequence[StudyTable] | None = None) -> int:
        """Copies a study under an unused name.

        Args:
            study_id: Its id in the source.
            name: Its name in the target.
            tables: Tables to copy, owners first; None for all that the source has.

        Returns:
            Its id in the target.
        """
        if tables is None:
            tables = study_tables(with_ours=has_our_tables(self._source))
        for each in tables:
            if self._changes.get(each.name) is leave_out:
                # Not even read: an upgraded database of an old Optuna has no trial_heartbeats.
                continue
            if each.is_plain and each.name not in self._changes:
                self._copy_plain(each, study_id)
            else:
                self._copy_table(each, study_id, name)
        return self._ids["studies"][study_id]

    @property
    def trial_ids(self) -> dict[int, int]:
        """New ids of the copied trials by their old ids."""
        return self._ids.get("trials", {})

    # -- row by row --------------------------------------------------------------------------

    def _copy_table(self, table: StudyTable, study_id: int, name: str) -> None:
        found = self._read(table, study_id, table.table.columns)
        columns = list(found.keys())
        rows = (self._changed(table, dict(zip(columns, row, strict=True)), name) for row in found)
        for batch in _batches(row for row in rows if row is not None):
            self._insert(table, batch)

    def _read(
        self, table: StudyTable, study_id: int, columns: Iterable[sa.ColumnElement[Any]]
    ) -> sa.CursorResult[Any]:
        query = sa.select(*columns).where(table.of_study(study_id)).order_by(*table.identity)
        # Not all at once: a study has millions of reports.
        return self._source.execute(query, execution_options={"yield_per": _BATCH})

    def _changed(self, table: StudyTable, row: Row, name: str) -> Row | None:
        change = self._changes.get(table.name)
        changed = change(row) if change else row
        if changed is None:
            return None
        if table.name == "studies":
            changed = changed | {"study_name": name}
        for column, target in table.references.items():
            old = changed[column]
            if old is None:
                continue
            new = self._shared_id(target, old) if target in SHARED else self._ids[target].get(old)
            if new is None:
                return None  # It belongs to a row that was left out.
            changed[column] = new
        return changed

    def _insert(self, table: StudyTable, rows: list[Row]) -> None:
        if table.is_keyed_by_owner:
            self._target.execute(sa.insert(table.table), rows)
            return
        old_ids = [row.pop(table.key.name) for row in rows]
        if not table.is_referred_to:
            self._target.execute(sa.insert(table.table), rows)
            return
        new_ids = insert_with_ids(self._target, table.table, rows)
        self._ids.setdefault(table.name, {}).update(zip(old_ids, new_ids, strict=True))

    # -- as the driver has them --------------------------------------------------------------

    def _copy_plain(self, table: StudyTable, study_id: int) -> None:
        """Much the same in a third of the time, while a running study waits to write."""
        columns = [column for column in table.table.columns if column is not table.key]
        names = [column.name for column in columns]
        (owner,) = table.references.values()
        place = names.index(next(iter(table.references)))
        ids = self._ids.get(owner, {})
        untyped = [sa.type_coerce(column, sa.types.NullType()) for column in columns]
        rows = self._read(table, study_id, untyped)
        statement = _insert_statement(self._target.dialect, table.name, names)
        moved = (
            (*row[:place], ids[row[place]], *row[place + 1 :]) for row in rows if row[place] in ids
        )
        for batch in _batches(moved):
            self._target.exec_driver_sql(statement, batch)

    # -- what several studies share ----------------------------------------------------------

    def _shared_id(self, table_name: str, old_id: int) -> int:
        """The id of a host or a device, which is created if the target does not have it."""
        known = self._ids.setdefault(table_name, {})
        if old_id not in known:
            known[old_id] = self._find_shared(TunerBase.metadata.tables[table_name], old_id)
        return known[old_id]

    def _find_shared(self, table: sa.Table, old_id: int) -> int:
        row = dict(self._shared[table.name][old_id])
        del row["id"]
        if "host_id" in row:
            row["host_id"] = self._shared_id("tuner_hosts", row["host_id"])
        same = [table.c[name] == row[name] for name in SHARED[table.name]]
        found = self._target.execute(sa.select(table.c.id).where(*same)).scalar()
        return int(found) if found is not None else insert_with_ids(self._target, table, [row])[0]


def _read_shared(source: sa.Connection) -> dict[str, dict[int, Row]]:
    if not has_our_tables(source):
        return {}
    tables = [TunerBase.metadata.tables[name] for name in SHARED]
    return {
        table.name: {row.id: row._asdict() for row in source.execute(sa.select(table))}
        for table in tables
    }


def _batches(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(rows, _BATCH)):
        yield batch


def _insert_statement(dialect: sa.Dialect, table: str, names: Sequence[str]) -> str:
    quote = dialect.identifier_preparer.quote
    mark = "?" if dialect.paramstyle == "qmark" else "%s"
    columns = ", ".join(map(quote, names))
    return f"INSERT INTO {quote(table)} ({columns}) VALUES ({', '.join([mark] * len(names))})"


def insert_with_ids(connection: sa.Connection, table: sa.Table, rows: list[Row]) -> list[int]:
    """Inserts rows; returns their new ids in the same order."""
    (key,) = table.primary_key.columns
    insert = sa.insert(table)
    if connection.dialect.insert_executemany_returning_sort_by_parameter_order:
        returning = insert.returning(key, sort_by_parameter_order=True)
        return list(connection.execute(returning, rows).scalars())
    keys = [connection.execute(insert, row).inserted_primary_key for row in rows]
    return [int(key[0]) for key in keys if key is not None]
