"""Quantities for axes: a number for each trial, from any source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.app.data.columns import Floats
from tuner.app.data.convergence.series import unit_of
from tuner.app.data.metrics.stored import StoredFigures
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.costs import TrialCosts
from tuner.app.data.trials.table import Params
from tuner.queries.studies import Objective

NUMBER = "trial (number)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All that is known of the trials of a study."""

    trials: TrialColumns
    objectives: Sequence[Objective]
    figures: Mapping[int, StoredFigures]
    params: Params
    costs: TrialCosts
    #: The current time, in seconds since the epoch.
    now_s: float


def quantities(known: Sources) -> dict[str, Floats]:
    """Values of each trial, by title with unit, in the order of trials.

    NaN for missing ones. Objectives are as reported, or the last report of a paused trial; metrics
    are the trial's last report. Quantities that no trial has are left out, except the objectives.
    """
    trials = known.trials
    found: dict[str, Floats] = {}
    for place, objective in enumerate(known.objectives):
        found[objective.name] = trials.shown_values[:, place]
    ids = trials.ids.tolist()
    stored = [known.figures.get(trial_id, StoredFigures()) for trial_id in ids]
    _add(found, _columns(each.metrics for each in stored), "last report")
    _add(found, _measured(known, stored), "measured")
    _add(found, _columns(_numbers(known.params.get(trial_id, {})) for trial_id in ids), "parameter")
    _add(found, _columns(each.attributes for each in stored), "attribute")
    found[NUMBER] = trials.numbers.astype(np.float64)
    return found


def _add(found: dict[str, Floats], more: Mapping[str, Floats], kind: str) -> None:
    for title, values in more.items():
        if np.isfinite(values).any():
            found[title if title not in found else f"{title} ({kind})"] = values


def _columns(rows: Iterable[Mapping[str, float]]) -> dict[str, Floats]:
    every = list(rows)
    names = sorted({name for row in every for name in row})
    return {name: np.array([row.get(name, np.nan) for row in every]) for name in names}


def _numbers(params: Mapping[str, object]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in params.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _measured(known: Sources, stored: Sequence[StoredFigures]) -> dict[str, Floats]:
    trials = known.trials
    begun = ~np.isnan(trials.started_at_s)
    durations_s = np.where(begun, trials.durations_s(known.now_s), np.nan)
    n_reports = np.array([float(each.n_reports) for each in stored])
    per_report_s = np.full(len(trials), np.nan)
    np.divide(durations_s, n_reports, out=per_report_s, where=n_reports > 0)
    ids = trials.ids.tolist()
    hours, energy = known.costs.device_hours, known.costs.energy_kwh
    return {
        "duration (s)": durations_s,
        "time per report (s)": per_report_s,
        "reports": n_reports,
        "device-seconds": np.array([3600.0 * hours.get(each, np.nan) for each in ids]),
        "energy (kWh)": np.array([energy.get(each, np.nan) for each in ids]),
        **_since_the_first(trials),
    }


def _since_the_first(trials: TrialColumns) -> dict[str, Floats]:
    begun = trials.started_at_s[~np.isnan(trials.started_at_s)]
    if not len(begun):
        return {}
    first_s = float(begun.min())
    elapsed_s = trials.placed_at_s - first_s
    known = elapsed_s[np.isfinite(elapsed_s)]
    length_s, unit = unit_of(float(known.max()) if len(known) else 0.0)
    return {
        f"start, since the first trial ({unit})": (trials.started_at_s - first_s) / length_s,
        f"end, since the first trial ({unit})": elapsed_s / length_s,
    }
