"""The checkpoints of trials, as recorded by their dispatchers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import in_zone
from tuner.store.schema.models import AttemptRow, CheckpointRow, DispatcherRow, HostRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCheckpoint:
    """A state of a trial that is on some machine's disk."""

    step: int
    #: The attempt that saved it.
    attempt: int
    host: str
    path: str
    size_bytes: int
    saved_at: datetime


def read_checkpoints(
    connection: sa.Connection, trial_ids: Collection[int]
) -> dict[int, list[ShownCheckpoint]]:
    """By trial id, the newest first."""
    if not has_our_tables(connection):
        return {}
    query = (
        sa.select(
            CheckpointRow.trial_id,
            CheckpointRow.step,
            AttemptRow.number,
            HostRow.name,
            CheckpointRow.path,
            CheckpointRow.size_bytes,
            CheckpointRow.saved_at,
        )
        .join(AttemptRow, AttemptRow.id == CheckpointRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .where(CheckpointRow.trial_id.in_(trial_ids))
        .order_by(CheckpointRow.saved_at.desc(), CheckpointRow.id.desc())
    )
    found: dict[int, list[ShownCheckpoint]] = {}
    for trial_id, step, attempt, host, path, size_bytes, saved_at in connection.execute(query):
        found.setdefault(trial_id, []).append(
            ShownCheckpoint(
                step=step,
                attempt=attempt,
                host=host,
                path=path,
                size_bytes=size_bytes,
                saved_at=in_zone(saved_at),
            )
        )
    return found
