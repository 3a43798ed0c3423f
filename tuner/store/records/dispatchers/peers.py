"""The other dispatchers of a study: which are alive or dead, and whose trials are free again.

No wall clock is trusted. If a pid means the same process for both dispatchers (one machine, boot
and PID namespace), the process decides. Otherwise a dispatcher is dead once its record has not
changed for a minute while this one watched it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.domain.attempt import AttemptState, Cause, Outcome
from tuner.host.clock import Instant
from tuner.host.process_identity import Life, ProcessIdentity, life_of
from tuner.store.connection.database import Database, store_errors
from tuner.store.connection.sql_seconds import seconds_between
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.records.dispatchers.silence import Sights
from tuner.store.records.dispatchers.starts import (
    OpenDispatcher,
    Sign,
    StartRecord,
    lock_study,
    open_dispatchers,
)
from tuner.store.records.usage.energy import energy_kwh_of
from tuner.store.schema.models import AttemptRow, ClaimRow, DispatcherRow, LeaseRow, table_of
from tuner.store.schema.statements import as_stored

_ATTEMPTS = table_of(AttemptRow)
_CLAIMS = table_of(ClaimRow)
_DISPATCHERS = table_of(DispatcherRow)
_LEASES = table_of(LeaseRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A dispatcher that died, and its trials, which wait again."""

    place: str
    trial_numbers: tuple[int, ...]


class Fleet:
    """The dispatchers of one study, from the view of one of them.

    Args:
        database: An open database.
        study_id: Id of the study.
        here: This process.
        own_id: This dispatcher's record.
        device_s_elsewhere: Device-seconds spent on the study before.
        energy_kwh_elsewhere: Energy spent on the study before, in kWh.
    """

    def __init__(
        self,
        database: Database,
        study_id: int,
        here: ProcessIdentity,
        own_id: int,
        *,
        device_s_elsewhere: float = 0.0,
        energy_kwh_elsewhere: float = 0.0,
    ) -> None:
        self._database = database
        self._study_id = study_id
        self._here = here
        self._own_id = own_id
        self._sights = Sights()
        #: Whether worker processes of a dispatcher of this host that is gone are left, for which
        #: its trials have to wait.
        self.leaves_workers: Callable[[ProcessIdentity], bool] = lambda process: False
        #: The study's other dispatchers, as text.
        self.others: tuple[str, ...] = ()
        #: Number of devices of the dispatcher that has the most.
        self.most_devices = 0
        #: Device-seconds that earlier starts and other dispatchers have spent on the study.
        self.device_s_elsewhere = device_s_elsewhere
        self.energy_kwh_elsewhere = energy_kwh_elsewhere

    def look(self, now: Instant) -> list[Loss]:
        """Detects dead dispatchers, and makes their trials wait.

        Raises:
            StoreError: If the database cannot be used; earlier observations are then dropped.
        """
        try:
            with store_errors(self._database.shown_url):
                found = self._database.access.run(lambda c: open_dispatchers(c, self._study_id))
                devices = self._database.access.run(self._read_devices) if len(found) > 1 else {}
        except BaseException:
            # A dispatcher that could not write while we could not read is not dead.
            self._sights.clear()
            raise
        others = [one for one in found if one.id != self._own_id]
        dead = [one for one in others if self._is_dead(one, now.monotonic_s)]
        alive = [one for one in others if one not in dead]
        self.others = tuple(one.place for one in alive)
        self.most_devices = max((len(devices.get(one.id, ())) for one in alive), default=0)
        losses = [self._take_over(one, now.utc) for one in dead]
        return [loss for loss in losses if loss is not None]

    def measure(self) -> None:
        """Updates the device time and energy of other dispatchers."""
        with store_errors(self._database.shown_url):
            self.device_s_elsewhere = self._database.access.run(
                lambda c: work_elsewhere(c, self._study_id, self._own_id)
            )
            self.energy_kwh_elsewhere = self._database.access.run(
                lambda c: energy_kwh_of(c, self._study_id, but_of=self._own_id)
            )

    def _read_devices(self, connection: sa.Connection) -> dict[int, list[str]]:
        """The devices of dispatchers that have not ended, by record."""
        query = sa.select(DispatcherRow.id, DispatcherRow.devices).where(
            DispatcherRow.study_id == self._study_id, DispatcherRow.ended_at.is_(None)
        )
        return {row.id: row.devices or [] for row in connection.execute(query)}

    def _is_dead(self, one: OpenDispatcher, now_s: float) -> bool:
        life = life_of(one.process, here=self._here)
        if life is Life.UNKNOWN:
            return self._sights.is_silent(one.sign, now_s)
        return life is Life.GONE and not self.leaves_workers(one.process)

    def _take_over(self, dead: OpenDispatcher, at: datetime) -> Loss | None:
        """None if another dispatcher was first, or if the dead one has written after all."""

        def take_over(connection: sa.Connection) -> Loss | None:
            lock_study(connection, self._study_id)
            if not end_dispatcher(connection, dead):
                return None
            close_attempts(connection, dead, at)
            numbers = free_trials(connection, self._study_id)
            return Loss(place=dead.place, trial_numbers=tuple(numbers))

        with store_errors(self._database.shown_url):
            loss = self._database.access.run(take_over)
        self._database.storage.look_again()
        return loss


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


def work_elsewhere(connection: sa.Connection, study_id: int, own_id: int) -> float:
    """Device-seconds of other dispatchers' leases; of a held one up to the last heartbeat."""
    until = sa.func.coalesce(_LEASES.c.released_at, _DISPATCHERS.c.beat_at)
    held_s = seconds_between(_LEASES.c.leased_at, until)
    # One may be leased after the last beat that was written.
    spent_s = sa.case((held_s > 0, held_s * _LEASES.c.share), else_=0.0)
    query = (
        sa.select(sa.func.sum(spent_s))
        .join(_ATTEMPTS, _ATTEMPTS.c.id == _LEASES.c.attempt_id)
        .join(_DISPATCHERS, _DISPATCHERS.c.id == _ATTEMPTS.c.dispatcher_id)
        .where(_DISPATCHERS.c.study_id == study_id, _DISPATCHERS.c.id != own_id)
    )
    return float(connection.execute(query).scalar() or 0.0)
