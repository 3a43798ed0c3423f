"""Curves of any metric of some trials, against the step or against another metric, smoothed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from tuner.app.data.columns import Floats, Numbers
from tuner.app.data.metrics.attempt_rows import MetricReport, join_attempts
from tuner.app.data.trials.columns import TrialColumns
from tuner.queries.dispatchers import has_our_tables
from tuner.store.optuna_tables.statements import read_curves
from tuner.store.schema.models import AttemptRow, MetricRow

#: Each of the best, of the newest, and of those that run.
N_OF_A_KIND = 20
#: By trial id, by metric, by step; None for a report that was no finite number.
Reports = Mapping[int, Mapping[str, Mapping[int, float | None]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricCurve:
    """The curve of one trial."""

    x: Floats
    #: As reported.
    y: Floats
    smooth: Floats


def drawn_rows(trials: TrialColumns, *, is_maximized: bool) -> Numbers:
    """Rows of the best, the newest and the running trials, in order.

    Args:
        trials: All trials of a study.
        is_maximized: Whether the first objective is maximized.
    """
    rows = np.arange(len(trials))
    able = rows[trials.is_candidate]
    sign = -1.0 if is_maximized else 1.0
    best = able[np.argsort(sign * trials.values[able, 0], kind="stable")[:N_OF_A_KIND]]
    begun = rows[~np.isnan(trials.started_at_s)]
    is_open = ~trials.is_finished & ~np.isnan(trials.open_since_s)
    chosen: Numbers = np.unique(
        np.concatenate([best, begun[-N_OF_A_KIND:], rows[is_open][-N_OF_A_KIND:]])
    )
    return chosen


def read_reports(
    connection: sa.Connection, study_id: int, value_name: str, trial_ids: Collection[int]
) -> Reports:
    """All metrics of some trials.

    Args:
        connection: One that sees a single instant.
        study_id: Whose trials they are.
        value_name: What the curve of Optuna's own table is called.
        trial_ids: Few.
    """
    found: dict[int, dict[str, dict[int, float | None]]] = {}
    for trial_id, curve in read_curves(connection, study_id, trial_ids).items():
        finite = {step: value if np.isfinite(value) else None for step, value in curve.items()}
        found[trial_id] = {value_name: finite} if finite else {}
    if has_our_tables(connection):
        query = (
            sa.select(
                AttemptRow.trial_id,
                AttemptRow.number,
                MetricRow.name,
                MetricRow.step,
                MetricRow.value,
            )
            .join(AttemptRow, AttemptRow.id == MetricRow.attempt_id)
            .where(AttemptRow.trial_id.in_(trial_ids))
            .order_by(AttemptRow.trial_id, AttemptRow.number, MetricRow.id)
        )
        rows = (
            MetricReport(trial_id=trial_id, attempt=attempt, name=name, step=step, value=value)
            for trial_id, attempt, name, step, value in connection.execute(query)
        )
        for trial_id, metrics in join_attempts(rows).items():
            of_trial = found.setdefault(trial_id, {})
            of_trial |= {_own(name, value_name): curve for name, curve in metrics.items()}
    return found


def _own(name: str, value_name: str) -> str:
    return name if name != value_name else f"{name} (metric)"


def names_of(reports: Reports) -> list[str]:
    """Reported metrics of any of the trials, in display order."""
    return list(dict.fromkeys(name for each in reports.values() for name in each))


def curve_of(
    reports: Mapping[str, Mapping[int, float | None]], y: str, x: str | None, weight: float
) -> MetricCurve | None:
    """A curve; None if the trial has no finite reports of both.

    Args:
        reports: The trial's reports.
        y: A metric.
        x: Another one, at the same steps; None for the step.
        weight: Weight of earlier values in the moving average, from 0 (as reported) to below 1.
    """
    values = reports.get(y, {})
    places = reports.get(x, {}) if x is not None else {step: float(step) for step in values}
    pairs = [
        (place, value)
        for step, value in sorted(values.items())
        if value is not None and (place := places.get(step)) is not None
    ]
    if not pairs:
        return None
    table = np.array(pairs, dtype=np.float64)
    return MetricCurve(x=table[:, 0], y=table[:, 1], smooth=moving_average(table[:, 1], weight))


def n_lost(reports: Reports, name: str) -> int:
    """Number of reports of a metric that were no finite number."""
    return sum(value is None for each in reports.values() for value in each.get(name, {}).values())


def moving_average(values: Floats, weight: float) -> Floats:
    """The exponential moving average, bias-corrected as in Adam (arXiv:1412.6980).

    Args:
        values: In order.
        weight: Weight of earlier values, from 0 to below 1.
    """
    if weight == 0.0:
        return values
    averages = np.empty(len(values))
    held = 0.0
    for place, value in enumerate(values.tolist()):
        held = weight * held + (1.0 - weight) * value
        averages[place] = held / (1.0 - weight ** (place + 1))
    return averages
