"""GPUs of this host that the database has as leased to dispatchers of other PID namespaces.

A container that is restarted keeps its host name and its GPUs, but has a new PID namespace: its
former self cannot be checked, and holds its leases until it has been silent for a minute. Until
then these GPUs get no trial, as the database refuses a second lease. On one machine and in one PID
namespace the lock files of the devices decide, and leases of dead processes are ended at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import sqlalchemy as sa

from tuner.devices.device import DeviceId
from tuner.host.clock import Instant
from tuner.host.process_identity import Life, ProcessIdentity, life_of
from tuner.store.connection.database import Database, store_errors
from tuner.store.records.dispatchers.silence import Sights
from tuner.store.records.dispatchers.starts import OpenDispatcher, process_of
from tuner.store.records.dispatchers.takeover import close_attempts, take_over
from tuner.store.schema.models import AttemptRow, DispatcherRow, HostRow, LeaseRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherLease:
    """A lease of another dispatcher."""

    gpu: DeviceId
    study_id: int
    holder: OpenDispatcher
    #: Whether the record of the holder has ended.
    is_over: bool


class OtherLeases:
    """The leases of other dispatchers, of any study, on the GPUs of this one.

    Args:
        database: An open database.
        study_id: Id of the study.
        here: This process.
        own_id: This dispatcher's record.
    """

    def __init__(
        self, database: Database, study_id: int, here: ProcessIdentity, own_id: int
    ) -> None:
        self._database = database
        self._study_id = study_id
        self._here = here
        self._own_id = own_id
        self._gpus: dict[int, DeviceId] = {}
        self._sights = Sights()
        #: GPUs that cannot be leased now, with the holder of each as text.
        self.holders: Mapping[DeviceId, str] = MappingProxyType({})

    def watch(self, gpus: Mapping[DeviceId, int]) -> None:
        """Adds GPUs of this dispatcher, with the ids of their rows."""
        self._gpus |= {row_id: device_id for device_id, row_id in gpus.items()}

    def look(self, now: Instant) -> None:
        """Reads the leases, and ends those of dead dispatchers.

        Raises:
            StoreError: If the database cannot be used; this time then counts as no observation.
        """
        if not self._gpus:
            return
        try:
            with store_errors(self._database.shown_url):
                leases = self._database.access.run(self._read)
                ended = {each.holder.id for each in leases if self._end_if_dead(each, now)}
        except BaseException:
            # A dispatcher that could not write while we could not read is not dead.
            self._sights.interrupt()
            raise
        self.holders = MappingProxyType(
            {
                each.gpu: each.holder.place
                for each in leases
                if each.holder.id not in ended and not self._is_alive(each.holder)
            }
        )

    def _read(self, connection: sa.Connection) -> list[_OtherLease]:
        query = (
            sa.select(
                LeaseRow.held_device_id,
                DispatcherRow.id,
                DispatcherRow.study_id,
                HostRow.name,
                DispatcherRow.pid,
                DispatcherRow.versions,
                DispatcherRow.started_at,
                DispatcherRow.beat_at,
                DispatcherRow.ended_at,
            )
            .join(AttemptRow, AttemptRow.id == LeaseRow.attempt_id)
            .join(DispatcherRow, DispatcherRow.id == AttemptRow.dispatcher_id)
            .join(HostRow, HostRow.id == DispatcherRow.host_id)
            .where(LeaseRow.held_device_id.in_(self._gpus), DispatcherRow.id != self._own_id)
        )
        return [
            _OtherLease(
                gpu=self._gpus[row.held_device_id],
                study_id=row.study_id,
                holder=OpenDispatcher(
                    id=row.id,
                    process=process_of(row.name, row.pid, row.versions),
                    started_at=row.started_at,
                    beat_at=row.beat_at,
                ),
                is_over=row.ended_at is not None,
            )
            for row in connection.execute(query)
        ]

    def _is_alive(self, holder: OpenDispatcher) -> bool:
        """Whether its process is seen to live: then it has locked its devices against others."""
        return life_of(holder.process, here=self._here) is Life.ALIVE

    def _end_if_dead(self, lease: _OtherLease, now: Instant) -> bool:
        """Ends the leases of a dispatcher that has ended, or is dead; whether it did so."""
        if lease.is_over:
            self._database.access.run(lambda c: close_attempts(c, lease.holder, now.utc))
            return True
        # The own study's are looked at by `Fleet`, which tells the user of their trials.
        if lease.study_id == self._study_id or not self._is_dead(lease.holder, now.monotonic_s):
            return False
        taken = self._database.access.run(
            lambda c: take_over(c, lease.study_id, lease.holder, now.utc)
        )
        return taken is not None

    def _is_dead(self, holder: OpenDispatcher, now_s: float) -> bool:
        life = life_of(holder.process, here=self._here)
        if life is Life.UNKNOWN:
            return self._sights.is_silent(holder.sign, now_s)
        return life is Life.GONE
