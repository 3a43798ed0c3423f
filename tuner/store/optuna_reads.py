"""Reads Optuna's tables in bulk: a study's trials in six queries, whatever their number.

Optuna's `RDBStorage` builds an object for each row, 0.4 s for 1,000 trials with their curves.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState

_TRIALS = models.TrialModel.__table__
_PARAMS = models.TrialParamModel.__table__
_VALUES = models.TrialValueModel.__table__
_CURVES = models.TrialIntermediateValueModel.__table__
_USER_ATTRS = models.TrialUserAttributeModel.__table__
_SYSTEM_ATTRS = models.TrialSystemAttributeModel.__table__

#: Of one `IN (...)`; SQLite takes 32,766 parameters, and a plan for many is slow elsewhere.
_MAX_IDS = 500
_NOT_FINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}


class TrialHead(NamedTuple):
    """What the table of trials itself knows of one."""

    trial_id: int
    number: int
    state: TrialState
    started_at: datetime | None
    completed_at: datetime | None


def read_heads(
    connection: sa.Connection, study_id: int, *, after_id: int = 0, of: Collection[int] = ()
) -> list[TrialHead]:
    """Trials of a study: those with an id above `after_id`, and those named."""
    columns = (_TRIALS.c[name] for name in ("trial_id", "number", "state"))
    instants = (_TRIALS.c[name] for name in ("datetime_start", "datetime_complete"))
    query = sa.select(*columns, *instants).where(_TRIALS.c.study_id == study_id)
    found = list(connection.execute(query.where(_TRIALS.c.trial_id > after_id)))
    for ids in _chunks(sorted(of)):
        found += connection.execute(query.where(_TRIALS.c.trial_id.in_(ids)))
    return [
        TrialHead(row.trial_id, row.number, row.state, _local(row[3]), _local(row[4]))
        for row in found
    ]


def read_trials(
    connection: sa.Connection, study_id: int, heads: Collection[TrialHead] | None = None
) -> list[FrozenTrial]:
    """Whole trials, by number.

    Args:
        connection: Of the database.
        study_id: Of the study.
        heads: Which trials; None for all of the study.
    """
    if heads is None:
        heads = read_heads(connection, study_id)
        ids = None
    else:
        ids = [head.trial_id for head in heads]
    parts = _Parts(connection, study_id, ids)
    return [parts.trial(head) for head in sorted(heads, key=lambda head: head.number)]


class _Parts:
    """All rows that belong to some trials."""

    def __init__(
        self, connection: sa.Connection, study_id: int, ids: Collection[int] | None
    ) -> None:
        self._connection = connection
        self._study_id = study_id
        self._ids = ids
        self._params: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        self._distributions: defaultdict[int, dict[str, BaseDistribution]] = defaultdict(dict)
        self._read_params()
        self._values = self._read_numbers(_VALUES, "objective", "value")
        self._curves = self._read_numbers(_CURVES, "step", "intermediate_value")
        self._user_attrs = self._read_attrs(_USER_ATTRS)
        self._system_attrs = self._read_attrs(_SYSTEM_ATTRS)

    def trial(self, head: TrialHead) -> FrozenTrial:
        values = self._values.get(head.trial_id)
        return FrozenTrial(
            number=head.number,
            state=head.state,
            value=None,
            values=[values[objective] for objective in sorted(values)] if values else None,
            datetime_start=head.started_at,
            datetime_complete=head.completed_at,
            params=self._params.get(head.trial_id, {}),
            distributions=self._distributions.get(head.trial_id, {}),
            user_attrs=self._user_attrs.get(head.trial_id, {}),
            system_attrs=self._system_attrs.get(head.trial_id, {}),
            intermediate_values=self._curves.get(head.trial_id, {}),
            trial_id=head.trial_id,
        )

    def _read_params(self) -> None:
        columns = (_PARAMS.c.param_name, _PARAMS.c.param_value, _PARAMS.c.distribution_json)
        # In the order in which they were suggested, as Optuna has them.
        order = _PARAMS.c.param_id
        for trial_id, name, internal, text in self._rows(_PARAMS, *columns, order=order):
            distribution = _distribution(text)
            self._params[trial_id][name] = distribution.to_external_repr(internal)
            self._distributions[trial_id][name] = distribution

    def _read_attrs(self, table: sa.Table) -> Mapping[int, dict[str, Any]]:
        found: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        for trial_id, key, text in self._rows(table, table.c.key, table.c.value_json):
            found[trial_id][key] = json.loads(text)
        return found

    def _read_numbers(
        self, table: sa.Table, key: str, value: str
    ) -> Mapping[int, dict[int, float]]:
        """Numbers by trial and by key; a NULL is one that the column beside it names."""
        found: defaultdict[int, dict[int, float]] = defaultdict(dict)
        has_special = False
        for trial_id, at, number in self._rows(table, table.c[key], table.c[value]):
            found[trial_id][at] = number
            has_special = has_special or number is None
        if has_special:
            kinds = sa.type_coerce(table.c[f"{value}_type"], sa.String)
            is_special = table.c[value].is_(None)
            for trial_id, at, kind in self._rows(table, table.c[key], kinds, where=is_special):
                found[trial_id][at] = _NOT_FINITE[kind]
        return found

    def _rows(
        self, table: sa.Table, *columns: sa.ColumnElement[Any], where: Any = None, order: Any = None
    ) -> Iterator[tuple[Any, ...]]:
        query = sa.select(table.c.trial_id, *columns)
        if where is not None:
            query = query.where(where)
        if order is not None:
            query = query.order_by(order)
        for part in self._chosen(query, table):
            cursor = self._connection.execute(part).cursor
            assert cursor is not None
            # Past SQLAlchemy's rows: a million of them cost a second more than the values in them.
            yield from cursor.fetchall()

    def _chosen(self, query: sa.Select[Any], table: sa.Table) -> Iterable[sa.Select[Any]]:
        if self._ids is None:
            of_study = sa.select(_TRIALS.c.trial_id).where(_TRIALS.c.study_id == self._study_id)
            return [query.where(table.c.trial_id.in_(of_study))]
        return [query.where(table.c.trial_id.in_(ids)) for ids in _chunks(list(self._ids))]


@cache
def _distribution(text: str) -> BaseDistribution:
    """One object for all trials: they are never changed, and most of a trial's memory else."""
    return json_to_distribution(text)


def _local(at: datetime | None) -> datetime | None:
    """The tables hold UTC without a zone; Optuna's objects have local time without a zone."""
    return at.replace(tzinfo=UTC).astimezone().replace(tzinfo=None) if at else None


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[begin : begin + _MAX_IDS] for begin in range(0, len(ids), _MAX_IDS))
