"""The studies of a database at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.app.data.digits import values_text
from tuner.queries.alerts import Alert, find_alerts
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.idle import read_idle_now
from tuner.queries.notes import Note, read_study_notes
from tuner.queries.status import Progress, read_progress
from tuner.queries.studies import StudySummary, read_studies
from tuner.queries.study_state import Standing
from tuner.store.records.commands import paused_by
from tuner.store.schema.models import AttemptRow, DispatcherRow, LeaseRow
from tuner.terminal.wording import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyLine:
    """A line of the table of studies."""

    study: StudySummary
    progress: Progress
    n_devices: int
    alerts: tuple[Alert, ...]
    #: The note on the study itself.
    note: Note | None
    #: `user@host`; empty if it is not paused.
    paused_by: str = ""

    @property
    def is_paused(self) -> bool:
        """Whether dispatchers work on it and start no trial."""
        return bool(self.paused_by) and self.progress.standing is Standing.RUNNING

    @property
    def state(self) -> str:
        return "paused" if self.is_paused else self.progress.standing.value

    @property
    def reason(self) -> str:
        return f"paused by {self.paused_by}" if self.is_paused else self.progress.reason

    @property
    def fraction(self) -> float | None:
        """Used fraction of the limit that is closest to its end; None for an open budget."""
        return self.progress.fraction

    @property
    def best(self) -> str:
        text = values_text(self.study.best)
        return f"each by itself: {text}" if len(self.study.best) > 1 else text

    @property
    def workers(self) -> str:
        return ", ".join(f"{each.host} (pid {each.pid})" for each in self.study.dispatchers)


def read_overview(connection: sa.Connection, now: datetime) -> list[StudyLine]:
    """All studies, the newest first."""
    n_devices = _devices_in_use(connection)
    notes = read_study_notes(connection)
    lines = []
    for study in read_studies(connection, now):
        progress = read_progress(connection, study)
        idle = read_idle_now(connection, study.dispatchers, now)
        line = StudyLine(
            study=study,
            progress=progress,
            n_devices=sum(n_devices.get(each.id, 0) for each in study.dispatchers),
            alerts=find_alerts(study, progress.standing, progress.reason, idle, now),
            note=notes.get(study.id),
            paused_by=paused_by(connection, study.id) if has_our_tables(connection) else "",
        )
        lines.append(line)
    return lines[::-1]


def _devices_in_use(connection: sa.Connection) -> Mapping[int, int]:
    """By dispatcher."""
    if not has_our_tables(connection):
        return {}
    query = (
        sa.select(DispatcherRow.id, sa.func.count(sa.distinct(LeaseRow.device_id)).label("n"))
        .join(AttemptRow, AttemptRow.dispatcher_id == DispatcherRow.id)
        .join(LeaseRow, LeaseRow.attempt_id == AttemptRow.id)
        .where(LeaseRow.released_at.is_(None), DispatcherRow.ended_at.is_(None))
        .group_by(DispatcherRow.id)
    )
    return {row.id: row.n for row in connection.execute(query)}


def ago(at: datetime | None, now: datetime) -> str:
    """`12 s ago`"""
    if at is None:
        return "never"
    return f"{duration(max(0.0, (now - at).total_seconds()))} ago"
