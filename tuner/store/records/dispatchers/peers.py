"""The other dispatchers of a study: which are alive or dead, and whose trials are free again.

No wall clock is trusted. If a pid means the same process for both dispatchers (one machine, boot
and PID namespace), the process decides. Otherwise a dispatcher is dead once its record has not
changed for a minute while this one watched it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.host.clock import Instant
from tuner.host.process_identity import Life, ProcessIdentity, life_of
from tuner.store.connection.database import Database, store_errors
from tuner.store.connection.sql_seconds import seconds_between
from tuner.store.records.dispatchers.other_leases import OtherLeases
from tuner.store.records.dispatchers.silence import Sights
from tuner.store.records.dispatchers.starts import OpenDispatcher, open_dispatchers
from tuner.store.records.dispatchers.takeover import take_over
from tuner.store.records.usage.energy import energy_kwh_of
from tuner.store.schema.models import AttemptRow, DispatcherRow, LeaseRow, table_of

_ATTEMPTS = table_of(AttemptRow)
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
        #: Devices of this host that are leased to dispatchers of other PID namespaces.
        self.leases = OtherLeases(database, study_id, here, own_id)
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
            StoreError: If the database cannot be used; this time then counts as no observation.
        """
        try:
            with store_errors(self._database.shown_url):
                found = self._database.access.run(lambda c: open_dispatchers(c, self._study_id))
                devices = self._database.access.run(self._read_devices) if len(found) > 1 else {}
        except BaseException:
            # A dispatcher that could not write while we could not read is not dead.
            self._sights.interrupt()
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
        with store_errors(self._database.shown_url):
            numbers = self._database.access.run(lambda c: take_over(c, self._study_id, dead, at))
        self._database.storage.look_again()
        return None if numbers is None else Loss(place=dead.place, trial_numbers=tuple(numbers))


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
