"""Rows of allocations: submissions, and the dispatcher that runs in each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from tuner.domain.allocation import Allocation, AllocationState, OwnAllocation
from tuner.store.schema.models import AllocationRow, DispatcherRow, table_of
from tuner.store.schema.statements import as_stored, insert_row

_ALLOCATIONS = table_of(AllocationRow)
_DISPATCHERS = table_of(DispatcherRow)
#: After so long a submission that has not ended was interrupted.
_SUBMISSION_LASTS = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request for allocations: the user, the engine and the devices of each."""

    engine: str
    n_devices: int
    submitted_by: str
    at: datetime


def stored_numbers(connection: sa.Connection, study_id: int) -> dict[int, AllocationState]:
    """The state of each allocation of a study, by number."""
    query = sa.select(_ALLOCATIONS.c.number, _ALLOCATIONS.c.state)
    rows = connection.execute(query.where(_ALLOCATIONS.c.study_id == study_id))
    return {row.number: row.state for row in rows}


def insert_allocations(
    connection: sa.Connection, study_id: int, new: Iterable[Allocation], submission: Submission
) -> None:
    """Records allocations that an engine has taken; those that are recorded stay as they are."""
    known = stored_numbers(connection, study_id)
    for each in new:
        if each.number not in known:
            insert_row(connection, sa.insert(_ALLOCATIONS), _row(study_id, each, submission))


def forget_interrupted(connection: sa.Connection, study_id: int, now: datetime) -> None:
    """Removes allocations whose submission was interrupted before the engine replied."""
    before = as_stored(now - _SUBMISSION_LASTS)
    nameless = (_ALLOCATIONS.c.study_id == study_id) & (_ALLOCATIONS.c.name == "")
    connection.execute(
        sa.delete(_ALLOCATIONS).where(nameless, _ALLOCATIONS.c.submitted_at < before)
    )


def forget_allocations(connection: sa.Connection, study_id: int, numbers: Sequence[int]) -> None:
    """Removes allocations that the engine has refused."""
    ours = _ALLOCATIONS.c.study_id == study_id
    connection.execute(sa.delete(_ALLOCATIONS).where(ours, _ALLOCATIONS.c.number.in_(numbers)))


def _row(study_id: int, new: Allocation, submission: Submission) -> dict[str, object]:
    return {
        "study_id": study_id,
        "number": new.number,
        "engine": submission.engine,
        "n_devices": submission.n_devices,
        "submitted_by": submission.submitted_by,
        "submitted_at": as_stored(submission.at),
        **_seen(new),
    }


def _seen(allocation: Allocation) -> dict[str, object]:
    return {
        "name": allocation.name,
        "state": allocation.state,
        "reason": allocation.reason,
        "node": allocation.node,
        "started_at": as_stored(allocation.started_at),
        "deadline": as_stored(allocation.deadline),
    }


def note_seen(
    connection: sa.Connection,
    study_id: int,
    engine: str,
    seen: Sequence[Allocation],
    at: datetime,
) -> None:
    """Records the states that an engine reports for a study's allocations.

    An allocation that the engine no longer knows has ended: engines forget ended ones after a time.
    """
    by_number = {each.number: each for each in seen}
    query = sa.select(
        _ALLOCATIONS.c.id, _ALLOCATIONS.c.number, _ALLOCATIONS.c.state, _ALLOCATIONS.c.name
    ).where(_ALLOCATIONS.c.study_id == study_id, _ALLOCATIONS.c.engine == engine)
    for row in connection.execute(query).all():
        found = by_number.get(row.number)
        state = AllocationState.ENDED if found is None else found.state
        if found is not None:
            values = {key: value for key, value in _seen(found).items() if value is not None}
            # A requeued allocation no longer has a node and a deadline.
            if found.state is AllocationState.PENDING:
                values |= {"node": None, "started_at": None, "deadline": None, "ended_at": None}
        elif row.name and not row.state.is_over:
            values = {"state": state, "reason": "no longer listed by the engine"}
        else:
            continue
        if state.is_over and not row.state.is_over:
            values["ended_at"] = as_stored(at)
        _update(connection, row.id, values)


def begin_allocation(
    connection: sa.Connection,
    study_id: int,
    own: OwnAllocation,
    *,
    node: str,
    n_devices: int,
    by: str,
    at: datetime,
) -> int:
    """The row of the allocation in which a dispatcher starts; created if it does not exist."""
    running = {
        "name": own.name,
        "state": AllocationState.RUNNING,
        "reason": "",
        "node": node,
        "started_at": as_stored(at),
        "deadline": as_stored(own.deadline),
        "ended_at": None,
    }
    found = _find(connection, study_id, own)
    if found is not None:
        _update(connection, found, running)
        return found
    known = stored_numbers(connection, study_id)
    is_new = own.number is not None and own.number not in known
    row = {
        "study_id": study_id,
        "number": own.number if is_new else max(known, default=-1) + 1,
        "engine": own.engine,
        "n_devices": n_devices,
        "submitted_by": by,
        "submitted_at": as_stored(at),
        **running,
    }
    return insert_row(connection, sa.insert(_ALLOCATIONS), row)


def _find(connection: sa.Connection, study_id: int, own: OwnAllocation) -> int | None:
    """The row of an allocation; without a name if the node was faster than `submit`."""
    is_reserved = (_ALLOCATIONS.c.name == "") & (_ALLOCATIONS.c.number == own.number)
    query = sa.select(_ALLOCATIONS.c.id).where(
        _ALLOCATIONS.c.study_id == study_id,
        _ALLOCATIONS.c.engine == own.engine,
        (_ALLOCATIONS.c.name == own.name) | is_reserved,
    )
    found: int | None = connection.execute(query.limit(1)).scalar()
    return found


def end_allocation_of(
    connection: sa.Connection, dispatcher_id: int, reason: str, ended_at: object
) -> None:
    """A dispatcher has ended, and with it its allocation, if it ran in one."""
    query = sa.select(_DISPATCHERS.c.allocation_id).where(_DISPATCHERS.c.id == dispatcher_id)
    allocation_id = connection.execute(query).scalar()
    if allocation_id is not None:
        values = {"state": AllocationState.ENDED, "reason": reason, "ended_at": ended_at}
        _update(connection, allocation_id, values)


def _update(connection: sa.Connection, allocation_id: int, values: dict[str, object]) -> None:
    own = sa.update(_ALLOCATIONS).where(_ALLOCATIONS.c.id == allocation_id)
    connection.execute(own.values(values))
