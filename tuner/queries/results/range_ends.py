"""Parameters whose best values lie at an end of their range, so that better ones may lie outside.

The end of a study, `tuner best` and the dashboard's page Best say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState

from tuner.queries.trials.params import read_params, read_space
from tuner.search_spaces import ParamValue, SearchSpace
from tuner.search_spaces.space import Parameter, is_number, is_one_of
from tuner.store.connection.database import open_database
from tuner.store.optuna_tables.feasibility import infeasible_trials, without
from tuner.store.optuna_tables.statements import (
    DIRECTIONS,
    MAX_LISTED,
    SYSTEM_ATTRS,
    TRIALS,
    VALUES,
)
from tuner.store.records.population_rows import MEMBER_KEY
from tuner.store.records.queries import find_study

#: Fewer completed trials say little about where the best values lie.
MIN_COMPLETED = 20
#: The best trials are the best quarter, but at least 5 and at most 10.
_BEST_OF = 4
_FEWEST_BEST, _MOST_BEST = 5, 10
#: An end is this share of the range, on the scale on which the parameter is sampled.
_END = 0.05
#: Maximum probability that so many of the best trials lie at an end if values were random.
_MAX_CHANCE = 0.001
#: With at least so many trials nearer to the end than all the best, the optimum lies inside.
_N_BEYOND = 5
#: How many standard errors trials at the end must be better by, other parameters being equal.
#: Samplers repeat what their best trials have, also in parameters without effect.
_MIN_T = 3.0
#: Degrees of freedom that a regression leaves, and as many as it has columns.
_MIN_FREE = 10
#: Trials that are compared: the best ones, and others evenly by rank.
_N_TOP = 100

Numeric: TypeAlias = FloatDistribution | IntDistribution
Configuration: TypeAlias = Mapping[str, ParamValue]
_Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeEnd:
    """A parameter whose values in the best trials lie at an end of its range."""

    parameter: str
    #: Whether it is the upper end.
    is_high: bool
    #: The end of the range.
    bound: float
    #: Value in the best trial.
    value: float
    n_at_end: int
    n_best: int

    @property
    def text(self) -> str:
        """A sentence for the user, with what to do."""
        end, more = ("high", "a higher") if self.is_high else ("low", "a lower")
        return (
            f"{self.parameter} is at the {end} end of its range in {self.n_at_end} of the "
            f"{self.n_best} best trials ({self.value:.4g} in the best trial; {end}: "
            f"{self.bound:.4g}). Better values may lie outside: consider {more} `{end}`, in a new "
            "study (`tuner copy` keeps the trials)."
        )


def find_range_ends(
    space: SearchSpace, ranked: Sequence[Configuration], *, n_best: int
) -> list[RangeEnd]:
    """Finds the parameters whose best values lie at an end of their range.

    Args:
        space: The declared search space.
        ranked: Parameters of completed trials, the best first.
        n_best: How many of them are the best ones.
    """
    found = (_ends_of(space, each, ranked, n_best) for each in space.parameters)
    return [end for of_parameter in found for end in of_parameter]


def _ends_of(
    space: SearchSpace, parameter: Parameter, ranked: Sequence[Configuration], n_best: int
) -> Iterator[RangeEnd]:
    name, scale = parameter.name, parameter.distribution
    if not isinstance(scale, Numeric) or scale.low == scale.high or not ranked:
        return
    if not is_number(ranked[0].get(name)):
        return  # It depends on others, and the best trial lacks it.
    having = [each for each in ranked if is_number(each.get(name))]
    values = [float(each) for each in (trial[name] for trial in having) if is_number(each)]
    n_having = sum(is_number(each.get(name)) for each in ranked[:n_best])
    for is_high in (False, True):
        distances = [_distance(scale, each, is_high=is_high) for each in values]
        best = distances[:n_having]
        n_at_end = sum(each < _END for each in best)
        share = max(_share_of_end(scale, is_high=is_high), 1 / len(set(values)))
        if (
            best[0] < _END
            and not _is_natural(scale, is_high=is_high)
            and _chance(n_best, n_at_end, share) <= _MAX_CHANCE
            and sum(each < min(best) for each in distances) < _N_BEYOND
            and _advantage(space, having, name, [each < _END for each in distances]) >= _MIN_T
        ):
            yield RangeEnd(
                parameter=name,
                is_high=is_high,
                bound=float(scale.high if is_high else scale.low),
                value=values[0],
                n_at_end=n_at_end,
                n_best=n_best,
            )


def _distance(scale: Numeric, value: float, *, is_high: bool) -> float:
    """Distance from an end as a share of the range; not positive at the end or outside."""
    low, high, at = (_scaled(scale, each) for each in (scale.low, scale.high, value))
    return (high - at if is_high else at - low) / (high - low)


def _scaled(scale: Numeric, value: float) -> float:
    if not scale.log:
        return value
    return math.log(value) if value > 0 else -math.inf


def _share_of_end(scale: Numeric, *, is_high: bool) -> float:
    """Share of random values at an end: of 1 to 3 each whole number is a third."""
    if scale.step is None:
        return _END
    half = scale.step / 2
    low, high = _scaled(scale, scale.low - half), _scaled(scale, scale.high + half)
    nearest = high - _scaled(scale, scale.high - half)
    if not is_high:
        nearest = _scaled(scale, scale.low + half) - low
    return max(_END, nearest / (high - low))


def _is_natural(scale: Numeric, *, is_high: bool) -> bool:
    """Whether values outside hardly mean anything: counts below 1, shares beyond 0 and 1.

    A count may always be higher, so that 3 of 1 to 3 layers is an end and 1 is none.
    """
    if is_high:
        return isinstance(scale, FloatDistribution) and scale.high == 1.0 and not scale.log
    return scale.low == 0 or (isinstance(scale, IntDistribution) and scale.low == 1)


def _chance(n: int, n_at_end: int, share: float) -> float:
    """Probability of at least so many of `n` random values at an end."""
    return sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n_at_end, n + 1))


def _advantage(
    space: SearchSpace, ranked: Sequence[Configuration], name: str, is_at_end: Sequence[bool]
) -> float:
    """By how many standard errors trials at an end are better, other parameters being equal.

    Least squares of the rank on all other parameters: numbers with their squares and with the
    distance from the best trial, near which samplers suggest. Linear where trials are few; 0 where
    they are too few for that.
    """
    others = [each for each in space.parameters if each.name != name]
    for with_curves in (True, False):
        columns = [column for each in others for column in _columns(each, ranked, with_curves)]
        design = np.column_stack([np.ones(len(ranked)), *columns, np.array(is_at_end, float)])
        n_free = len(ranked) - np.linalg.matrix_rank(design)
        if n_free >= max(_MIN_FREE, design.shape[1]):
            return _t_of_last(design, n_free)
    return 0.0


def _t_of_last(design: _Floats, n_free: int) -> float:
    """Student's t of the last column, positive where it makes ranks smaller."""
    ranks = np.arange(len(design), dtype=float)
    inverse = np.linalg.pinv(design.T @ design)
    weights = inverse @ design.T @ ranks
    variance = float(np.sum((ranks - design @ weights) ** 2)) / n_free * float(inverse[-1, -1])
    return -float(weights[-1]) / math.sqrt(variance) if variance > 0 else 0.0


def _columns(
    parameter: Parameter, trials: Sequence[Configuration], with_curves: bool
) -> Iterator[_Floats]:
    """What one parameter explains of the ranks; one that a trial lacks is in the middle."""
    scale, values = parameter.distribution, [each.get(parameter.name) for each in trials]
    if isinstance(scale, CategoricalDistribution):
        for choice in scale.choices[1:]:
            yield np.array([float(is_one_of(each, [choice])) for each in values])
        return
    if scale.low == scale.high:
        return
    at = [_distance(scale, each, is_high=False) if is_number(each) else 0.5 for each in values]
    place = np.clip(at, 0.0, 1.0)
    yield place
    if with_curves:
        yield (place - 0.5) ** 2
        yield np.abs(place - place[0])


def load_range_ends(storage: str, study: str | None = None) -> list[RangeEnd]:
    """Finds them in a database.

    Args:
        storage: URL of the database.
        study: Name of the study; the default is the only study of the database.

    Raises:
        StoreError: If the database or the study does not exist.
    """
    database = open_database(storage, read_only=True)
    try:
        study_id, _ = find_study(database, study)
        with database.engine.connect() as connection:
            return read_range_ends(connection, study_id)
    finally:
        database.close()


def read_range_ends(connection: sa.Connection, study_id: int) -> list[RangeEnd]:
    """Finds them in a stored study.

    None for several objectives, whose best trials are a trade-off that reaches to the ends; for a
    population, whose parameters are only the last ones of a schedule; and for a space that the
    program declares.
    """
    space = read_space(connection, study_id)
    directions = sa.select(DIRECTIONS.c.direction).where(DIRECTIONS.c.study_id == study_id)
    found = connection.execute(directions).scalars().all()
    if not isinstance(space, SearchSpace) or len(found) != 1:
        return []
    if _is_population(connection, study_id):
        return []
    ids = _ranked(connection, study_id, is_maximized=found[0] is StudyDirection.MAXIMIZE)
    if len(ids) < MIN_COMPLETED:
        return []
    n_best = min(_MOST_BEST, max(_FEWEST_BEST, len(ids) // _BEST_OF))
    every = math.ceil(len(ids) / (MAX_LISTED - _N_TOP))
    compared = [*ids[:_N_TOP], *ids[_N_TOP::every]]
    params = read_params(connection, study_id, compared)
    return find_range_ends(space, [params.get(each, {}) for each in compared], n_best=n_best)


def _is_population(connection: sa.Connection, study_id: int) -> bool:
    query = (
        sa.select(SYSTEM_ATTRS.c.trial_id)
        .join(TRIALS, TRIALS.c.trial_id == SYSTEM_ATTRS.c.trial_id)
        .where(TRIALS.c.study_id == study_id, SYSTEM_ATTRS.c.key == MEMBER_KEY)
    )
    return connection.execute(query.limit(1)).first() is not None


def _ranked(connection: sa.Connection, study_id: int, *, is_maximized: bool) -> list[int]:
    """Ids of completed, feasible trials, the best first."""
    query = (
        sa.select(TRIALS.c.trial_id)
        .join(VALUES, VALUES.c.trial_id == TRIALS.c.trial_id)
        .where(
            TRIALS.c.study_id == study_id,
            TRIALS.c.state == TrialState.COMPLETE,
            VALUES.c.objective == 0,
            VALUES.c.value.is_not(None),  # Infinite ones are NULL.
            without(TRIALS.c.trial_id, infeasible_trials(connection, study_id)),
        )
    )
    order = VALUES.c.value.desc() if is_maximized else VALUES.c.value
    return list(connection.execute(query.order_by(order, TRIALS.c.number)).scalars())
