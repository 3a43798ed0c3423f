"""The table of trials: outcomes, values and configurations."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias, cast

import numpy as np
import sqlalchemy as sa

from tuner.app.data.columns import Floats
from tuner.app.data.outcome_words import ALL_WORDS, CODES, WAITING, shown
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.costs import NO_COSTS, TrialCosts
from tuner.queries.studies import Objective
from tuner.queries.trials.params import read_fixed, read_whole_params
from tuner.search_spaces import ParamValue

#: By trial id.
Params: TypeAlias = Mapping[int, Mapping[str, ParamValue]]
#: Shown as "3 minutes ago".
AGO = "started"
_SHOWN_WORDS = [shown(word) for word in ALL_WORDS]
Cell: TypeAlias = float | int | str | bool | datetime | None


class GrowingParams:
    """Configurations; those of finished trials are read once."""

    def __init__(self, study_id: int) -> None:
        self._study_id = study_id
        self._held: dict[int, Mapping[str, ParamValue]] = {}
        self._finished: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def refresh(self, connection: sa.Connection, trials: TrialColumns) -> Params:
        """The same object while nothing can have changed."""
        with self._lock:
            there = set(trials.ids.tolist())
            wanted = there - self._finished
            if wanted:
                held = {
                    trial_id: params
                    for trial_id, params in self._held.items()
                    if trial_id in self._finished and trial_id in there
                }
                held |= read_whole_params(connection, self._study_id, wanted)
                self._add_enqueued(connection, trials, held)
                self._held = held
            self._finished = frozenset(trials.ids[trials.is_finished].tolist())
            return self._held

    def _add_enqueued(
        self,
        connection: sa.Connection,
        trials: TrialColumns,
        held: dict[int, Mapping[str, ParamValue]],
    ) -> None:
        waiting = trials.ids[trials.words == WAITING].tolist()
        if waiting:
            for trial_id, told in read_fixed(connection, self._study_id, waiting).items():
                if trial_id in held:
                    held[trial_id] = {**told, **held[trial_id]}


def chosen(trials: TrialColumns, words: Collection[str]) -> TrialColumns:
    """Trials of some outcomes, the newest first; without words: all."""
    codes = [CODES[word] for word in words]
    rows = trials.where(np.isin(trials.words, codes)) if codes else trials
    return rows.where(np.arange(len(rows))[::-1])


def words_of(trials: TrialColumns) -> list[str]:
    """Outcomes that some trial has, in the order in which they are always shown."""
    return [ALL_WORDS[code] for code in np.unique(trials.words).tolist()]


def table_of(
    trials: TrialColumns,
    objectives: Sequence[Objective],
    params: Params,
    now: datetime,
    costs: TrialCosts = NO_COSTS,
) -> dict[str, list[Cell]]:
    """Columns by title.

    Durations are those of the attempts, until now for a running trial. The last report is shown if
    a trial has not ended; costs if any are known.
    """
    columns: dict[str, list[Cell]] = {
        "trial": list(trials.numbers.tolist()),
        "outcome": [_SHOWN_WORDS[code] for code in trials.words.tolist()],
    }
    for place, objective in enumerate(objectives):
        columns[objective.name] = _or_none(trials.values[:, place])
    if trials.is_infeasible.any():
        columns["infeasible"] = list(trials.is_infeasible.tolist())
    if not np.isnan(trials.last_steps).all():
        steps = trials.last_steps.tolist()
        columns["last step"] = [None if np.isnan(each) else int(each) for each in steps]
        for place, objective in enumerate(objectives):
            columns[f"last {objective.name}"] = _or_none(trials.last_values[:, place])
    columns["duration (s)"] = _or_none(trials.durations_s(now.timestamp()).round(3))
    ids = trials.ids.tolist()
    for title, by_trial in (
        ("device-hours", costs.device_hours),
        ("energy (kWh)", costs.energy_kwh),
    ):
        if by_trial:
            columns[title] = [by_trial.get(trial_id) for trial_id in ids]
    started = _instants(trials.started_at_s)
    columns |= {AGO: started, "started (UTC)": list(started)}
    for name in _names(params):
        title = name if name not in columns else f"{name} (parameter)"
        cells = [_cell(params.get(trial_id, {}), name) for trial_id in ids]
        columns[title] = _alike(cells)
    return columns


def titles_of(
    trials: TrialColumns,
    objectives: Sequence[Objective],
    params: Params,
    now: datetime,
    costs: TrialCosts = NO_COSTS,
) -> list[str]:
    """Titles of the columns of `table_of`, from few rows."""
    is_needed = np.zeros(len(trials), dtype=np.bool_)
    for has in (trials.is_infeasible, ~np.isnan(trials.last_steps)):
        is_needed[np.flatnonzero(has)[:1]] = True
    return list(table_of(trials.where(is_needed), objectives, params, now, costs))


def _names(params: Params) -> list[str]:
    sets_of_names = dict.fromkeys(map(tuple, params.values()))  # Most trials have the same ones.
    return list(dict.fromkeys(name for names in sets_of_names for name in names))


def _cell(params: Mapping[str, ParamValue], name: str) -> ParamValue:
    """None if the trial has no such parameter; the choice None is written out."""
    value = params.get(name)
    return "None" if value is None and name in params else value


def _alike(cells: Sequence[ParamValue | None]) -> list[Cell]:
    """A table's column has one type: mixed values are shown as text."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int, float} or kinds == {bool} or kinds == {str}:
        return cast("list[Cell]", list(cells))
    return [None if cell is None else str(cell) for cell in cells]


def _or_none(values: Floats) -> list[Cell]:
    found = values.astype(object)
    found[np.isnan(values)] = None
    cells: list[Cell] = found.tolist()
    return cells


def _instants(at_s: Floats) -> list[Cell]:
    """Times in UTC; None for NaN."""
    known = np.isfinite(at_s)
    found = np.full(len(at_s), None, dtype=object)
    microseconds = np.round(at_s[known] * 1e6).astype("datetime64[us]")
    found[known] = microseconds.astype(object)
    cells: list[Cell] = found.tolist()
    return cells
