"""Curves of an earlier study, as its database has them: every trial is one row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
import sqlalchemy as sa
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.config import Direction
from tuner.errors import ConfigError
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.locate import Place, choose_study
from tuner.search.samplers.curve_gp.feasibility import is_infeasible
from tuner.search.study_identity import to_optuna
from tuner.search_spaces import Parameter, ParamValue, SearchSpace
from tuner.simulate.curves import Curve
from tuner.store.connection.database import Database, open_database, store_errors
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.statements import ids_of
from tuner.store.schema.models import AttemptRow

_LEAST = 2
#: More than that, in parts of a parameter's range, is another configuration.
FAR = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    params: Mapping[str, ParamValue]
    curve: Curve


class RecordedCurves:
    """Curves of a study's trials. A configuration gets the curve of the nearest one.

    The distance is the root mean square over the parameters of the space: for numbers, their
    difference as a fraction of the range (logarithmic if the space is); 1 for different choices,
    and for a parameter that only one of both has. Nothing is averaged, so every curve is a recorded
    one.

    Args:
        space: The search space.
        rows: The study's trials.
        n_left_out: Trials whose curves cannot be used.
    """

    def __init__(self, space: SearchSpace, rows: Sequence[_Row], n_left_out: int) -> None:
        self._parameters = space.parameters
        self._rows = list(rows)
        self.n_left_out = n_left_out
        self._columns = [
            np.array([_place(each, row.params) for row in rows]) for each in self._parameters
        ]
        self._distances: list[float] = []

    @property
    def n_whole(self) -> int:
        """Curves of trials that have completed."""
        return sum(row.curve.is_whole for row in self._rows)

    @property
    def n_cut(self) -> int:
        """Number of curves that end where their trial was pruned."""
        return len(self._rows) - self.n_whole

    @property
    def median_distance(self) -> float:
        """Median distance between requested and recorded configurations so far."""
        return statistics.median(self._distances) if self._distances else 0.0

    def curve(self, params: Mapping[str, ParamValue]) -> Curve:
        """The curve of the nearest configuration that was recorded."""
        squares = np.zeros(len(self._rows))
        for parameter, column in zip(self._parameters, self._columns, strict=True):
            squares += _squares(parameter, column, _place(parameter, params))
        nearest = int(np.argmin(squares))
        self._distances.append(math.sqrt(float(squares[nearest]) / len(self._parameters)))
        return self._rows[nearest].curve


def read_recorded(
    place: Place, space: SearchSpace, direction: Direction, *, whole_only: bool
) -> RecordedCurves:
    """Reads the curves of a study.

    The database has the values of a trial by step, and the duration of its attempts, but not the
    time of each step: the steps of one trial are assumed to have equal duration.

    Args:
        place: The study.
        space: The search space; trials that lack one of its parameters are skipped.
        direction: Direction of the objective, which must be the study's.
        whole_only: Whether to skip curves of pruned trials, too.

    Raises:
        TunerError: If there is no such study, or too little in it.
    """
    database = open_database(place.url, read_only=True)
    try:
        with store_errors(place.url):
            return _read(database, place, space, direction, whole_only=whole_only)
    finally:
        database.close()


def _read(
    database: Database,
    place: Place,
    space: SearchSpace,
    direction: Direction,
    *,
    whole_only: bool,
) -> RecordedCurves:
    with database.engine.connect() as connection:
        stored = choose_study(connection, place)
        seconds = _seconds(connection, stored.id)
    study = optuna.Study(stored.name, database.storage)
    if len(study.directions) != 1 or study.direction is not to_optuna(direction):
        found = ", ".join(each.name.lower() for each in study.directions)
        raise ConfigError(
            f"The study {stored.name!r} has objectives to {found}, but the study file's is to "
            f"{direction.value}. Name a study with the same objective.",
            key="--curves",
        )
    trials = study.get_trials(deepcopy=False)
    rows = [row for each in trials if (row := _row(each, space, seconds)) is not None]
    if whole_only:
        rows = [row for row in rows if row.curve.is_whole]
    if len(rows) < _LEAST:
        raise ConfigError(
            f"The study {stored.name!r} has {len(rows)} of {len(trials)} trials with a curve and "
            f"all parameters of the study file; {_LEAST} are the least. "
            + ("Try without --whole." if whole_only else "Name a study of the same program."),
            key="--curves",
        )
    return RecordedCurves(space, rows, n_left_out=len(trials) - len(rows))


def _row(trial: FrozenTrial, space: SearchSpace, seconds: Mapping[int, float]) -> _Row | None:
    """A trial's row; None if its curve is not usable."""
    is_whole = trial.state is TrialState.COMPLETE
    if (not is_whole and trial.state is not TrialState.PRUNED) or is_infeasible(trial):
        return None
    if any(not each.when and each.name not in trial.params for each in space.parameters):
        return None
    reports = dict(sorted(trial.intermediate_values.items()))
    final = trial.values[0] if is_whole and trial.values else None
    if not reports and final is not None:
        reports = {1: final}
    took_s = seconds.get(trial_id_of(trial)) or (
        trial.duration.total_seconds() if trial.duration is not None else 0.0
    )
    if not reports or took_s <= 0:
        return None
    n_steps = len(reports)
    curve = Curve(
        values=np.array(list(reports.values()), dtype=float),
        seconds=took_s * np.arange(1, n_steps + 1) / n_steps,
        steps=np.array(list(reports)),
        final=final,
        is_whole=is_whole,
    )
    return _Row(params=trial.params, curve=curve)


def _seconds(connection: sa.Connection, study_id: int) -> dict[int, float]:
    """Seconds of all attempts by trial id, without waiting times."""
    if not has_our_tables(connection):
        return {}
    query = sa.select(AttemptRow.trial_id, AttemptRow.started_at, AttemptRow.ended_at).where(
        AttemptRow.trial_id.in_(ids_of(study_id))
    )
    found: dict[int, float] = {}
    for trial_id, started_at, ended_at in connection.execute(query):
        if started_at is None or ended_at is None:
            continue
        ran_s = (ended_at - started_at).total_seconds()
        found[trial_id] = found.get(trial_id, 0.0) + max(0.0, ran_s)
    return found


def _place(parameter: Parameter, params: Mapping[str, ParamValue]) -> float:
    """Position in its range, 0 to 1, or index of the choice; NaN if the configuration lacks it."""
    if parameter.name not in params:
        return math.nan
    value, distribution = params[parameter.name], parameter.distribution
    if isinstance(distribution, CategoricalDistribution):
        return float(distribution.choices.index(value)) if value in distribution.choices else -1.0
    assert isinstance(value, int | float)
    low, high, number = float(distribution.low), float(distribution.high), float(value)
    if distribution.log:
        low, high, number = math.log(low), math.log(high), math.log(max(number, 1e-300))
    return (number - low) / ((high - low) or 1.0)


def _squares(
    parameter: Parameter, column: np.ndarray[tuple[int], np.dtype[np.float64]], at: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    lacks = np.isnan(column)
    if math.isnan(at):
        return np.where(lacks, 0.0, 1.0)
    if isinstance(parameter.distribution, CategoricalDistribution):
        apart = (column != at).astype(float)
    else:
        apart = (column - at) ** 2
    return np.where(lacks, 1.0, apart)
