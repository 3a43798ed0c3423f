"""Which trials of a study this dispatcher owns, and whether it may still write.

Several dispatchers work on one study, and each running trial is claimed by one of them. A
dispatcher that misses heartbeats for too long counts as dead: another one ends its record and takes
its trials over. If it returns, it must not write: each of its transactions first renews its own
record, which fails once that is ended (a fencing token; Kleppmann, "How to do distributed locking",
2016).
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.host.clock import Clock
from tuner.store.optuna_tables.pauses import PAUSED_IDS
from tuner.store.optuna_tables.statements import SYSTEM_ATTRS, TRIALS
from tuner.store.optuna_tables.writes import lock_study
from tuner.store.schema.models import ClaimRow, DispatcherRow, table_of
from tuner.store.schema.statements import as_stored

_DISPATCHERS = table_of(DispatcherRow)
_CLAIMS = table_of(ClaimRow)

_RENEW = (
    sa.update(_DISPATCHERS)
    .where(_DISPATCHERS.c.id == sa.bindparam("b_id"), _DISPATCHERS.c.ended_at.is_(None))
    .values(beat_at=sa.bindparam("b_at"))
)
_RENEW_WITH_BATCH = _RENEW.where(_DISPATCHERS.c.n_batches == sa.bindparam("b_number") - 1).values(
    n_batches=sa.bindparam("b_number")
)
_N_BATCHES = sa.select(
    _DISPATCHERS.c.n_batches, _DISPATCHERS.c.ended_at.is_not(None).label("is_over")
).where(_DISPATCHERS.c.id == sa.bindparam("b_id"))
#: A paused trial has started, although it waits.
_COUNT_BEGUN = (
    sa.select(sa.func.count())
    .select_from(TRIALS)
    .where(TRIALS.c.study_id == sa.bindparam("b_study_id"))
    .where((TRIALS.c.state != TrialState.WAITING) | TRIALS.c.trial_id.in_(PAUSED_IDS))
)
_IS_PAUSED = PAUSED_IDS.where(SYSTEM_ATTRS.c.trial_id == sa.bindparam("b_trial_id"))
_UNCLAIM = sa.delete(_CLAIMS).where(_CLAIMS.c.trial_id == sa.bindparam("b_trial_id"))
_CLAIM = sa.insert(_CLAIMS).inline()
#: SQLite reuses the id of a deleted trial, and Optuna deletes a trial without its claim.
_CLAIM_NEW = _CLAIM.prefix_with("OR REPLACE", dialect="sqlite")


class TakenOver(StoreError):
    """Another dispatcher took this one for dead and has its trials now."""


class NoTrialLeft(Exception):
    """The study has as many trials as its budget allows, whichever dispatcher runs them."""


class Ownership:
    """One dispatcher's right to write to one study.

    Args:
        dispatcher_id: Its record.
        study_id: Its study.
        n_trials: Maximum number of the study's trials; None for no limit.
        clock: Times of renewals, for display only: no decision depends on them.
    """

    def __init__(
        self, dispatcher_id: int, study_id: int, n_trials: int | None, clock: Clock
    ) -> None:
        self.dispatcher_id = dispatcher_id
        self.study_id = study_id
        self.n_trials = n_trials
        self._clock = clock

    def renew(self, connection: sa.Connection) -> None:
        """The first statement of every transaction of this dispatcher; its heartbeat, too.

        Raises:
            TakenOver: If another dispatcher has ended this one's record.
        """
        if connection.execute(_RENEW, self._row()).rowcount != 1:
            raise _taken_over()

    def begin_batch(self, connection: sa.Connection, number: int) -> bool:
        """Like `renew`, for a batch of changes that may have been written already.

        If a connection is cut during a commit, its result is unknown. The batch number is written
        with the batch, so that a retry can detect it.

        Args:
            connection: In a transaction.
            number: Number of the batch, from 1.

        Returns:
            Whether it must still be written.

        Raises:
            TakenOver: If another dispatcher has ended this one's record.
            StoreError: If the database lost committed data.
        """
        row = {**self._row(), "b_number": number}
        if connection.execute(_RENEW_WITH_BATCH, row).rowcount == 1:
            return True
        found = connection.execute(_N_BATCHES, {"b_id": self.dispatcher_id}).first()
        if found is not None and found.n_batches == number:
            return False
        if found is None or found.is_over:
            raise _taken_over()
        raise StoreError(
            f"The database has lost changes that it had confirmed: batch {number} is to be "
            f"written, and it knows of {found.n_batches}. It was restored from a copy, or is set "
            "up so that a crash may cost it some. Start the same command again: trials whose end "
            "it does not know are run again.",
            exit_code=EXIT_STUDY_FAILED,
        )

    def begin(self, connection: sa.Connection) -> None:
        """Like `renew`; also locks out others that add or claim trials in this transaction."""
        # In this order everywhere: two who lock in different ones wait for each other forever.
        # Where there are no row locks (SQLite) the update locks the whole database.
        if connection.dialect.name != "sqlite":
            lock_study(connection, self.study_id)
        self.renew(connection)

    def check_room(self, number: int) -> None:
        """Checks the trial budget.

        Args:
            number: Number of a trial that was just added.

        Raises:
            NoTrialLeft: If it is one too many; the transaction must not be committed.
        """
        if self.n_trials is not None and number >= self.n_trials:
            raise NoTrialLeft

    def may_begin_waiting(self, connection: sa.Connection, trial_id: int) -> bool:
        """Whether a waiting trial may start or continue."""
        if self.n_trials is None:
            return True
        begun = connection.execute(_COUNT_BEGUN, {"b_study_id": self.study_id})
        if begun.scalar_one() < self.n_trials:
            return True
        return connection.execute(_IS_PAUSED, {"b_trial_id": trial_id}).first() is not None

    def claim_new(self, connection: sa.Connection, trial_id: int) -> None:
        """A trial that was just added is this dispatcher's."""
        connection.execute(_CLAIM_NEW, self._claim_row(trial_id))

    def claim(self, connection: sa.Connection, trial_id: int) -> None:
        """A trial is this dispatcher's from now on."""
        connection.execute(_UNCLAIM, {"b_trial_id": trial_id})
        connection.execute(_CLAIM, self._claim_row(trial_id))

    def give_up_all_but(self, connection: sa.Connection, trial_ids: Collection[int]) -> None:
        """Makes this dispatcher's running trials wait, except those that it knows.

        If the reply to a claim was lost, the claim may be stored.
        """
        claimed = sa.select(_CLAIMS.c.trial_id).where(
            _CLAIMS.c.dispatcher_id == self.dispatcher_id,
            _CLAIMS.c.trial_id.in_(
                sa.select(TRIALS.c.trial_id).where(
                    TRIALS.c.study_id == self.study_id, TRIALS.c.state == TrialState.RUNNING
                )
            ),
        )
        unknown = set(connection.execute(claimed).scalars()) - set(trial_ids)
        if unknown:
            waits = sa.update(TRIALS).where(TRIALS.c.trial_id.in_(unknown))
            connection.execute(waits.values(state=TrialState.WAITING))
            connection.execute(sa.delete(_CLAIMS).where(_CLAIMS.c.trial_id.in_(unknown)))

    def _row(self) -> dict[str, object]:
        return {"b_id": self.dispatcher_id, "b_at": as_stored(self._clock.now().utc)}

    def _claim_row(self, trial_id: int) -> dict[str, object]:
        return {"trial_id": trial_id, "dispatcher_id": self.dispatcher_id}


def _taken_over() -> TakenOver:
    return TakenOver(
        "This dispatcher gave no sign of life for so long that another one took its trials "
        "over. It writes no more; start the same command to join the study again.",
        exit_code=EXIT_STUDY_FAILED,
    )
