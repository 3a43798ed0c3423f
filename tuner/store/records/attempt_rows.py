"""The rows of attempts: leases, state changes, events and metrics, in few statements per batch.

A state change is a compare-and-set plus an event, in one transaction. Pending changes are merged:
an attempt that changes twice before a write is updated once, and one that is not in the database
yet is inserted in its latest state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tuner.domain.attempt import Attempt, AttemptId, AttemptState
from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.schema.models import AttemptRow, EventRow, LeaseRow, MetricRow, table_of
from tuner.store.schema.statements import as_stored, execute_rows, insert_row

# Made once, on the tables and not on the mapped classes: they are executed for every trial, and
# building a statement again costs more than SQLite needs to carry it out.
_ATTEMPTS = table_of(AttemptRow)
_LEASES = table_of(LeaseRow)
_INSERT_ATTEMPT = sa.insert(_ATTEMPTS)
# Inline: the keys of single rows are not needed.
_INSERT_LEASE = sa.insert(_LEASES).inline()
_INSERT_EVENT = sa.insert(table_of(EventRow)).inline()
_INSERT_METRIC = sa.insert(table_of(MetricRow)).inline()
_COLUMNS_MOVED = ("state", "pid", "started_at", "ended_at", "finished_at")
_COLUMNS_ENDED = (
    *_COLUMNS_MOVED,
    "outcome",
    "cause",
    "detail",
    "params",
    "peak_memory_bytes",
)


def _move(columns: Sequence[str]) -> sa.Update:
    """Compare-and-set: changes nothing if the state is no longer the expected one."""
    return (
        sa.update(_ATTEMPTS)
        .where(
            _ATTEMPTS.c.id == sa.bindparam("b_id"),
            _ATTEMPTS.c.state == sa.bindparam("b_state", type_=_ATTEMPTS.c.state.type),
        )
        .values({name: sa.bindparam(f"n_{name}", type_=_ATTEMPTS.c[name].type) for name in columns})
    )


#: By whether the attempt has ended meanwhile.
_MOVE = {False: _move(_COLUMNS_MOVED), True: _move(_COLUMNS_ENDED)}
_RELEASE = (
    sa.update(_LEASES)
    .where(_LEASES.c.attempt_id == sa.bindparam("b_id"))
    .values(released_at=sa.bindparam("b_released_at"), held_device_id=None)
)

Row = dict[str, Any]

#: Row ids of attempts that stay in memory: more than run at once on one machine.
_MOST_IDS = 1000


class RowIds:
    """Row ids of a study's attempts. Those used last stay in memory; others are read.

    Args:
        study_id: The study's id.
        most: Number of row ids in memory.
    """

    def __init__(self, study_id: int, *, most: int = _MOST_IDS) -> None:
        self._study_id = study_id
        self._most = most
        self._newest: OrderedDict[AttemptId, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, attempt_id: AttemptId, row_id: int) -> None:
        """Records the row of an attempt."""
        self._newest[attempt_id] = row_id
        self._newest.move_to_end(attempt_id)
        if len(self._newest) > self._most:
            self._newest.popitem(last=False)

    def of(self, connection: sa.Connection, attempt_id: AttemptId) -> int:
        """The id of an attempt's row, which is in the database or in this transaction."""
        row_id = self._newest.get(attempt_id)
        if row_id is None:
            row_id = self._read(connection, attempt_id)
        self.add(attempt_id, row_id)
        return row_id

    def _read(self, connection: sa.Connection, attempt_id: AttemptId) -> int:
        trial_number, _, number = attempt_id.partition(".")
        trial = sa.select(TRIALS.c.trial_id).where(
            TRIALS.c.study_id == self._study_id, TRIALS.c.number == int(trial_number)
        )
        query = sa.select(_ATTEMPTS.c.id).where(
            _ATTEMPTS.c.trial_id.in_(trial), _ATTEMPTS.c.number == int(number)
        )
        return int(connection.execute(query).scalars().one())


@dataclass(slots=True, kw_only=True)
class _New:
    """An attempt that is not in the database, with its leases."""

    attempt_id: AttemptId
    row: Row
    leases: list[Row]


@dataclass(slots=True, kw_only=True)
class _Move:
    """A stored attempt, and its new state."""

    attempt: Attempt
    before: AttemptState
    row: Row
    released_at: datetime | None = None

    @property
    def is_end(self) -> bool:
        return "outcome" in self.row


@dataclass(slots=True)
class AttemptRows:
    """Changes to be written together. It is the same however often that is tried."""

    new: list[_New] = field(default_factory=list)
    moves: dict[AttemptId, _Move] = field(default_factory=dict)
    #: In the order in which they happened.
    events: list[tuple[AttemptId | None, Row]] = field(default_factory=list)
    metrics: list[tuple[AttemptId, Row]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.moves or self.events or self.metrics)

    def add_lease(self, attempt: Attempt, row: Row, leases: Sequence[Row]) -> None:
        self.new.append(_New(attempt_id=attempt.id, row=row, leases=list(leases)))

    def add_move(
        self, attempt: Attempt, before: AttemptState, ending: Mapping[str, object] | None
    ) -> None:
        """Adds a state change of an attempt; `ending` if it has ended."""
        row: Row = {
            "state": attempt.state,
            "pid": attempt.pid,
            "started_at": as_stored(attempt.started_at),
            "ended_at": as_stored(attempt.ended_at),
            "finished_at": as_stored(attempt.finished_at),
            **(ending or {}),
        }
        is_over = attempt.state is AttemptState.FINISHED
        released_at = as_stored(attempt.finished_at) if is_over else None
        new = next((new for new in self.new if new.attempt_id == attempt.id), None)
        if new is not None:
            new.row |= row
            if is_over:
                for lease in new.leases:
                    lease |= {"released_at": released_at, "held_device_id": None}
            return
        move = self.moves.setdefault(attempt.id, _Move(attempt=attempt, before=before, row={}))
        move.attempt, move.released_at = attempt, released_at
        move.row |= row

    def add_event(
        self, name: str, at: datetime, dispatcher_id: int, attempt_id: AttemptId | None, detail: str
    ) -> None:
        row = {"at": as_stored(at), "dispatcher_id": dispatcher_id, "name": name, "detail": detail}
        self.events.append((attempt_id, row))

    def add_metric(self, attempt_id: AttemptId, step: int, name: str, value: float | None) -> None:
        self.metrics.append((attempt_id, {"step": step, "name": name, "value": value}))

    def write(self, connection: sa.Connection, ids: RowIds) -> None:
        """Writes everything in the caller's transaction.

        Args:
            connection: In a transaction.
            ids: Ids of the attempts in the database; new ones are added.

        Raises:
            StoreError: If another dispatcher has taken an attempt over.
        """
        # Devices become free before they are taken.
        self._write_moves(connection, ids)
        leases: list[Row] = []
        for new in self.new:
            row_id = insert_row(connection, _INSERT_ATTEMPT, new.row)
            ids.add(new.attempt_id, row_id)
            leases += [{"attempt_id": row_id, **lease} for lease in new.leases]
        execute_rows(connection, _INSERT_LEASE, leases)
        execute_rows(connection, _INSERT_EVENT, _of_attempts(connection, self.events, ids))
        execute_rows(connection, _INSERT_METRIC, _of_attempts(connection, self.metrics, ids))

    def _write_moves(self, connection: sa.Connection, ids: RowIds) -> None:
        for is_end, statement in _MOVE.items():
            moves = [move for move in self.moves.values() if move.is_end is is_end]
            for some in _countable(connection, moves):
                rows = [_move_row(move, ids.of(connection, move.attempt.id)) for move in some]
                moved = execute_rows(connection, statement, rows)
                if moved is not None and moved.rowcount != len(rows):
                    raise _taken_over([move.attempt for move in some])
        releases = [
            {"b_id": ids.of(connection, move.attempt.id), "b_released_at": move.released_at}
            for move in self.moves.values()
            if move.released_at is not None
        ]
        execute_rows(connection, _RELEASE, releases)


def _of_attempts(
    connection: sa.Connection, rows: Sequence[tuple[AttemptId | None, Row]], ids: RowIds
) -> list[Row]:
    return [
        {**row, "attempt_id": None if attempt_id is None else ids.of(connection, attempt_id)}
        for attempt_id, row in rows
    ]


def _countable(connection: sa.Connection, moves: Sequence[_Move]) -> list[Sequence[_Move]]:
    """Splits updates so that the driver reports the number of changed rows for each part."""
    if not moves:
        return []
    if connection.dialect.supports_sane_multi_rowcount:
        return [moves]
    return [[move] for move in moves]


def _move_row(move: _Move, row_id: int) -> Row:
    new = {f"n_{name}": value for name, value in move.row.items()}
    return {**new, "b_id": row_id, "b_state": move.before}


def _taken_over(attempts: Sequence[Attempt]) -> StoreError:
    names = ", ".join(map(str, attempts))
    verb = "was" if len(attempts) == 1 else "were, all or some,"
    return StoreError(
        f"{names} {verb} taken over by another dispatcher; this one writes no more.",
        exit_code=EXIT_STUDY_FAILED,
    )
