"""The content of one transaction of a dispatcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from tuner.store.optuna_tables.writes import PendingRows
from tuner.store.records.allocations import end_allocation_of
from tuner.store.records.attempt_rows import AttemptRows, RowIds
from tuner.store.records.checkpoint_rows import CheckpointRows
from tuner.store.records.usage.rows import UsageRows
from tuner.store.schema.models import DispatcherRow, table_of

_DISPATCHERS = table_of(DispatcherRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Changes of one transaction; a retry of the transaction writes the same batch."""

    number: int
    optuna_rows: PendingRows
    attempt_rows: AttemptRows
    checkpoint_rows: CheckpointRows
    usage_rows: UsageRows
    #: Columns of the dispatcher's own row.
    dispatcher: Mapping[str, object]

    @property
    def n_reports(self) -> int:
        """Number of reported values in it."""
        return len(self.optuna_rows.curves) + len(self.attempt_rows.metrics)

    def write(
        self,
        connection: sa.Connection,
        study_id: int,
        dispatcher_id: int,
        rows: RowIds,
    ) -> None:
        """Writes everything in it.

        Args:
            connection: In a transaction.
            study_id: The study's id.
            dispatcher_id: The id of the dispatcher's row.
            rows: Ids of the rows of attempts; those of new attempts are added.
        """
        self.optuna_rows.write(connection)
        self.attempt_rows.write(connection, rows)
        self.checkpoint_rows.write(connection, study_id, rows)
        self.usage_rows.write(connection, dispatcher_id, rows)
        if self.dispatcher:
            own = sa.update(_DISPATCHERS).where(_DISPATCHERS.c.id == dispatcher_id)
            connection.execute(own.values(self.dispatcher))
        if "ended_at" in self.dispatcher:
            reason, at = str(self.dispatcher["end_reason"]), self.dispatcher["ended_at"]
            end_allocation_of(connection, dispatcher_id, reason, at)
