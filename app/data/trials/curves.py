"""The curves of many trials, thinned for a browser.

A million points of ten thousand trials with a hundred reports each cannot be seen. Drawn are the
running, best and newest trials, and a sample of all others; each with the lowest and highest value
of each stretch, so that no peak is lost.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from tuner.app.data.columns import Floats, Numbers
from tuner.app.data.trials.columns import TrialColumns
from tuner.store.optuna_tables.statements import CURVES, MAX_LISTED

#: Twice as many take a browser without a GPU over a second at each change.
MAX_CURVES = 500
_N_BEST, _N_NEWEST = 100, 150
#: Two points each.
_STRETCHES = 15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """A part of one trial's reports."""

    steps: Floats
    values: Floats


Curves = dict[int, Curve]


def pick(trials: TrialColumns, *, is_maximized: bool, also: int | None = None) -> Numbers:
    """Rows to draw, in order; all if they are few enough.

    Args:
        trials: Trials of a study with one objective, or by its first.
        is_maximized: Whether that objective is maximized.
        also: Number of a trial that is always included.
    """
    if len(trials) <= MAX_CURVES:
        return np.arange(len(trials))
    rows = np.arange(len(trials))
    able = rows[trials.is_candidate]
    sign = -1.0 if is_maximized else 1.0
    best = able[np.argsort(sign * trials.values[able, 0], kind="stable")[:_N_BEST]]
    running = rows[~trials.is_finished][-_N_NEWEST:]
    newest = rows[-_N_NEWEST:]
    asked = rows[trials.numbers == also] if also is not None else rows[:0]
    chosen = np.unique(np.concatenate([best, running, newest, asked]))
    others = np.setdiff1d(rows, chosen)
    n_left = MAX_CURVES - len(chosen)
    if n_left > 0:
        # By a hash of the number (Knuth's): when trials are added nearly the same ones are chosen,
        # whose curves have been read.
        hashes = (trials.numbers[others] * 2_654_435_761) % 2**32
        spread = others[np.argsort(hashes, kind="stable")[:n_left]]
        chosen = np.unique(np.concatenate([chosen, spread]))
    return chosen


def thinned(steps: Floats, values: Floats) -> Curve:
    """The ends, and the lowest and highest value of each stretch; all if they are few."""
    is_there = np.isfinite(values)
    steps, values = steps[is_there], values[is_there]
    n = len(steps)
    if n <= 2 * _STRETCHES + 2:
        return Curve(steps=steps, values=values)
    edges = np.linspace(1, n - 1, _STRETCHES + 1).astype(np.int64)
    width = int(np.diff(edges).max())
    at = np.minimum(edges[:-1, None] + np.arange(width), edges[1:, None] - 1)
    inside, rows = values[at], np.arange(_STRETCHES)
    lowest, highest = at[rows, inside.argmin(axis=1)], at[rows, inside.argmax(axis=1)]
    kept = np.unique(np.concatenate([[0], lowest, highest, [n - 1]]))
    return Curve(steps=steps[kept], values=values[kept])


class GrowingCurves:
    """Curves; those of finished trials are read once. Thread-safe."""

    def __init__(self) -> None:
        self._finished: Curves = {}
        self._without_values: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def refresh(self, connection: sa.Connection, trials: TrialColumns) -> Curves:
        """Curves by trial number, without trials that have reported nothing.

        Args:
            connection: With a consistent snapshot.
            trials: The trials to draw.
        """
        with self._lock:
            wanted = [each for each in trials.ids.tolist() if each not in self._finished]
            read = _read(connection, wanted)
            own = set(trials.ids.tolist())
            of_others = self._without_values - set(wanted)
            empty = {trial_id for trial_id, curve in read.items() if not len(curve.steps)}
            self._without_values = frozenset((of_others | empty) & (own | set(self._finished)))
            ended = trials.ids[trials.is_finished].tolist()
            nothing = Curve(steps=np.empty(0), values=np.empty(0))
            for trial_id in ended:
                if trial_id not in self._finished:
                    self._finished[trial_id] = read.get(trial_id, nothing)
            both = self._finished | read
        pairs = zip(trials.ids.tolist(), trials.numbers.tolist(), strict=True)
        return {
            number: both[trial_id]
            for trial_id, number in pairs
            if trial_id in both and len(both[trial_id].steps)
        }

    def without_values(self, trials: TrialColumns) -> list[int]:
        """Numbers of trials with only infinite or NaN reports, as of the last refresh."""
        is_lost = np.isin(trials.ids, list(self._without_values))
        return [int(number) for number in trials.numbers[is_lost]]


def _read(connection: sa.Connection, trial_ids: list[int]) -> Curves:
    """By trial id."""
    found: Curves = {}
    for start in range(0, len(trial_ids), MAX_LISTED):
        some = trial_ids[start : start + MAX_LISTED]
        query = (
            sa.select(CURVES.c.trial_id, CURVES.c.step, CURVES.c.intermediate_value)
            .where(CURVES.c.trial_id.in_(some))
            .order_by(CURVES.c.trial_id, CURVES.c.step)
        )
        rows = connection.execute(query).all()
        if not rows:
            continue
        # Non-finite values are stored as NULL, and become NaN.
        table = np.array([tuple(row) for row in rows], dtype=np.float64)
        ids, begins = np.unique(table[:, 0], return_index=True)
        for trial_id, part in zip(ids, np.split(table, begins[1:]), strict=True):
            found[int(trial_id)] = thinned(part[:, 1], part[:, 2])
    return found
