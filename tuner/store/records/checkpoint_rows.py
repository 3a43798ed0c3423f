"""The rows of checkpoints found on disk, written with the other rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from tuner.checkpoints.scan import SavedState
from tuner.domain.attempt import AttemptId
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.records.attempt_rows import RowIds
from tuner.store.schema.models import AttemptRow, CheckpointRow, DispatcherRow, HostRow, table_of
from tuner.store.schema.statements import as_stored

_CHECKPOINTS = table_of(CheckpointRow)
#: Optuna's steps and ours fit; a file may have any number in its name.
_MAX_STEP = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint that a dispatcher saw."""

    step: int
    host: str
    path: str
    saved_at: datetime


@dataclass(slots=True)
class CheckpointRows:
    """Changes to be written together. It is the same however often that is tried."""

    #: By trial and attempt.
    added: list[tuple[int, AttemptId, SavedState]] = field(default_factory=list)
    #: Trial and path.
    gone: list[tuple[int, str]] = field(default_factory=list)
    #: Trial, path of before, path of now.
    renamed: list[tuple[int, str, str]] = field(default_factory=list)
    #: Number of a trial, and its folder without any files left.
    removed: list[tuple[int, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.gone or self.renamed or self.removed)

    def write(self, connection: sa.Connection, study_id: int, ids: RowIds) -> None:
        """Writes everything in the caller's transaction.

        Args:
            connection: In a transaction.
            study_id: Id of the study.
            ids: Ids of the attempts in the database.
        """
        for trial_id, before, after in self.renamed:
            of_trial = _CHECKPOINTS.c.trial_id == trial_id
            rename = sa.update(_CHECKPOINTS).where(of_trial, _CHECKPOINTS.c.path == before)
            connection.execute(rename.values(path=after))
        if self.added or self.gone:
            self._write_changes(connection, ids)
        for trial_number, folder in self.removed:
            _forget_below(connection, study_id, trial_number, folder)

    def _write_changes(self, connection: sa.Connection, ids: RowIds) -> None:
        trial_ids = {trial_id for trial_id, *_ in (*self.added, *self.gone)}
        query = sa.select(_CHECKPOINTS).where(_CHECKPOINTS.c.trial_id.in_(trial_ids))
        known = {(row.trial_id, row.path): row for row in connection.execute(query)}
        outdated = {known[key].id for key in self.gone if key in known}
        rows: dict[tuple[int, str], dict[str, Any]] = {}
        for trial_id, attempt_id, state in self.added:
            row = known.get((trial_id, state.path))
            saved_at = as_stored(state.saved_at)
            if row is not None and row.saved_at == saved_at and row.id not in outdated:
                continue  # An earlier attempt wrote it, and its dispatcher has told.
            if row is not None:
                outdated.add(row.id)
            rows[trial_id, state.path] = {
                "trial_id": trial_id,
                "attempt_id": ids.of(connection, attempt_id),
                "step": max(-_MAX_STEP, min(state.step, _MAX_STEP)),
                "path": state.path,
                "size_bytes": state.size_bytes,
                "saved_at": saved_at,
            }
        if outdated:
            connection.execute(sa.delete(_CHECKPOINTS).where(_CHECKPOINTS.c.id.in_(outdated)))
        if rows:
            connection.execute(sa.insert(_CHECKPOINTS), list(rows.values()))


def _forget_below(connection: sa.Connection, study_id: int, trial_number: int, folder: str) -> None:
    """A trial's checkpoints in a folder were removed."""
    trial = sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study_id, TRIALS.c.number == trial_number
    )
    connection.execute(
        sa.delete(_CHECKPOINTS).where(
            _CHECKPOINTS.c.trial_id.in_(trial),
            _CHECKPOINTS.c.path.startswith(f"{folder}/", autoescape=True),
        )
    )


def checkpoints_of(connection: sa.Connection, trial_id: int) -> list[StoredCheckpoint]:
    """Checkpoints of a trial on all hosts, the newest first."""
    query = (
        sa.select(_CHECKPOINTS.c.step, HostRow.name, _CHECKPOINTS.c.path, _CHECKPOINTS.c.saved_at)
        .join(AttemptRow, AttemptRow.id == _CHECKPOINTS.c.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .where(_CHECKPOINTS.c.trial_id == trial_id)
        .order_by(_CHECKPOINTS.c.saved_at.desc(), _CHECKPOINTS.c.id.desc())
    )
    return [
        StoredCheckpoint(step=step, host=host, path=path, saved_at=saved_at.replace(tzinfo=UTC))
        for step, host, path, saved_at in connection.execute(query)
    ]
