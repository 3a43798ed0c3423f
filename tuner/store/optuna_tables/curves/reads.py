"""Reads curves from Optuna's tables, at once or on first access."""

from __future__ import annotations

import gc
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar, cast

import sqlalchemy as sa

from tuner.store.optuna_tables.curves.lazy_curve import BATCH_SIZE, Curve, Steps
from tuner.store.optuna_tables.statements import CURVES, TRIALS

_IDS: sa.BindParameter[Any] = sa.bindparam("b_ids", expanding=True)
_STEPS_AND_VALUES = (
    sa.select(CURVES.c.trial_id, CURVES.c.step, CURVES.c.intermediate_value)
    .where(CURVES.c.trial_id.in_(_IDS))
    .order_by(CURVES.c.trial_id, CURVES.c.step)
)
_SPECIAL = sa.select(
    CURVES.c.trial_id,
    CURVES.c.step,
    sa.type_coerce(CURVES.c.intermediate_value_type, sa.String),
).where(CURVES.c.trial_id.in_(_IDS), CURVES.c.intermediate_value.is_(None))
_VALUES = (
    sa.select(CURVES.c.intermediate_value)
    .where(CURVES.c.trial_id.in_(_IDS))
    .order_by(CURVES.c.trial_id, CURVES.c.step)
)
_SPANS = (
    sa.select(
        CURVES.c.trial_id,
        sa.func.min(CURVES.c.step),
        sa.func.max(CURVES.c.step),
        sa.func.count(),
    )
    .where(CURVES.c.trial_id.in_(_IDS))
    .group_by(CURVES.c.trial_id)
)
_THERE = sa.select(TRIALS.c.trial_id).where(TRIALS.c.trial_id.in_(_IDS))

#: Meaning of a NULL, by the type column.
NOT_FINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}
_ROWS_AT_ONCE = 50_000

T = TypeVar("T")
#: Steps and values by trial.
_Columns = dict[int, tuple[Steps, "array[float]"]]


class Reader(Protocol):
    """Runs work that reads, with a connection to the database."""

    def __call__(self, work: Callable[[sa.Connection], T], /) -> T: ...


@contextmanager
def without_collector() -> Iterator[None]:
    """Objects by the million and no garbage: the collector would look at them again and again."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


def fetched(
    connection: sa.Connection, query: sa.Select[Any], **parameters: object
) -> Iterator[Any]:
    """The rows of a query, in batches.

    Bypasses SQLAlchemy's row objects: a million of them take a second more than their values.
    """
    cursor = connection.execute(query, parameters).cursor
    assert cursor is not None
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        yield rows


def read_curves(connection: sa.Connection, trial_ids: Iterable[int]) -> dict[int, Curve]:
    """The curves of those trials that have reported, in the order of the steps."""
    curves: dict[int, Curve] = {}
    with without_collector():
        for some in _batches(sorted(trial_ids)):
            curves |= _read_batch(connection, some)
    return curves


def ended_curves(read: Reader) -> Callable[[Collection[int]], Mapping[int, Curve]]:
    """Reads the curves of ended trials.

    Raises KeyError if a trial was deleted, and the errors of `read`.
    """
    return partial(_fetch_ended, read)


def _fetch_ended(read: Reader, trial_ids: Collection[int]) -> Mapping[int, Curve]:
    def work(connection: sa.Connection) -> dict[int, Curve]:
        curves = _read_ended(connection, sorted(trial_ids))
        without = [trial_id for trial_id in trial_ids if trial_id not in curves]
        if without:
            there = connection.execute(_THERE, {"b_ids": without}).scalars()
            if gone := set(without).difference(there):
                raise KeyError(f"The curve of trial {min(gone)} is gone: the trial was deleted.")
        return curves

    return read(work)


def _read_ended(connection: sa.Connection, trial_ids: Sequence[int]) -> dict[int, Curve]:
    """Like `read_curves`, in half the time if no step is missing.

    The time goes into one object per column and row; here there is one column. For ended trials
    only, as steps and values are read one after the other.
    """
    with without_collector():
        gapless = {
            trial_id: range(first, last + 1)
            for trial_id, first, last, n_steps in sorted(_rows(connection, _SPANS, trial_ids))
            if last - first + 1 == n_steps
        }
        values, has_special = array("d"), False
        for rows in fetched(connection, _VALUES, b_ids=list(gapless)):
            has_special |= _extend(values, list(chain.from_iterable(rows)))
        if len(values) != sum(map(len, gapless.values())):
            return read_curves(connection, trial_ids)  # Somebody has changed them after all.
        begin, columns = 0, _Columns()
        for trial_id, steps in gapless.items():
            columns[trial_id] = steps, values[begin : begin + len(steps)]
            begin += len(steps)
        curves = _as_curves(connection, columns, has_special=has_special)
        return curves | read_curves(connection, set(trial_ids).difference(gapless))


def _read_batch(connection: sa.Connection, trial_ids: Sequence[int]) -> dict[int, Curve]:
    owners, steps, values, has_special = array("q"), array("q"), array("d"), False
    for rows in fetched(connection, _STEPS_AND_VALUES, b_ids=trial_ids):
        some_owners, some_steps, numbers = zip(*rows, strict=True)
        owners.extend(some_owners)
        steps.extend(some_steps)
        has_special |= _extend(values, numbers)
    begin, columns = 0, _Columns()
    while begin < len(owners):
        end = bisect_right(owners, owners[begin], begin)
        columns[owners[begin]] = tuple(steps[begin:end]), values[begin:end]
        begin = end
    return _as_curves(connection, columns, has_special=has_special)


def _extend(values: array[float], numbers: Sequence[float | None]) -> bool:
    """Appends numbers; returns whether one is NULL, which the type column explains."""
    has_special = None in numbers
    if has_special:
        values.extend(math.nan if number is None else number for number in numbers)
    else:
        values.extend(cast(Sequence[float], numbers))
    return has_special


def _as_curves(
    connection: sa.Connection, columns: _Columns, *, has_special: bool
) -> dict[int, Curve]:
    if has_special:
        for trial_id, step, kind in _rows(connection, _SPECIAL, list(columns)):
            steps, values = columns[trial_id]
            if step in steps:  # One that runs may have reported it since.
                values[steps.index(step)] = NOT_FINITE[kind]
    return {trial_id: Curve(*each) for trial_id, each in columns.items()}


def _rows(
    connection: sa.Connection, query: sa.Select[Any], trial_ids: Sequence[int]
) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(fetched(connection, query, b_ids=trial_ids))


def _batches(trial_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (trial_ids[at : at + BATCH_SIZE] for at in range(0, len(trial_ids), BATCH_SIZE))
