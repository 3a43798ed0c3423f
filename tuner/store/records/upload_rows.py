"""Rows of checkpoints and logs in an object store: what was acknowledged and what may be removed.

A trial and its copies share an object; each has a row. An unneeded row is marked first; its object
is removed once no other row refers to it, and then the row. After a crash at any point, every
object is thus still known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.records.dispatchers.ownership import Ownership
from tuner.store.records.trial_history import Reads
from tuner.store.schema.models import (
    AttemptRow,
    CheckpointRow,
    DispatcherRow,
    HostRow,
    UploadKind,
    UploadRow,
    table_of,
)
from tuner.store.schema.statements import as_stored

_Read = TypeVar("_Read")
_UPLOADS = table_of(UploadRow)
_ATTEMPTS = table_of(AttemptRow)
_IS_LIVE = _UPLOADS.c.removed_at.is_(None)
_MAX_STEP = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUpload:
    """A checkpoint or log that a store has."""

    step: int
    name: str
    uri: str
    size_bytes: int
    saved_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUpload:
    """A newly acknowledged upload."""

    trial_id: int
    #: Number of the attempt that saved it.
    attempt: int
    kind: UploadKind
    stored: StoredUpload


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """A checkpoint that a dispatcher of a host has recorded, and no store has."""

    trial_id: int
    trial_number: int
    attempt: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestSaved:
    """The newest checkpoint that any dispatcher has recorded."""

    step: int
    saved_at: datetime
    #: Whether another dispatcher recorded it and may still upload it.
    is_awaited: bool


class UploadRecords:
    """Reads and writes the rows of one study; all methods raise `Unavailable` in an outage.

    Args:
        run: Runs work on a connection.
        ownership: The dispatcher's right to write.
    """

    def __init__(self, run: Reads, ownership: Ownership) -> None:
        self._run = run
        self._ownership = ownership
        self._study_id = ownership.study_id

    def add(self, uploads: Collection[NewUpload]) -> None:
        """Records acknowledged uploads; idempotent."""

        def work(connection: sa.Connection) -> None:
            for each in uploads:
                _add(connection, each)

        self._write(work)

    def refer(self, upload: NewUpload) -> bool:
        """Records a checkpoint with the object of another trial's row, if that exists."""

        def work(connection: sa.Connection) -> bool:
            other = sa.select(_UPLOADS.c.id).where(_UPLOADS.c.uri == upload.stored.uri, _IS_LIVE)
            if connection.execute(other).first() is None:
                return False
            _add(connection, upload)
            return True

        return self._write(work, is_alone=True)

    def of_trial(
        self, trial_id: int, kind: UploadKind = UploadKind.CHECKPOINT
    ) -> list[StoredUpload]:
        """Uploads of a trial, the newest first."""
        return self._run(lambda c: uploads_of(c, trial_id, kind))

    def newest_saved(self, trial_id: int) -> NewestSaved | None:
        """The newest checkpoint of a trial on any disk."""
        own_id = self._ownership.dispatcher_id
        return self._run(lambda c: _newest_saved(c, trial_id, own_id))

    def unsent(self, host: str) -> list[Unsent]:
        """Checkpoints on a host's disk that no row of an upload matches."""
        return self._run(lambda c: _unsent(c, self._study_id, host))

    def sizes(self) -> dict[int, int]:
        """Bytes of checkpoints by number of the trial."""
        return self._run(lambda c: _sizes(c, self._study_id))

    # -- copies ------------------------------------------------------------------------------

    def newest_of(self, trial_number: int, kind: UploadKind) -> StoredUpload | None:
        """The newest upload of a trial by its number."""
        found = self._run(lambda c: _of_number(c, self._study_id, trial_number, kind))
        return found[0][1] if found else None

    def hand_on(self, parent: int, replaced: int) -> int | None:
        """Reserves the newest checkpoint of a trial for the copy that replaces another trial.

        Returns:
            Its step; None if the trial has none.
        """

        def work(connection: sa.Connection) -> int | None:
            self._drop(connection, replaced)
            found = _of_number(connection, self._study_id, parent, UploadKind.CHECKPOINT)
            if not found:
                return None
            row, upload = found[0]
            trial = _trial_of(self._study_id, replaced)
            own = {"trial_id": connection.execute(trial).scalar_one(), "kind": UploadKind.HANDED_ON}
            kept = {name: value for name, value in row.items() if name != "id"}
            connection.execute(sa.insert(_UPLOADS), {**kept, **own})
            return upload.step

        return self._write(work, is_alone=True)

    def give(self, replaced: int, child: int) -> int | None:
        """Assigns the reserved checkpoint to the copy; returns its newest step."""

        def work(connection: sa.Connection) -> int | None:
            trial_id = connection.execute(_trial_of(self._study_id, child)).scalar_one()
            of_replaced = _UPLOADS.c.trial_id.in_(_trial_of(self._study_id, replaced))
            connection.execute(
                sa.update(_UPLOADS)
                .where(of_replaced, _UPLOADS.c.kind == UploadKind.HANDED_ON, _IS_LIVE)
                .values(trial_id=trial_id, kind=UploadKind.CHECKPOINT)
            )
            own = uploads_of(connection, trial_id, UploadKind.CHECKPOINT)
            return own[0].step if own else None

        return self._write(work, is_alone=True)

    def drop(self, replaced: int) -> None:
        """Drops a reservation that no copy uses."""
        self._write(lambda c: self._drop(c, replaced), is_alone=True)

    def _drop(self, connection: sa.Connection, replaced: int) -> None:
        trial = _trial_of(self._study_id, replaced)
        of_trial = _UPLOADS.c.trial_id.in_(trial), _UPLOADS.c.kind == UploadKind.HANDED_ON
        _mark(connection, *of_trial)

    # -- removal -----------------------------------------------------------------------------

    def rotate(self, trial_ids: Iterable[int], n_newest: int) -> None:
        """Marks all checkpoints of trials but the newest."""

        def work(connection: sa.Connection) -> None:
            for trial_id in trial_ids:
                query = _newest_first(trial_id, UploadKind.CHECKPOINT).offset(n_newest)
                old = [row.id for row in connection.execute(query.limit(_MAX_STEP))]
                if old:
                    _mark(connection, _UPLOADS.c.id.in_(old))

        self._write(work, is_alone=True)

    def remove(self, trial_numbers: Collection[int]) -> None:
        """Marks all checkpoints of trials that have ended."""
        trials = sa.select(TRIALS.c.trial_id).where(
            TRIALS.c.study_id == self._study_id, TRIALS.c.number.in_(trial_numbers)
        )
        kinds = _UPLOADS.c.kind == UploadKind.CHECKPOINT
        self._write(lambda c: _mark(c, _UPLOADS.c.trial_id.in_(trials), kinds), is_alone=True)

    def take_unwanted(self) -> list[str]:
        """Objects that no row needs; clears marks of objects that other rows need."""
        return self._write(lambda c: _unwanted(c, self._study_id), is_alone=True)

    def forget(self, uri: str) -> None:
        """The object is removed."""
        gone = sa.delete(_UPLOADS).where(_UPLOADS.c.uri == uri, _UPLOADS.c.removed_at.is_not(None))
        self._write(lambda c: c.execute(gone))

    def _write(self, work: Callable[[sa.Connection], _Read], *, is_alone: bool = False) -> _Read:
        def owned(connection: sa.Connection) -> _Read:
            # References and marks are written one after the other.
            begin = self._ownership.begin if is_alone else self._ownership.renew
            begin(connection)
            return work(connection)

        return self._run(owned)


def uploads_of(
    connection: sa.Connection, trial_id: int, kind: UploadKind = UploadKind.CHECKPOINT
) -> list[StoredUpload]:
    """Uploads of a trial, the newest first."""
    return [_as_upload(row) for row in connection.execute(_newest_first(trial_id, kind))]


def _newest_first(trial_id: int, kind: UploadKind) -> sa.Select[Any]:
    query = sa.select(_UPLOADS).where(
        _UPLOADS.c.trial_id == trial_id, _UPLOADS.c.kind == kind, _IS_LIVE
    )
    return query.order_by(_UPLOADS.c.saved_at.desc(), _UPLOADS.c.id.desc())


def _as_upload(row: sa.Row[Any]) -> StoredUpload:
    return StoredUpload(
        step=row.step,
        name=row.name,
        uri=row.uri,
        size_bytes=row.size_bytes,
        saved_at=row.saved_at.replace(tzinfo=UTC),
    )


def _add(connection: sa.Connection, new: NewUpload) -> None:
    stored = new.stored
    attempt = sa.select(_ATTEMPTS.c.id).where(
        _ATTEMPTS.c.trial_id == new.trial_id, _ATTEMPTS.c.number == new.attempt
    )
    attempt_id = connection.execute(attempt).scalar()
    known = sa.select(_UPLOADS.c.id).where(
        _UPLOADS.c.trial_id == new.trial_id,
        _UPLOADS.c.kind == new.kind,
        _UPLOADS.c.uri == stored.uri,
    )
    # The trial may have been deleted meanwhile.
    if attempt_id is None or connection.execute(known).first() is not None:
        return
    row = {
        "trial_id": new.trial_id,
        "attempt_id": attempt_id,
        "kind": new.kind,
        "step": max(-_MAX_STEP, min(stored.step, _MAX_STEP)),
        "name": stored.name,
        "uri": stored.uri,
        "size_bytes": stored.size_bytes,
        "saved_at": as_stored(stored.saved_at),
    }
    connection.execute(sa.insert(_UPLOADS), row)


def _of_number(
    connection: sa.Connection, study_id: int, number: int, kind: UploadKind
) -> list[tuple[dict[str, Any], StoredUpload]]:
    trial_id = connection.execute(_trial_of(study_id, number)).scalar()
    if trial_id is None:
        return []
    found = connection.execute(_newest_first(trial_id, kind))
    return [(dict(row._mapping), _as_upload(row)) for row in found]


def _trial_of(study_id: int, number: int) -> sa.Select[Any]:
    return sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study_id, TRIALS.c.number == number
    )


def _mark(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> None:
    now = as_stored(datetime.now(UTC))
    connection.execute(sa.update(_UPLOADS).where(*where, _IS_LIVE).values(removed_at=now))


def _unwanted(connection: sa.Connection, study_id: int) -> list[str]:
    trials = sa.select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
    of_study = _UPLOADS.c.trial_id.in_(trials)
    marked = sa.select(_UPLOADS.c.uri).where(of_study, _UPLOADS.c.removed_at.is_not(None))
    uris = set(connection.execute(marked).scalars())
    if not uris:
        return []
    live = sa.select(_UPLOADS.c.uri).where(_UPLOADS.c.uri.in_(uris), _IS_LIVE)
    wanted = set(connection.execute(live).scalars())
    if wanted:
        is_marked = _UPLOADS.c.removed_at.is_not(None)
        connection.execute(sa.delete(_UPLOADS).where(_UPLOADS.c.uri.in_(wanted), is_marked))
    return sorted(uris - wanted)


def _sizes(connection: sa.Connection, study_id: int) -> dict[int, int]:
    query = (
        sa.select(TRIALS.c.number, sa.func.sum(_UPLOADS.c.size_bytes))
        .join(_UPLOADS, _UPLOADS.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, _IS_LIVE, _UPLOADS.c.kind == UploadKind.CHECKPOINT)
        .group_by(TRIALS.c.number)
    )
    return {number: int(size_bytes) for number, size_bytes in connection.execute(query)}


def _newest_saved(connection: sa.Connection, trial_id: int, own_id: int) -> NewestSaved | None:
    query = (
        sa.select(
            CheckpointRow.step, CheckpointRow.saved_at, DispatcherRow.ended_at, DispatcherRow.id
        )
        .join(AttemptRow, AttemptRow.id == CheckpointRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .where(CheckpointRow.trial_id == trial_id)
        .order_by(CheckpointRow.saved_at.desc(), CheckpointRow.id.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    return NewestSaved(
        step=row.step,
        saved_at=row.saved_at.replace(tzinfo=UTC),
        is_awaited=row.ended_at is None and row.id != own_id,
    )


def _unsent(connection: sa.Connection, study_id: int, host: str) -> list[Unsent]:
    is_sent = sa.exists().where(
        _UPLOADS.c.trial_id == CheckpointRow.trial_id,
        _UPLOADS.c.saved_at == CheckpointRow.saved_at,
        _UPLOADS.c.step == CheckpointRow.step,
    )
    query = (
        sa.select(TRIALS.c.trial_id, TRIALS.c.number, AttemptRow.number, CheckpointRow.path)
        .select_from(CheckpointRow)
        .join(AttemptRow, AttemptRow.id == CheckpointRow.attempt_id)
        .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
        .join(HostRow, HostRow.id == DispatcherRow.host_id)
        .join(TRIALS, TRIALS.c.trial_id == CheckpointRow.trial_id)
        .where(TRIALS.c.study_id == study_id, HostRow.name == host, ~is_sent)
        .order_by(CheckpointRow.saved_at)
    )
    return [
        Unsent(trial_id=trial_id, trial_number=number, attempt=attempt, path=path)
        for trial_id, number, attempt, path in connection.execute(query)
    ]
