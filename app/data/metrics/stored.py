"""Last reports and other figures of trials."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from tuner.app.data.trials.columns import TrialColumns
from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import CURVES, MAX_LISTED, USER_ATTRS
from tuner.store.schema.models import AttemptRow, MetricRow


@dataclass(slots=True, kw_only=True)
class StoredFigures:
    """The figures of one trial."""

    #: The last value of each metric, by name; NaN if it was no finite number.
    metrics: dict[str, float] = field(default_factory=dict)
    #: User attributes that are numbers.
    attributes: dict[str, float] = field(default_factory=dict)
    #: Number of stored values of its curve.
    n_reports: int = 0


class GrowingFigures:
    """Figures of trials; those of finished ones are read once. Thread-safe."""

    def __init__(self) -> None:
        self._finished: dict[int, StoredFigures] = {}
        self._lock = threading.Lock()

    def refresh(
        self, connection: sa.Connection, trials: TrialColumns
    ) -> Mapping[int, StoredFigures]:
        """By trial id.

        Args:
            connection: One that sees a single instant.
            trials: All of the study.
        """
        with self._lock:
            wanted = [each for each in trials.ids.tolist() if each not in self._finished]
            read: dict[int, StoredFigures] = {}
            for start in range(0, len(wanted), MAX_LISTED):
                read |= _read(connection, wanted[start : start + MAX_LISTED])
            for trial_id in trials.ids[trials.is_finished].tolist():
                if trial_id in read:
                    self._finished[trial_id] = read[trial_id]
            return self._finished | read


def _read(connection: sa.Connection, trial_ids: Collection[int]) -> dict[int, StoredFigures]:
    found = {trial_id: StoredFigures() for trial_id in trial_ids}
    reports = (
        sa.select(CURVES.c.trial_id, sa.func.count().label("n"))
        .where(CURVES.c.trial_id.in_(trial_ids))
        .group_by(CURVES.c.trial_id)
    )
    for row in connection.execute(reports):
        found[row.trial_id].n_reports = row.n
    attributes = sa.select(USER_ATTRS.c.trial_id, USER_ATTRS.c.key, USER_ATTRS.c.value_json).where(
        USER_ATTRS.c.trial_id.in_(trial_ids), USER_ATTRS.c.key.not_like("tuner:%")
    )
    for row in connection.execute(attributes):
        value = json.loads(row.value_json)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[row.trial_id].attributes[row.key] = float(value)
    if has_our_tables(connection):
        for trial_id, name, value in _last_metrics(connection, trial_ids):
            found[trial_id].metrics[name] = math.nan if value is None else value
    return found


def _last_metrics(
    connection: sa.Connection, trial_ids: Collection[int]
) -> list[tuple[int, str, float | None]]:
    """Rows are written in the order of the reports: the newest row of a name is the last one."""
    newest = (
        sa.select(sa.func.max(MetricRow.id).label("id"), AttemptRow.trial_id)
        .join(AttemptRow, AttemptRow.id == MetricRow.attempt_id)
        .where(AttemptRow.trial_id.in_(trial_ids))
        .group_by(AttemptRow.trial_id, MetricRow.name)
        .subquery()
    )
    query = sa.select(newest.c.trial_id, MetricRow.name, MetricRow.value).join(
        newest, newest.c.id == MetricRow.id
    )
    return [(row.trial_id, row.name, row.value) for row in connection.execute(query)]
