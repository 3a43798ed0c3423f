"""Brings a tracker up to the study's database, round by round."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.queries.locate import snapshot
from tuner.queries.studies import read_objectives
from tuner.queries.trials.listing import Choice, StoredTrial, read_trials
from tuner.tracking.port import Point, Run, RunEnd, RunStatus, TrackedStudy, Tracker
from tuner.tracking.progress import ProgressFiles
from tuner.tracking.read import (
    Cursor,
    Row,
    TrialHead,
    adopted_dispatchers,
    new_attempts,
    read_heads,
    read_rows,
)

_CHUNK = 200
_STATUS: Mapping[TrialState, RunStatus] = {
    TrialState.COMPLETE: RunStatus.COMPLETED,
    TrialState.PRUNED: RunStatus.PRUNED,
    TrialState.FAIL: RunStatus.FAILED,
}


class TrackerFailed(Exception):
    """A call of the tracker raised an error."""

    def __init__(self, trial: int | None, error: BaseException) -> None:
        self.trial = trial
        self.error = error
        super().__init__(str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A study's database, and the dispatchers whose trials are tracked."""

    engine: sa.Engine
    study_id: int
    study: TrackedStudy
    dispatcher_id: int
    files: ProgressFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A snapshot of some trials in the database."""

    heads: Sequence[TrialHead]
    rows: Mapping[int, Sequence[Row]]
    #: By number: those that have a new attempt or have ended.
    full: Mapping[int, StoredTrial]
    cursor: Cursor


class Sync:
    """Sends a tracker the data that it does not have yet.

    Args:
        source: The study.
        make: Makes a tracker that is not connected.
        now: The time.
    """

    def __init__(
        self,
        source: Source,
        make: Callable[[], Tracker],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._source = source
        self._make = make
        self._now = now
        self._tracker: Tracker | None = None
        with snapshot(source.engine) as connection:
            self._objectives = read_objectives(connection).get(source.study_id, ())
            self._adopted = adopted_dispatchers(connection, source.dispatcher_id)
        self._own = {source.dispatcher_id, *self._adopted}
        self._progress = source.files.read(self._adopted)
        self._last_attempt = 0
        self._cursor = Cursor()
        #: Ids of trials that may have something to write.
        self._open: set[int] = set()
        #: Newest attempt with which a trial was started, by number; absent ones are read in full.
        self._begun: dict[int, int] = {}
        self._failures: dict[int, int] = {}
        self._is_saved = False

    @property
    def n_behind(self) -> int:
        """Number of trials that are not completely written, as of the last round."""
        return len(self._open)

    def round(self) -> None:
        """Writes new data.

        Raises:
            TrackerFailed: If the tracker raised an error. The next round starts again with it.
            SQLAlchemyError: If the database cannot be read.
        """
        try:
            self._find_new()
            for chunk in _chunks(self._in_order()):
                look = self._look(chunk)
                for head in look.heads:
                    self._write_trial(head, look)
                self._cursor = self._cursor.beyond(look.cursor)
        finally:
            self._save()

    def close(self) -> None:
        """Disconnects from the tracker.

        Raises:
            TrackerFailed: If it does not take its last points.
        """
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            self._call(None, tracker.close)

    def _find_new(self) -> None:
        with snapshot(self._source.engine) as connection:
            found, self._last_attempt = new_attempts(
                connection, self._source.study_id, self._own, self._last_attempt
            )
        self._open |= found

    def _in_order(self) -> list[int]:
        """A trial that the tracker refuses must not keep the others waiting."""
        return sorted(self._open, key=lambda each: (self._failures.get(each, 0), each))

    def _look(self, trial_ids: Sequence[int]) -> _Look:
        source = self._source
        with snapshot(source.engine) as connection:
            heads = [head for head in read_heads(connection, trial_ids) if not self._is_over(head)]
            fresh = [each.trial_id for each in heads if each.number not in self._begun]
            others = [each.trial_id for each in heads if each.number in self._begun]
            rows, to_fresh = read_rows(connection, fresh, self._objectives, Cursor())
            more, to_others = read_rows(connection, others, self._objectives, self._cursor)
            changed = frozenset(each.number for each in heads if self._is_changed(each))
            choice = Choice(numbers=changed)
            full = (
                read_trials(connection, source.study_id, self._objectives, choice, now=self._now())
                if changed
                else []
            )
        return _Look(
            heads=heads,
            rows=_by_trial([*rows, *more]),
            full={each.number: each for each in full},
            cursor=to_fresh.beyond(to_others),
        )

    def _is_over(self, head: TrialHead) -> bool:
        """Whether a trial is written, or another machine's by now; it is then no longer open."""
        is_written = self._progress.ended.get(head.number) == head.attempt
        is_over = is_written or head.dispatcher_id not in self._own
        if is_over:
            self._open.discard(head.trial_id)
            self._begun.pop(head.number, None)
        return is_over

    def _is_changed(self, head: TrialHead) -> bool:
        return head.state.is_finished() or self._begun.get(head.number) != head.attempt

    def _write_trial(self, head: TrialHead, look: _Look) -> None:
        trial = head.number
        try:
            tracker = self._connected()
            if self._begun.get(trial) != head.attempt:
                run = _run_of(look.full[trial], self._source.study)
                known = self._progress.steps.get(trial, {})
                steps = self._call(trial, lambda: tracker.begin(run, known))
                self._begun[trial] = head.attempt
                self._progress.has_written(trial, steps)
            self._write_points(tracker, head, look.rows.get(head.trial_id, ()))
            if head.state.is_finished():
                ending = _end_of(look.full[trial], self._now())
                self._call(trial, lambda: tracker.end(trial, ending))
                self._progress.has_ended(trial, head.attempt)
                self._is_saved = False
                self._open.discard(head.trial_id)
                self._begun.pop(trial, None)
            self._failures.pop(head.trial_id, None)
        except TrackerFailed:
            self._failures[head.trial_id] = self._failures.get(head.trial_id, 0) + 1
            self._forget()
            raise

    def _write_points(self, tracker: Tracker, head: TrialHead, rows: Sequence[Row]) -> None:
        steps = dict(self._progress.steps.get(head.number, {}))
        at = head.ended_at or self._now()
        points = []
        for row in rows:
            # A resumed trial repeats the steps after its checkpoint: the first report stays.
            if row.step > steps.get(row.name, row.step - 1):
                steps[row.name] = row.step
                points.append(Point(name=row.name, step=row.step, value=row.value, at=at))
        if points:
            self._call(head.number, lambda: tracker.log(head.number, points))
            self._progress.has_written(head.number, steps)
            self._is_saved = False

    def _connected(self) -> Tracker:
        if self._tracker is None:
            tracker = self._tracker = self._make()
            self._call(None, lambda: tracker.open(self._source.study))
        return self._tracker

    def _forget(self) -> None:
        """Makes the next round start with a new connection, and read open trials in full."""
        tracker, self._tracker = self._tracker, None
        self._begun.clear()
        self._cursor = Cursor()
        if tracker is not None:
            # What it could not write is read again.
            with suppress(Exception):
                tracker.close()

    def _call(
        self, trial: int | None, call: Callable[[], Mapping[str, int] | None]
    ) -> dict[str, int]:
        try:
            return dict(call() or {})
        except Exception as error:  # Libraries of others can raise anything.
            raise TrackerFailed(trial, error) from error

    def _save(self) -> None:
        if self._is_saved:
            return
        try:
            self._source.files.write(self._source.dispatcher_id, self._progress)
            self._source.files.remove(self._adopted)
        except OSError:
            return  # A full disk: tried again in the next round.
        self._is_saved = True


def _chunks(trial_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(trial_ids), _CHUNK):
        yield trial_ids[start : start + _CHUNK]


def _by_trial(rows: Iterable[Row]) -> dict[int, list[Row]]:
    ordered = sorted(rows, key=lambda row: row.trial_id)
    groups = itertools.groupby(ordered, key=lambda row: row.trial_id)
    return {trial_id: list(group) for trial_id, group in groups}


#: Trial page of a dashboard at its default address.
_TRIAL_PAGE = "http://127.0.0.1:8501/trials"


def _run_of(trial: StoredTrial, study: TrackedStudy) -> Run:
    last = trial.attempts[-1]
    tags = {
        "study": study.name,
        "trial": str(trial.number),
        "attempt": str(last.number),
        "host": last.host,
        "devices": ", ".join(last.devices),
        "seed": str(last.seed),
        "log": str(last.log_path),
        "page": f"{_TRIAL_PAGE}?{urlencode({'study': study.name, 'trial': trial.number})}",
    }
    return Run(
        trial=trial.number,
        name=f"{study.name}/trial-{trial.number}",
        params=trial.params,
        tags=tags,
        started_at=trial.started_at or datetime.now(UTC),
    )


def _end_of(trial: StoredTrial, now: datetime) -> RunEnd:
    return RunEnd(
        status=RunStatus.FAILED if trial.lacks_result else _STATUS[trial.state],
        outcome=trial.word,
        values=trial.result,
        duration_s=trial.duration_s or 0.0,
        ended_at=trial.completed_at or now,
    )
