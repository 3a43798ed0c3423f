"""Leases of devices over time, as columns; released leases never change."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from tuner.app.data.columns import Columns, Floats, Numbers, joined
from tuner.app.data.outcome_words import code_of_attempt
from tuner.app.data.trials.columns import seconds_of
from tuner.devices.device import Device, DeviceId
from tuner.queries.dispatchers import has_our_tables, read_dispatchers
from tuner.store.optuna_tables.statements import MAX_LISTED, TRIALS
from tuner.store.schema.models import AttemptRow, DeviceRow, HostRow, LeaseRow, table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevice:
    """A device of a host."""

    id: int
    host: str
    #: A label such as `GPU 0`.
    label: str
    name: str
    kind: str
    number: int
    #: A GPU's UUID, or `cpu:3`.
    device_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeaseColumns(Columns):
    """Leases in the order in which they were granted."""

    ids: Numbers
    attempt_ids: Numbers
    #: Optuna's identifiers: with all studies of a database numbers are not unique.
    trial_ids: Numbers
    trial_numbers: Numbers
    attempt_numbers: Numbers
    device_ids: Numbers
    #: Attempts that share a device are numbered.
    slots: Numbers
    shares: Floats
    #: Codes of `tuner.app.data.outcome_words`.
    words: Numbers
    #: Seconds since the epoch; NaN while it is held.
    started_at_s: Floats
    ended_at_s: Floats
    #: When the attempt's processes had sent hello, and when they were gone; NaN before that.
    hello_at_s: Floats
    over_at_s: Floats
    dispatcher_ids: Numbers

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_held(self) -> npt.NDArray[np.bool_]:
        return np.isnan(self.ended_at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Devices and their leases."""

    columns: LeaseColumns
    devices: Mapping[int, HostDevice]
    #: Until when an unreleased lease is known to be held, by dispatcher: now, or its last beat.
    known_until_s: Mapping[int, float]
    living: frozenset[int]

    def ends_s(self) -> Floats:
        """End of each lease; for a held one, the last known time."""
        columns = self.columns
        until = [self.known_until_s.get(each, np.nan) for each in columns.dispatcher_ids.tolist()]
        ends = np.where(columns.is_held, np.array(until, dtype=float), columns.ended_at_s)
        return np.maximum(ends, columns.started_at_s)


_FLOATS = ("shares", "started_at_s", "ended_at_s", "hello_at_s", "over_at_s")


def lease_columns(rows: Sequence[Mapping[str, object]]) -> LeaseColumns:
    """Columns of rows that have a value for each."""
    columns: dict[str, npt.NDArray[Any]] = {}
    for each in fields(LeaseColumns):
        kind = np.float64 if each.name in _FLOATS else np.int64
        columns[each.name] = np.array([row[each.name] for row in rows], dtype=kind)
    return LeaseColumns(**columns)


class GrowingLeases:
    """The leases of a study, or of all studies of a database, kept between two looks."""

    def __init__(self, study_id: int | None) -> None:
        self._study_id = study_id
        self._held = lease_columns([])
        self._lock = threading.Lock()

    def refresh(self, connection: sa.Connection, now: datetime) -> Leases:
        """All leases as they are now."""
        if not has_our_tables(connection):
            return Leases(
                columns=lease_columns([]), devices={}, known_until_s={}, living=frozenset()
            )
        with self._lock:
            self._held = columns = self._merged(connection)
        starts = read_dispatchers(connection, now, self._study_id)
        until = {
            each.id: (now if each.is_alive else each.ended_at or each.beat_at).timestamp()
            for each in starts
        }
        return Leases(
            columns=columns,
            devices=_read_devices(connection),
            known_until_s=until,
            living=frozenset(each.id for each in starts if each.is_alive),
        )

    def _merged(self, connection: sa.Connection) -> LeaseColumns:
        held, open_ids = self._held, self._held.ids[self._held.is_held].tolist()
        condition: sa.ColumnElement[bool] | None = None
        if len(held) and len(open_ids) <= MAX_LISTED:
            condition = sa.or_(LeaseRow.id > int(held.ids.max()), LeaseRow.id.in_(open_ids))
        new = self._rows(connection, condition)
        if not len(new) and not open_ids:
            return held if condition is not None or not len(held) else new
        if condition is None:
            return new
        if not set(open_ids).issubset(new.ids.tolist()):
            return self._rows(connection, None)
        kept = held.where(~held.is_held)
        return joined([kept, new])

    def _rows(
        self, connection: sa.Connection, condition: sa.ColumnElement[bool] | None
    ) -> LeaseColumns:
        query = (
            sa.select(*_COLUMNS.values(), AttemptRow.outcome, AttemptRow.cause)
            .join(AttemptRow, AttemptRow.id == LeaseRow.attempt_id)
            .join(TRIALS, TRIALS.c.trial_id == AttemptRow.trial_id)
            .order_by(LeaseRow.id)
        )
        if self._study_id is not None:
            query = query.where(TRIALS.c.study_id == self._study_id)
        if condition is not None:
            query = query.where(condition)
        rows: Sequence[Any] = connection.execute(query).all()
        if not rows:
            return lease_columns([])
        *columns, outcomes, causes = zip(*rows, strict=True)
        found = {name: _column(name, each) for name, each in zip(_COLUMNS, columns, strict=True)}
        pairs = list(zip(outcomes, causes, strict=True))
        codes = {pair: code_of_attempt(*pair) for pair in set(pairs)}
        return LeaseColumns(**found, words=np.array([codes[each] for each in pairs]))


_COLUMNS: Mapping[str, Any] = {
    "ids": LeaseRow.id,
    "attempt_ids": LeaseRow.attempt_id,
    "trial_ids": AttemptRow.trial_id,
    "trial_numbers": TRIALS.c.number,
    "attempt_numbers": AttemptRow.number,
    "device_ids": LeaseRow.device_id,
    "slots": LeaseRow.held_slot,
    "shares": LeaseRow.share,
    # As a driver returns them: text from SQLite, which numpy reads faster than SQLAlchemy.
    "started_at_s": sa.type_coerce(LeaseRow.leased_at, sa.String),
    "ended_at_s": sa.type_coerce(LeaseRow.released_at, sa.String),
    "hello_at_s": sa.type_coerce(AttemptRow.started_at, sa.String),
    "over_at_s": sa.type_coerce(AttemptRow.ended_at, sa.String),
    "dispatcher_ids": AttemptRow.dispatcher_id,
}


def _column(name: str, values: Sequence[Any]) -> npt.NDArray[Any]:
    if name.endswith("_at_s"):
        return seconds_of(values)
    return np.array(values, dtype=np.float64 if name in _FLOATS else np.int64)


def _read_devices(connection: sa.Connection) -> dict[int, HostDevice]:
    """Devices in display order."""
    query = (
        sa.select(table_of(DeviceRow), HostRow.name.label("host"))
        .join(HostRow, HostRow.id == DeviceRow.host_id)
        .order_by(HostRow.name, DeviceRow.kind, DeviceRow.number, DeviceRow.id)
    )
    return {row.id: _device(row) for row in connection.execute(query)}


def _device(row: sa.Row[Any]) -> HostDevice:
    device = Device(id=DeviceId(row.device), kind=row.kind, name=row.name, index=row.number)
    return HostDevice(
        id=row.id,
        host=row.host,
        label=device.label,
        name=row.name,
        kind=row.kind.value,
        number=row.number,
        device_id=row.device,
    )
