"""Retries of trials that failed before any trial of the study completed or was pruned.

Then the program is broken, not the configurations. The next start of the study retries these
trials first, and their failures do not count against the budget.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.domain.attempt import Cause, Outcome
from tuner.store.optuna_tables.feasibility import FAILED_AS_PRUNED
from tuner.store.optuna_tables.statements import SYSTEM_ATTRS, TRIALS
from tuner.store.records.population_rows import COPY_KEY, MEMBER_KEY
from tuner.store.schema.models import AttemptRow, ClaimRow, DispatcherRow, table_of

FORGIVEN_KEY = "tuner:forgiven_attempts"
"""System attribute of a trial: number of its first attempts that failed with a broken program."""

PROGRAM_CAUSES = frozenset(
    {Cause.EXCEPTION, Cause.EXIT_CODE, Cause.SIGNAL, Cause.NO_RESULT, Cause.LAUNCH, Cause.RANKS}
)
"""Causes of failures that do not depend on the configuration alone."""

_ATTEMPTS = table_of(AttemptRow)
_CLAIMS = table_of(ClaimRow)
_DISPATCHERS = table_of(DispatcherRow)
_MEMBERS = sa.select(SYSTEM_ATTRS.c.trial_id).where(SYSTEM_ATTRS.c.key.in_([MEMBER_KEY, COPY_KEY]))
_ENDED_WELL = (TrialState.COMPLETE, TrialState.PRUNED)


def try_failed_again(connection: sa.Connection, study_id: int) -> list[int]:
    """Queues failed trials again, if no trial has completed or been pruned and no dispatcher runs.

    Args:
        connection: In a transaction, in which `lock_study` was called and dead dispatchers were
            cleared up.
        study_id: Id of the study.

    Returns:
        Ids of the trials.
    """
    if _is_worked_on(connection, study_id) or _has_ended_well(connection, study_id):
        return []
    n_attempts = {
        row.trial_id: row.number
        for row in connection.execute(_newest_attempts(study_id))
        if row.cause in PROGRAM_CAUSES and row.outcome in (Outcome.FAILED, Outcome.FAILED_TO_START)
    }
    if n_attempts:
        _let_wait(connection, n_attempts)
        _forgive(connection, n_attempts)
    return sorted(n_attempts)


def n_forgiven(connection: sa.Connection, trial_id: int) -> int:
    """Number of a trial's first attempts that failed while the program was broken."""
    query = sa.select(SYSTEM_ATTRS.c.value_json).where(
        SYSTEM_ATTRS.c.trial_id == trial_id, SYSTEM_ATTRS.c.key == FORGIVEN_KEY
    )
    return int(connection.execute(query).scalar() or 0)


def _is_worked_on(connection: sa.Connection, study_id: int) -> bool:
    query = sa.select(_DISPATCHERS.c.id).where(
        _DISPATCHERS.c.study_id == study_id, _DISPATCHERS.c.ended_at.is_(None)
    )
    return connection.execute(query.limit(1)).first() is not None


def _has_ended_well(connection: sa.Connection, study_id: int) -> bool:
    query = sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study_id, TRIALS.c.state.in_(_ENDED_WELL), ~FAILED_AS_PRUNED
    )
    return connection.execute(query.limit(1)).first() is not None


def _newest_attempts(study_id: int) -> sa.Select[int, int, Outcome, Cause]:
    """The newest attempt of each failed trial of a study."""
    newest = (
        sa.select(_ATTEMPTS.c.trial_id, sa.func.max(_ATTEMPTS.c.number).label("number"))
        .join(TRIALS, TRIALS.c.trial_id == _ATTEMPTS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, TRIALS.c.state == TrialState.FAIL)
        # A population has replaced its members that failed.
        .where(TRIALS.c.trial_id.not_in(_MEMBERS))
        .group_by(_ATTEMPTS.c.trial_id)
        .subquery()
    )
    is_newest = sa.and_(
        _ATTEMPTS.c.trial_id == newest.c.trial_id, _ATTEMPTS.c.number == newest.c.number
    )
    columns = _ATTEMPTS.c.trial_id, _ATTEMPTS.c.number, _ATTEMPTS.c.outcome, _ATTEMPTS.c.cause
    return sa.select(*columns).join(newest, is_newest)


def _let_wait(connection: sa.Connection, trial_ids: Collection[int]) -> None:
    waits = sa.update(TRIALS).where(TRIALS.c.trial_id.in_(trial_ids))
    connection.execute(
        waits.values(state=TrialState.WAITING, datetime_start=None, datetime_complete=None)
    )
    connection.execute(sa.delete(_CLAIMS).where(_CLAIMS.c.trial_id.in_(trial_ids)))


def _forgive(connection: sa.Connection, n_attempts: dict[int, int]) -> None:
    is_old = sa.and_(SYSTEM_ATTRS.c.trial_id.in_(n_attempts), SYSTEM_ATTRS.c.key == FORGIVEN_KEY)
    connection.execute(sa.delete(SYSTEM_ATTRS).where(is_old))
    rows = [
        {"trial_id": trial_id, "key": FORGIVEN_KEY, "value_json": str(n)}
        for trial_id, n in n_attempts.items()
    ]
    connection.execute(sa.insert(SYSTEM_ATTRS), rows)
