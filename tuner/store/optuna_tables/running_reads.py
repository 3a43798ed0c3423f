"""Reads what other processes have added to running trials, without reading these trials again.

A study of many dispatchers has many running trials, and each dispatcher looks at those of all
others. To read them whole each time is most of what such a study asks of its database. Rows of
trials are only added, or deleted and added again, so each look reads the rows that came after
earlier ones. From time to time a few trials are read whole, which finds what looks have missed:
reports that were dropped, and rows that were written in place or committed late.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa
from optuna.trial import FrozenTrial

from tuner.store.optuna_tables.curves.growing_curve import grown
from tuner.store.optuna_tables.curves.reads import NOT_FINITE
from tuner.store.optuna_tables.reads import copied, named_distribution
from tuner.store.optuna_tables.statements import (
    CURVES,
    MAX_LISTED,
    PARAMS,
    SYSTEM_ATTRS,
    USER_ATTRS,
)

#: Running trials that are read whole at a time; with no more than these, all of them always are.
MOST_WHOLE = 16
#: Seconds from one time to the next, with more.
_REREAD_EVERY_S = 10.0
#: Seconds that a row may be committed after rows with higher ids without being missed.
_OVERLAP_S = 3.0
_AFTER: sa.BindParameter[Any] = sa.bindparam("b_after")
_IDS: sa.BindParameter[Any] = sa.bindparam("b_ids", expanding=True)


class Marks(NamedTuple):
    """The highest row id of each table."""

    curves: int
    params: int
    user_attrs: int
    system_attrs: int


def _row_id(table: sa.Table) -> sa.Column[Any]:
    (column,) = table.primary_key.columns
    return column


def _newest(table: sa.Table) -> sa.ColumnElement[int]:
    newest = sa.select(sa.func.max(_row_id(table))).scalar_subquery()
    return sa.func.coalesce(newest, 0)


def _added(table: sa.Table, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    query = sa.select(table.c.trial_id, *columns).where(_row_id(table) > _AFTER)
    return query.order_by(_row_id(table))


# Made once: a look is taken every second.
_TABLES = (CURVES, PARAMS, USER_ATTRS, SYSTEM_ATTRS)
_MARKS = sa.select(*(_newest(table) for table in _TABLES))
_ADDED = (
    _added(
        CURVES,
        CURVES.c.step,
        CURVES.c.intermediate_value,
        sa.type_coerce(CURVES.c.intermediate_value_type, sa.String),
    ),
    _added(PARAMS, PARAMS.c.param_name, PARAMS.c.param_value, PARAMS.c.distribution_json),
    _added(USER_ATTRS, USER_ATTRS.c.key, USER_ATTRS.c.value_json),
    _added(SYSTEM_ATTRS, SYSTEM_ATTRS.c.key, SYSTEM_ATTRS.c.value_json),
)
_ADDED_TO = tuple(
    query.where(table.c.trial_id.in_(_IDS)) for query, table in zip(_ADDED, _TABLES, strict=True)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a look reads of the running trials of other processes."""

    #: Ids of those to be read whole.
    whole: frozenset[int]
    #: Of the rest only rows after these; None if there is no rest.
    after: Marks | None


@dataclass(slots=True)
class RunningReads:
    """Plans the looks at one study.

    Args:
        monotonic_s: The monotonic time in seconds.
    """

    monotonic_s: Callable[[], float] = time.monotonic
    #: Those that were read whole, the longest ago first.
    _read: dict[int, None] = field(default_factory=dict)
    _reread_at_s: float = 0.0
    _marks: deque[tuple[float, Marks]] = field(default_factory=deque)

    def plan(self, running: Collection[int]) -> Plan:
        """What to read now of these trials, of those that have ended or begun, and of new ones."""
        if len(running) <= MOST_WHOLE or not self._marks:
            return Plan(whole=frozenset(running), after=None)
        oldest: list[int] = []
        if self.monotonic_s() - self._reread_at_s >= _REREAD_EVERY_S:
            oldest = [trial_id for trial_id in self._read if trial_id in running]
        return Plan(whole=frozenset(oldest[:MOST_WHOLE]), after=self._since())

    def looked(self, plan: Plan, running: Collection[int], marks: Marks | None) -> None:
        """Records a look that has succeeded.

        Args:
            plan: What it read.
            running: The trials.
            marks: From before anything was read; None if there were few trials.
        """
        if marks is None:
            self._read.clear()
            self._marks.clear()
            return
        if plan.whole:
            self._reread_at_s = self.monotonic_s()
        for trial_id in self._read.keys() - set(running) | plan.whole:
            self._read.pop(trial_id, None)
        self._read |= dict.fromkeys(each for each in running if each not in self._read)
        self._marks.append((self.monotonic_s(), marks))

    def _since(self) -> Marks:
        """The newest marks that are old enough; else the oldest ones."""
        enough_s = self.monotonic_s() - _OVERLAP_S
        while len(self._marks) > 1 and self._marks[1][0] <= enough_s:
            self._marks.popleft()
        return self._marks[0][1]


def read_marks(connection: sa.Connection) -> Marks:
    """The highest row ids that are committed now."""
    return Marks(*map(int, connection.execute(_MARKS).one()))


def read_added(
    connection: sa.Connection, trials: Mapping[int, FrozenTrial], after: Marks
) -> dict[int, FrozenTrial]:
    """Those of some running trials that have changed, as they are now, by id.

    Args:
        connection: Connection to the database.
        trials: As they were read last, by id.
        after: Only rows with higher ids are read.
    """
    curves, params, user_attrs, system_attrs = (
        _rows(connection, number, trials, mark) for number, mark in enumerate(after)
    )
    changed: dict[int, FrozenTrial] = {}
    for trial_id, step, value, kind in curves:
        number = NOT_FINITE[kind] if value is None else value
        known = changed.get(trial_id, trials[trial_id]).intermediate_values
        if step not in known or not _same(known[step], number):
            trial = _changed(trial_id, trials, changed)
            trial.intermediate_values = grown(known, step, number)
    for trial_id, name, internal, text in params:
        name, distribution = named_distribution(name, text)
        known_params = changed.get(trial_id, trials[trial_id])
        external = distribution.to_external_repr(internal)
        is_known = known_params.distributions.get(name) == distribution
        if not is_known or known_params.params[name] != external:
            trial = _changed(trial_id, trials, changed)
            trial.params = {**trial.params, name: external}
            trial.distributions = {**trial.distributions, name: distribution}
    for trial_id, key, value in _new_attrs(user_attrs, trials, "user_attrs"):
        trial = _changed(trial_id, trials, changed)
        trial.user_attrs = {**trial.user_attrs, key: value}
    for trial_id, key, value in _new_attrs(system_attrs, trials, "system_attrs"):
        trial = _changed(trial_id, trials, changed)
        trial.system_attrs = {**trial.system_attrs, key: value}
    return changed


def _rows(
    connection: sa.Connection, number: int, trials: Mapping[int, FrozenTrial], after: int
) -> list[Sequence[Any]]:
    """Rows that were added to a table, by row id."""
    if len(trials) <= MAX_LISTED:
        named = {"b_after": after, "b_ids": list(trials)}
        return list(connection.execute(_ADDED_TO[number], named))
    rows = connection.execute(_ADDED[number], {"b_after": after})
    return [row for row in rows if row[0] in trials]


def _new_attrs(
    rows: Sequence[Sequence[Any]], trials: Mapping[int, FrozenTrial], name: str
) -> Iterator[tuple[int, str, Any]]:
    for trial_id, key, text in rows:
        known, value = getattr(trials[trial_id], name), json.loads(text)
        if key not in known or known[key] != value:
            yield trial_id, sys.intern(key), value


def _changed(
    trial_id: int, trials: Mapping[int, FrozenTrial], changed: dict[int, FrozenTrial]
) -> FrozenTrial:
    """A copy that may be changed: references to the earlier trial must not see changes."""
    if trial_id not in changed:
        changed[trial_id] = copied(trials[trial_id])
    return changed[trial_id]


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)
