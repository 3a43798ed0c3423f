"""Last reports and other figures of trials."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from tuner.app.data.trials.columns import TrialColumns
from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import CURVES, MAX_LISTED, USER_ATTRS, ids_of
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

    def __init__(self, study_id: int) -> None:
        self._study_id = study_id
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
            read = _read(connection, self._study_id, wanted) if wanted else {}
            for trial_id in trials.ids[trials.is_finished].tolist():
                if trial_id in read:
                    self._finished[trial_id] = read[trial_id]
            return self._finished | read


def _read(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int]
) -> dict[int, StoredFigures]:
    """Figures of these trials of a study."""
    found = {trial_id: StoredFigures() for trial_id in trial_ids}
    # Of many trials, those of the whole study are read.
    ids = trial_ids if len(trial_ids) <= MAX_LISTED else ids_of(study_id)
    reports = (
        sa.select(CURVES.c.trial_id, sa.func.count())
        .where(CURVES.c.trial_id.in_(ids))
        .group_by(CURVES.c.trial_id)
    )
    for trial_id, n_reports in connection.execute(reports):
        if trial_id in found:
            found[trial_id].n_reports = n_reports
    attributes = sa.select(USER_ATTRS.c.trial_id, USER_ATTRS.c.key, USER_ATTRS.c.value_json).where(
        USER_ATTRS.c.trial_id.in_(ids), USER_ATTRS.c.key.not_like("tuner:%")
    )
    for trial_id, key, text in connection.execute(attributes):
        value = json.loads(text)
        if trial_id in found and isinstance(value, int | float) and not isinstance(value, bool):
            found[trial_id].attributes[key] = float(value)
    if has_our_tables(connection):
        for trial_id, name, last in _last_metrics(connection, ids):
            if trial_id in found:
                found[trial_id].metrics[name] = math.nan if last is None else last
    return found


def _last_metrics(
    connection: sa.Connection, ids: Collection[int] | sa.Select[Any]
) -> list[tuple[int, str, float | None]]:
    """Rows are written in the order of the reports: the newest row of a name is the last one."""
    newest = (
        sa.select(sa.func.max(MetricRow.id).label("id"), AttemptRow.trial_id)
        .join(AttemptRow, AttemptRow.id == MetricRow.attempt_id)
        .where(AttemptRow.trial_id.in_(ids))
        .group_by(AttemptRow.trial_id, MetricRow.name)
        .subquery()
    )
    query = sa.select(newest.c.trial_id, MetricRow.name, MetricRow.value).join(
        newest, newest.c.id == MetricRow.id
    )
    return [(trial_id, name, value) for trial_id, name, value in connection.execute(query)]
