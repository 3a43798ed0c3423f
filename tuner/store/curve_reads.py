"""Reads the curves of trials from Optuna's tables, now or when one of them is first looked at."""

from __future__ import annotations

import gc
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from optuna.storages._rdb import models

from tuner.store.curves import BATCH_SIZE, Batch, Curve

_TRIALS = models.TrialModel.__table__
_REPORTS = models.TrialIntermediateValueModel.__table__

_IDS: sa.BindParameter[Any] = sa.bindparam("b_ids", expanding=True)
_OF_TRIALS = sa.select(_REPORTS.c.trial_id, _REPORTS.c.step, _REPORTS.c.intermediate_value).where(
    _REPORTS.c.trial_id.in_(_IDS)
)
_IN_ORDER = _OF_TRIALS.order_by(_REPORTS.c.trial_id, _REPORTS.c.step)
_SPECIAL = sa.select(
    _REPORTS.c.trial_id,
    _REPORTS.c.step,
    sa.type_coerce(_REPORTS.c.intermediate_value_type, sa.String),
).where(_REPORTS.c.trial_id.in_(_IDS), _REPORTS.c.intermediate_value.is_(None))
_THERE = sa.select(_TRIALS.c.trial_id).where(_TRIALS.c.trial_id.in_(_IDS))

#: What a NULL stands for, by the column beside it.
NOT_FINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}
_ROWS_AT_ONCE = 50_000

T = TypeVar("T")


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
    """The rows of a query, some at a time.

    Past SQLAlchemy's rows: a million of them cost a second more than the values in them.
    """
    cursor = connection.execute(query, parameters).cursor
    assert cursor is not None
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        yield rows


def read_curves(connection: sa.Connection, trial_ids: Iterable[int]) -> dict[int, Curve]:
    """The curves of those trials that have reported, in the order of the steps."""
    with without_collector():
        return {
            trial_id: curve
            for some in _batches(sorted(trial_ids))
            for trial_id, curve in _read_batch(connection, some)
        }


def curves_for_later(read: Reader, trial_ids: Iterable[int]) -> dict[int, Curve]:
    """Curves of trials that have ended, to be read in batches when first looked at.

    A look raises KeyError if the trial was deleted meanwhile, and what `read` raises.
    """
    fetch = partial(_fetch_ended, read)
    curves: dict[int, Curve] = {}
    for some in _batches(sorted(trial_ids)):
        curves.update(Batch(some, fetch).curves())
    return curves


def _fetch_ended(read: Reader, trial_ids: Collection[int]) -> Mapping[int, Curve]:
    def work(connection: sa.Connection) -> Mapping[int, Curve]:
        curves = read_curves(connection, trial_ids)
        without = [trial_id for trial_id in trial_ids if trial_id not in curves]
        if without:
            there = connection.execute(_THERE, {"b_ids": without}).scalars()
            if gone := set(without).difference(there):
                raise KeyError(f"The curve of trial {min(gone)} is gone: the trial was deleted.")
        return curves

    return read(work)


def _read_batch(connection: sa.Connection, trial_ids: Sequence[int]) -> Iterator[tuple[int, Curve]]:
    owners, steps, values, has_special = _columns(connection, trial_ids)
    special = _read_special(connection, trial_ids) if has_special else {}
    begin = 0
    while begin < len(owners):
        owner = owners[begin]
        end = bisect_right(owners, owner, begin)
        at, curve = tuple(steps[begin:end]), values[begin:end]
        for step, value in special.get(owner, ()):
            curve[at.index(step)] = value
        yield owner, Curve(at, curve)
        begin = end


def _columns(
    connection: sa.Connection, trial_ids: Sequence[int]
) -> tuple[array[int], array[int], array[float], bool]:
    owners, steps, values, has_special = array("q"), array("q"), array("d"), False
    for rows in fetched(connection, _IN_ORDER, b_ids=trial_ids):
        some_owners, some_steps, some_values = zip(*rows, strict=True)
        if None in some_values:
            has_special = True
            some_values = tuple(math.nan if each is None else each for each in some_values)
        owners.extend(some_owners)
        steps.extend(some_steps)
        values.extend(some_values)
    return owners, steps, values, has_special


def _read_special(
    connection: sa.Connection, trial_ids: Sequence[int]
) -> Mapping[int, list[tuple[int, float]]]:
    special: dict[int, list[tuple[int, float]]] = {}
    for rows in fetched(connection, _SPECIAL, b_ids=trial_ids):
        for trial_id, step, kind in rows:
            special.setdefault(trial_id, []).append((step, NOT_FINITE[kind]))
    return special


def _batches(trial_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (trial_ids[at : at + BATCH_SIZE] for at in range(0, len(trial_ids), BATCH_SIZE))
