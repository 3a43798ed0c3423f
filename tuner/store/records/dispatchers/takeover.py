"""Takes the trials and leases of a dead dispatcher over.

A process that ends a record holds the study's lock. The record must not have changed since it was
read, so that only one of several processes that see the same death acts on it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.domain.attempt import AttemptState, Cause, Outcome
from tuner.host.process_identity import Life, life_of
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.records.dispatchers.starts import (
    OpenDispatcher,
    Sign,
    StartRecord,
    lock_study,
    open_dispatchers,
)
from tuner.store.schema.models import AttemptRow, ClaimRow, DispatcherRow, LeaseRow, table_of
from tuner.store.schema.statements import as_stored

_ATTEMPTS = table_of(AttemptRow)
_CLAIMS = table_of(ClaimRow)
_DISPATCHERS = table_of(DispatcherRow)
_LEASES = table_of(LeaseRow)


def take_over(
    connection: sa.Connection, study_id: int, dead: OpenDispatcher, at: datetime
) -> list[int] | None:
    """Ends a dead dispatcher's record, closes its attempts, and makes its trials wait.

    Args:
        connection: In a new transaction.
        study_id: Id of its study.
        dead: The dispatcher.
        at: The current time.

    Returns:
        Numbers of the trials; None if another dispatcher was first, or if the dead one has written
        after all.
    """
    lock_study(connection, study_id)
    if not end_dispatcher(connection, dead):
        return None
    close_attempts(connection, dead, at)
    return free_trials(connection, study_id)


def clear_up(
    connection: sa.Connection, start: StartRecord, at: datetime, silent: Collection[Sign] = ()
) -> None:
    """Before a start: ends the records of dead dispatchers, and frees their trials.

    Args:
        connection: In a transaction, in which `lock_study` was called.
        start: The start.
        at: The current time.
        silent: Dispatchers that were watched for a minute without a heartbeat.
    """
    for one in open_dispatchers(connection, start.study_id):
        is_gone = life_of(one.process, here=start.host.process) is Life.GONE
        if (is_gone or one.sign in silent) and end_dispatcher(connection, one):
            close_attempts(connection, one, at)
    free_trials(connection, start.study_id)


def end_dispatcher(connection: sa.Connection, dead: OpenDispatcher) -> bool:
    """Ends a record, unless it was ended or renewed since it was read."""
    ended = (
        sa.update(_DISPATCHERS)
        .where(
            _DISPATCHERS.c.id == dead.id,
            _DISPATCHERS.c.ended_at.is_(None),
            _DISPATCHERS.c.beat_at == dead.beat_at,
        )
        .values(ended_at=_DISPATCHERS.c.beat_at)
    )
    return connection.execute(ended).rowcount == 1


def close_attempts(connection: sa.Connection, dead: OpenDispatcher, at: datetime) -> None:
    """Its attempts are lost, and their devices free."""
    open_attempts = sa.select(_ATTEMPTS.c.id).where(
        _ATTEMPTS.c.dispatcher_id == dead.id, _ATTEMPTS.c.state != AttemptState.FINISHED
    )
    attempts = connection.execute(open_attempts).scalars().all()
    lost = {
        "state": AttemptState.FINISHED,
        "outcome": Outcome.LOST,
        "cause": Cause.DISPATCHER_GONE,
        "detail": "Its dispatcher died.",
        "finished_at": as_stored(at),
    }
    connection.execute(sa.update(_ATTEMPTS).where(_ATTEMPTS.c.id.in_(attempts)).values(lost))
    # Not now: time without a dispatcher is not spent.
    last_seen = sa.case(
        (_LEASES.c.leased_at > dead.beat_at, _LEASES.c.leased_at), else_=dead.beat_at
    )
    released = sa.update(_LEASES).where(
        _LEASES.c.attempt_id.in_(attempts), _LEASES.c.released_at.is_(None)
    )
    connection.execute(released.values(released_at=last_seen, held_device_id=None))


def free_trials(connection: sa.Connection, study_id: int) -> list[int]:
    """Makes running trials wait that no live dispatcher owns.

    Unclaimed trials belong to other Optuna programs, unless they have an attempt by a dispatcher of
    a version without claims.
    """
    orphans = connection.execute(_orphans(study_id)).all()
    ids = [row.trial_id for row in orphans]
    waiting = {"state": TrialState.WAITING}
    connection.execute(sa.update(TRIALS).where(TRIALS.c.trial_id.in_(ids)).values(waiting))
    connection.execute(sa.delete(_CLAIMS).where(_CLAIMS.c.trial_id.in_(ids)))
    return [row.number for row in orphans]


def _orphans(study_id: int) -> sa.Select[int, int]:
    alive = sa.select(_DISPATCHERS.c.id).where(_DISPATCHERS.c.ended_at.is_(None))
    claimed = sa.select(_CLAIMS.c.trial_id)
    of_the_dead = claimed.where(_CLAIMS.c.dispatcher_id.not_in(alive))
    attempted = sa.select(_ATTEMPTS.c.trial_id).where(_ATTEMPTS.c.dispatcher_id.not_in(alive))
    is_orphan = sa.or_(
        TRIALS.c.trial_id.in_(of_the_dead),
        sa.and_(TRIALS.c.trial_id.in_(attempted), TRIALS.c.trial_id.not_in(claimed)),
    )
    return (
        sa.select(TRIALS.c.trial_id, TRIALS.c.number)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.RUNNING, is_orphan)
        .order_by(TRIALS.c.number)
    )
