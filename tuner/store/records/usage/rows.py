"""Rows of device usage, of attempts' usage, and of idle times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from tuner.devices.idle_causes import IdleSpan
from tuner.devices.usage.tally import FIGURES, Tally
from tuner.domain.attempt import AttemptId
from tuner.store.records.attempt_rows import RowIds
from tuner.store.schema.models import AttemptUsageRow, IdleRow, UsageRow, table_of
from tuner.store.schema.statements import as_stored, execute_rows

_USAGE = table_of(UsageRow)
_ATTEMPTS = table_of(AttemptUsageRow)
_IDLE = table_of(IdleRow)
#: Figures of an attempt: temperature and clocks belong to the device alone.
ATTEMPT_FIGURES = tuple(name for name in FIGURES if name in _ATTEMPTS.c)

_INSERT_USAGE = sa.insert(_USAGE).inline()
_INSERT_ATTEMPT = sa.insert(_ATTEMPTS).inline()
_INSERT_IDLE = sa.insert(_IDLE).inline()
_UPDATE_ATTEMPT = (
    sa.update(_ATTEMPTS)
    .where(
        _ATTEMPTS.c.attempt_id == sa.bindparam("b_attempt_id"),
        _ATTEMPTS.c.device_id == sa.bindparam("b_device_id"),
    )
    .values({name: sa.bindparam(f"n_{name}") for name in ATTEMPT_FIGURES})
)
_UPDATE_IDLE = (
    sa.update(_IDLE)
    .where(
        _IDLE.c.dispatcher_id == sa.bindparam("b_dispatcher_id"),
        _IDLE.c.device_id == sa.bindparam("b_device_id"),
        _IDLE.c.began_at == sa.bindparam("b_began_at"),
    )
    .values(ended_at=sa.bindparam("n_ended_at"))
)

Row = dict[str, Any]


@dataclass(slots=True)
class UsageRows:
    """To be written together. It is the same however often that is tried."""

    samples: list[Row] = field(default_factory=list)
    #: By attempt and device.
    new_totals: dict[tuple[AttemptId, int], Row] = field(default_factory=dict)
    totals: dict[tuple[AttemptId, int], Row] = field(default_factory=dict)
    #: By device and beginning.
    new_idle: dict[tuple[int, object], Row] = field(default_factory=dict)
    idle: dict[tuple[int, object], Row] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.samples or self.new_totals or self.totals or self.new_idle or self.idle)

    def add_sample(self, device_id: int, start_s: int, tally: Tally) -> None:
        row = {name: getattr(tally, name) for name in FIGURES}
        self.samples.append({"device_id": device_id, "start_s": start_s, **row})

    def add_total(
        self, attempt_id: AttemptId, device_id: int, tally: Tally, *, is_new: bool
    ) -> None:
        """All that an attempt has taken of a device so far."""
        key = (attempt_id, device_id)
        rows = self.new_totals if is_new or key in self.new_totals else self.totals
        rows[key] = {name: getattr(tally, name) for name in ATTEMPT_FIGURES}

    def add_idle(self, device_id: int, span: IdleSpan) -> None:
        began_at, ended_at = as_stored(span.began_at), as_stored(span.ended_at)
        key = (device_id, began_at)
        rows = self.idle if span.is_known and key not in self.new_idle else self.new_idle
        rows[key] = {"began_at": began_at, "ended_at": ended_at, "cause": span.cause}

    def write(self, connection: sa.Connection, dispatcher_id: int, ids: RowIds) -> None:
        """Writes everything in the caller's transaction.

        Args:
            connection: In a transaction.
            dispatcher_id: The dispatcher that made the readings.
            ids: Ids of the attempts in the database.
        """
        if not self:
            return
        of_us = {"dispatcher_id": dispatcher_id}
        execute_rows(connection, _INSERT_USAGE, [{**of_us, "span_s": 1, **r} for r in self.samples])
        execute_rows(
            connection,
            _INSERT_ATTEMPT,
            [
                {"attempt_id": ids.of(connection, attempt_id), "device_id": device_id, **row}
                for (attempt_id, device_id), row in self.new_totals.items()
            ],
        )
        execute_rows(
            connection,
            _UPDATE_ATTEMPT,
            [
                {
                    "b_attempt_id": ids.of(connection, attempt_id),
                    "b_device_id": device_id,
                    **{f"n_{name}": value for name, value in row.items()},
                }
                for (attempt_id, device_id), row in self.totals.items()
            ],
        )
        self._write_idle(connection, of_us)

    def _write_idle(self, connection: sa.Connection, of_us: Mapping[str, int]) -> None:
        execute_rows(
            connection,
            _INSERT_IDLE,
            [
                {**of_us, "device_id": device_id, **row}
                for (device_id, _), row in self.new_idle.items()
            ],
        )
        execute_rows(
            connection,
            _UPDATE_IDLE,
            [
                {
                    "b_dispatcher_id": of_us["dispatcher_id"],
                    "b_device_id": device_id,
                    "b_began_at": row["began_at"],
                    "n_ended_at": row["ended_at"],
                }
                for (device_id, _), row in self.idle.items()
            ],
        )
