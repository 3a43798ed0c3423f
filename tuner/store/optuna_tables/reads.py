"""Reads Optuna's tables in bulk: a study's trials in a few queries, whatever their number.

Optuna's `RDBStorage` builds an object for each row, 0.4 s for 1,000 trials with their curves.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.trial import FrozenTrial, TrialState

from tuner.store.optuna_tables.curves.lazy_curve import Curve, compact
from tuner.store.optuna_tables.curves.memory import CurveMemory
from tuner.store.optuna_tables.curves.reads import (
    NOT_FINITE,
    fetched,
    read_curves,
    without_collector,
)
from tuner.store.optuna_tables.statements import (
    PARAMS,
    SYSTEM_ATTRS,
    TRIALS,
    USER_ATTRS,
    VALUES,
)

#: Ids per `IN (...)`; SQLite allows 32,766 parameters, and other databases plan many slowly.
_MAX_IDS = 500
#: Optuna's objects take some kilobytes each before they are made small.
_TRIALS_AT_ONCE = 5000


class TrialHead(NamedTuple):
    """A trial's columns in the table of trials."""

    trial_id: int
    number: int
    state: TrialState
    started_at: datetime | None
    completed_at: datetime | None


_HEADS = sa.select(
    *(TRIALS.c[name] for name in ("trial_id", "number", "state")),
    *(TRIALS.c[name] for name in ("datetime_start", "datetime_complete")),
)
# Made once: a look is taken every second.
_NEWER_HEADS = _HEADS.where(
    TRIALS.c.study_id == sa.bindparam("b_study_id"), TRIALS.c.trial_id > sa.bindparam("b_after")
)
_NEXT_HEADS = _NEWER_HEADS.order_by(TRIALS.c.trial_id).limit(_TRIALS_AT_ONCE)
_NAMED_HEADS = _HEADS.where(
    TRIALS.c.study_id == sa.bindparam("b_study_id"),
    TRIALS.c.trial_id.in_(sa.bindparam("b_ids", expanding=True)),
)


def read_heads(
    connection: sa.Connection, study_id: int, *, after_id: int = 0, of: Collection[int] = ()
) -> list[TrialHead]:
    """Trials of a study: those with an id above `after_id`, and those named."""
    newer = {"b_study_id": study_id, "b_after": after_id}
    found = list(connection.execute(_NEWER_HEADS, newer))
    for ids in _chunks(sorted(of)):
        found += connection.execute(_NAMED_HEADS, {"b_study_id": study_id, "b_ids": ids})
    return [_head(row) for row in found]


def _next_heads(connection: sa.Connection, study_id: int, *, after_id: int) -> list[TrialHead]:
    newer = {"b_study_id": study_id, "b_after": after_id}
    return [_head(row) for row in connection.execute(_NEXT_HEADS, newer)]


def _head(row: Any) -> TrialHead:
    return TrialHead(row.trial_id, row.number, row.state, _local(row[3]), _local(row[4]))


@without_collector()
def read_trials(
    connection: sa.Connection, study_id: int, heads: Collection[TrialHead] | None = None
) -> list[FrozenTrial]:
    """Whole trials, by number; ended trials have a `Curve` instead of a dict of reports.

    Args:
        connection: Connection to the database.
        study_id: Id of the study.
        heads: The trials to read; None for all of the study.
    """
    ids = None if heads is None else [head.trial_id for head in heads]
    if heads is None:
        heads = read_heads(connection, study_id)
    heads = sorted(heads, key=lambda head: head.number)
    curves = read_curves(connection, [head.trial_id for head in heads])
    parts = _Parts(connection, study_id, ids)
    return [parts.trial(head, curves.get(head.trial_id)) for head in heads]


def read_study(
    connection: sa.Connection, study_id: int, later: CurveMemory
) -> Iterator[FrozenTrial]:
    """All trials of a study, by number, some thousand in memory at a time.

    Args:
        connection: Connection to the database.
        study_id: Id of the study.
        later: Holds the curves of ended trials, which are read on first access. They are most of a
            study's rows, and few samplers read them.
    """
    last_id = 0  # Ids rise with numbers.
    while heads := _next_heads(connection, study_id, after_id=last_id):
        last_id = heads[-1].trial_id
        ids = range(heads[0].trial_id, last_id + 1)
        curves, parts = _read_curves(connection, heads, later), _Parts(connection, study_id, ids)
        for head in heads:
            yield parts.trial(head, curves.get(head.trial_id))


def read_new(connection: sa.Connection, study_id: int, *, after_id: int) -> list[FrozenTrial]:
    """New trials after a known one, by number: running ones without details, the others whole.

    The details of a running trial change until it ends, so they are read later anyway; to read them
    here for each new trial would cost more than all else.
    """
    heads = read_heads(connection, study_id, after_id=after_id)
    rest = [head for head in heads if head.state != TrialState.RUNNING]
    whole = read_trials(connection, study_id, rest) if rest else []
    bare = [bare_trial(head) for head in heads if head.state == TrialState.RUNNING]
    return sorted([*whole, *bare], key=lambda trial: trial.number)


def bare_trial(head: TrialHead) -> FrozenTrial:
    """A trial without what is in other tables."""
    return FrozenTrial(
        number=head.number,
        state=head.state,
        value=None,
        datetime_start=head.started_at,
        datetime_complete=None,
        params={},
        distributions={},
        user_attrs={},
        system_attrs={},
        intermediate_values={},
        trial_id=head.trial_id,
    )


def _read_curves(
    connection: sa.Connection, heads: Sequence[TrialHead], later: CurveMemory
) -> Mapping[int, Curve]:
    of_state: defaultdict[TrialState, list[int]] = defaultdict(list)
    for head in heads:
        of_state[head.state].append(head.trial_id)
    curves: dict[int, Curve] = {}
    # A batch has one state: pruners look at completed trials, TPE at pruned ones.
    for state, ids in of_state.items():
        is_later = state.is_finished()
        curves |= later.unread(ids) if is_later else read_curves(connection, ids)
    return curves


class _Parts:
    """All rows of some trials, except their curves.

    Args:
        connection: Connection to the database.
        study_id: Id of the study.
        ids: Ids of the trials, or their range; None for all of the study.
    """

    def __init__(self, connection: sa.Connection, study_id: int, ids: Sequence[int] | None) -> None:
        self._connection = connection
        self._study_id = study_id
        self._ids = ids
        self._params: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        self._distributions: defaultdict[int, dict[str, BaseDistribution]] = defaultdict(dict)
        self._read_params()
        self._values = self._read_values()
        self._user_attrs = self._read_attrs(USER_ATTRS)
        self._system_attrs = self._read_attrs(SYSTEM_ATTRS)

    def trial(self, head: TrialHead, curve: Curve | None) -> FrozenTrial:
        """A trial; it takes its parts along."""
        values = self._values.pop(head.trial_id, None)
        reports: Mapping[int, float] = {} if curve is None else curve  # Not yet to be looked at.
        return FrozenTrial(
            number=head.number,
            state=head.state,
            value=None,
            values=[values[objective] for objective in sorted(values)] if values else None,
            datetime_start=head.started_at,
            datetime_complete=head.completed_at,
            params=self._params.pop(head.trial_id, {}),
            distributions=self._distributions.pop(head.trial_id, {}),
            user_attrs=self._user_attrs.pop(head.trial_id, {}),
            system_attrs=self._system_attrs.pop(head.trial_id, {}),
            intermediate_values=compact(reports) if head.state.is_finished() else dict(reports),
            trial_id=head.trial_id,
        )

    def _read_params(self) -> None:
        columns = (PARAMS.c.param_name, PARAMS.c.param_value, PARAMS.c.distribution_json)
        # In the order in which they were suggested, as Optuna has them.
        order = PARAMS.c.param_id
        for trial_id, name, internal, text in self._rows(PARAMS, *columns, order=order):
            name, distribution = named_distribution(name, text)
            self._params[trial_id][name] = distribution.to_external_repr(internal)
            self._distributions[trial_id][name] = distribution

    def _read_attrs(self, table: sa.Table) -> dict[int, dict[str, Any]]:
        found: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        for trial_id, key, text in self._rows(table, table.c.key, table.c.value_json):
            found[trial_id][sys.intern(key)] = json.loads(text)
        return found

    def _read_values(self) -> dict[int, dict[int, float]]:
        """Values by trial and objective; the type column explains a NULL."""
        found: defaultdict[int, dict[int, float]] = defaultdict(dict)
        kind_column = sa.type_coerce(VALUES.c.value_type, sa.String)
        columns = (VALUES.c.objective, VALUES.c.value, kind_column)
        for trial_id, objective, value, kind in self._rows(VALUES, *columns):
            found[trial_id][objective] = NOT_FINITE[kind] if value is None else value
        return found

    def _rows(
        self, table: sa.Table, *columns: sa.ColumnElement[Any], order: Any = None
    ) -> Iterator[tuple[Any, ...]]:
        query = sa.select(table.c.trial_id, *columns)
        if order is not None:
            query = query.order_by(order)
        for part in self._chosen(query, table):
            for rows in fetched(self._connection, part):
                yield from rows

    def _chosen(self, query: sa.Select[Any], table: sa.Table) -> Iterable[sa.Select[Any]]:
        if self._ids is None or isinstance(self._ids, range):
            of_study = sa.select(TRIALS.c.trial_id).where(TRIALS.c.study_id == self._study_id)
            query = query.where(table.c.trial_id.in_(of_study))
            if self._ids is not None:
                query = query.where(table.c.trial_id.between(self._ids[0], self._ids[-1]))
            return [query]
        return [query.where(table.c.trial_id.in_(ids)) for ids in _chunks(self._ids)]


@cache
def named_distribution(name: str, text: str) -> tuple[str, BaseDistribution]:
    """Shared objects for all trials: otherwise these would take most of their memory."""
    return name, json_to_distribution(text)


def copied(trial: FrozenTrial) -> FrozenTrial:
    """Like `copy.copy`, in a fifth of the time: called for each report."""
    made = FrozenTrial.__new__(FrozenTrial)
    made.__dict__.update(trial.__dict__)
    return made


def _local(at: datetime | None) -> datetime | None:
    """The tables hold UTC without a zone; Optuna's objects have local time without a zone."""
    if at is None:
        return None
    # No zone changes within a quarter of an hour; asking for each instant takes five times as long.
    return at + _offset(at.toordinal(), at.hour, at.minute // 15)


@lru_cache(maxsize=100_000)
def _offset(day: int, hour: int, quarter: int) -> timedelta:
    at = datetime.fromordinal(day).replace(hour=hour, minute=15 * quarter)
    return at.replace(tzinfo=UTC).astimezone().replace(tzinfo=None) - at


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[begin : begin + _MAX_IDS] for begin in range(0, len(ids), _MAX_IDS))
