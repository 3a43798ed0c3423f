"""Removes the checkpoints that a study does not keep, outside the dispatcher's loop."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from optuna.trial import TrialState

from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.retention import EndedTrial, RetentionRule, choose, rank
from tuner.checkpoints.trial_folders import TrialKey, belongs_to
from tuner.devices.occupancy import size_text
from tuner.host.clock import Instant
from tuner.search.ended_trials import EndedTrials
from tuner.search.study import StudySearch
from tuner.store.connection.transactions import Unavailable
from tuner.store.records.recorder import Recorder

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Minimum interval in seconds while trials end continuously.
_AT_MOST_EVERY_S = 1.0
#: Maximum interval in seconds: running trials save as well.
_AT_LEAST_EVERY_S = 10.0
#: Seconds at the end of a study; the rest is removed at its next start.
_LAST_WAIT_S = 30.0
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class Sweeper:
    """Measures the checkpoints of a study's trials and removes those that are not kept.

    Args:
        files: Paths of the checkpoints.
        rule: What is kept.
        is_own: Whether the folder of a trial, by number, holds that trial's files. A database
            restored from a backup assigns numbers again.
    """

    def __init__(
        self,
        files: StudyFiles,
        rule: RetentionRule,
        is_own: Callable[[int], bool] = lambda _number: True,
    ) -> None:
        self._files = files
        self._rule = rule
        self._is_own = is_own
        #: Sizes for trials that had ended when measured: these no longer change.
        self._final_sizes: dict[int, int] = {}
        #: Trials whose checkpoints cannot be removed, or whose folder belongs to another trial.
        self._stuck: set[int] = set()
        #: Numbers of trials whose checkpoints were removed; the consumer takes them off the queue.
        self.removed: SimpleQueue[int] = SimpleQueue()
        self._is_over = False
        self._has_begun = False

    def sweep(self, ended: Iterable[EndedTrial]) -> list[str]:
        """Sweeps once; returns messages to show.

        Args:
            ended: Trials that are over according to the database.
        """
        if not self._has_begun:
            self._has_begun = True
            self._remove_leftovers()
        ranking = rank(ended)
        sizes = self._measure({*ranking.expendable, *ranking.best})
        removal = choose(ranking, sizes, self._rule, stuck=self._stuck)
        while foreign := {number for number in removal.trials if not self._is_own(number)}:
            self._stuck |= foreign
            removal = choose(ranking, sizes, self._rule, stuck=self._stuck)
        notes = [note for number in removal.trials for note in self._remove(number)]
        if removal.over_bytes and not self._is_over:
            notes.append(self._excess_text(removal.over_bytes))
        self._is_over = removal.over_bytes > 0
        return notes

    def _measure(self, ended: set[int]) -> dict[int, int]:
        sizes = {}
        for number in self._files.trials():
            size_bytes = self._final_sizes.get(number)
            if size_bytes is None:
                folder = self._files.checkpoints(number)
                # A link's target is managed by its creator.
                size_bytes = 0 if folder.is_symlink() else sum(_sizes(folder))
                if number in ended:
                    self._final_sizes[number] = size_bytes
            if size_bytes:
                sizes[number] = size_bytes
        return sizes

    def _remove(self, number: int) -> Iterator[str]:
        folder = self._files.checkpoints(number)
        aside = self._files.removed_checkpoints(number)
        try:
            # First out of sight: what is removed by half shall not be taken for a checkpoint.
            folder.rename(aside)
            shutil.rmtree(aside)
        except FileNotFoundError:
            pass  # Another dispatcher was quicker.
        except OSError as error:
            self._stuck.add(number)
            yield f"Checkpoints of trial {number} cannot be removed: {error}."
            return
        self._final_sizes[number] = 0
        self.removed.put(number)

    def _remove_leftovers(self) -> None:
        """Removes what a dispatcher left that was killed while it removed checkpoints."""
        for number in self._files.trials():
            shutil.rmtree(self._files.removed_checkpoints(number), ignore_errors=True)

    def _excess_text(self, over_bytes: int) -> str:
        limit = size_text(self._rule.max_bytes or 0)
        return (
            f"Checkpoints take {size_text(over_bytes)} more than checkpoints.max_disk ({limit}), "
            "though all that may go is gone: the rest is of trials that run or wait, or of the "
            "best. Trials still save. Raise max_disk, or keep fewer of each (checkpoints.newest)."
        )


class SweepThread:
    """Runs a sweeper in a thread, when a trial has ended and at intervals.

    Args:
        search: The study.
        files: Paths of its trials' files.
        rule: What is kept.
        recorder: Knows when trials started.
    """

    def __init__(
        self, search: StudySearch, files: StudyFiles, rule: RetentionRule, recorder: Recorder
    ) -> None:
        self._search = search
        self._files = files
        self._rule = rule
        self._recorder = recorder
        #: By number: trials that have ended, and when each began.
        self._begun: dict[int, tuple[EndedTrial, datetime | None]] = {}
        self._sweeper = Sweeper(files, rule, self._is_own)
        self._ended = EndedTrials(search.study)
        self._notes: SimpleQueue[str] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._swept_at_s: float | None = None
        self._n_ended = -1
        self._has_failed = False

    def poll(self, now: Instant) -> list[str]:
        """Starts a sweep if it is due; returns messages to show.

        Call it only when the database has recorded everything: a trial that is over only here would
        run again after a crash, without its checkpoint.
        """
        if self._is_due(now) and not self._search.unsaved():
            self._swept_at_s = now.monotonic_s
            self._begin()
        return self._take_notes()

    def take_removed(self) -> list[int]:
        """Numbers of trials whose checkpoints were removed since the last call."""
        return list(_taken(self._sweeper.removed))

    def finish(self) -> None:
        """Sweeps once more, at the end of a study."""
        if self._rule.keeps_all or self._search.unsaved():
            return
        if self._has_joined():
            self._begin()
            self._has_joined()
        for note in self._take_notes():
            _log.warning("%s", note)

    def _is_due(self, now: Instant) -> bool:
        if self._rule.keeps_all or (self._thread is not None and self._thread.is_alive()):
            return False
        if self._swept_at_s is None:
            return True
        passed_s = now.monotonic_s - self._swept_at_s
        if passed_s < _AT_MOST_EVERY_S:
            return False
        return self._count_ended() != self._n_ended or (
            self._rule.max_bytes is not None and passed_s >= _AT_LEAST_EVERY_S
        )

    def _begin(self) -> None:
        self._n_ended = self._count_ended()
        # Read here: the study belongs to the loop.
        ended = self._ended.read()
        try:
            self._identify(ended)
        except Unavailable:
            self._n_ended = -1  # As soon as the database answers.
            return
        self._thread = threading.Thread(
            target=self._sweep, args=(ended,), name="housekeeping", daemon=True
        )
        self._thread.start()

    def _identify(self, ended: Iterable[EndedTrial]) -> None:
        new = [each for each in ended if each.number not in self._begun]
        begun_at = self._recorder.history.begun_at_of([each.trial_id for each in new])
        for each in new:
            self._begun[each.number] = each, begun_at.get(each.trial_id)

    def _is_own(self, number: int) -> bool:
        trial, begun_at = self._begun[number]
        key = TrialKey(
            study=self._search.key, number=number, begun_at=begun_at, params=trial.params
        )
        try:
            return belongs_to(self._files.trial(number), key)
        except OSError:
            return False

    def _sweep(self, ended: tuple[EndedTrial, ...]) -> None:
        try:
            notes = self._sweeper.sweep(ended)
        except OSError as error:
            notes = [] if self._has_failed else [f"Checkpoints cannot be looked at: {error}."]
            self._has_failed = True
        for note in notes:
            self._notes.put(note)

    def _has_joined(self) -> bool:
        if self._thread is not None:
            self._thread.join(_LAST_WAIT_S)
        return self._thread is None or not self._thread.is_alive()

    def _count_ended(self) -> int:
        counts = self._search.counts.by_state()
        return sum(counts[state] for state in _ENDED)

    def _take_notes(self) -> list[str]:
        return list(_taken(self._notes))


def _taken(queue: SimpleQueue[T]) -> Iterator[T]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return


def _sizes(folder: Path) -> Iterator[int]:
    """Sizes of the files below a folder; files that vanish meanwhile are skipped."""
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
