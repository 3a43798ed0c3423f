"""Records checkpoints in the database, from scans of the disk outside the loop."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue

from tuner.checkpoints.layout import leftovers, remove
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.scan import SavedState, changes, look
from tuner.dispatch.object_store.store import ObjectStore
from tuner.domain.attempt import Attempt, AttemptId, Outcome
from tuner.host.clock import Instant
from tuner.store.records.checkpoint_rows import StoredCheckpoint
from tuner.store.records.recorder import Recorder

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0
#: Number of first checkpoints whose times are kept.
_N_FIRST = 20
#: Seconds to wait at the end of a study for a disk that does not respond.
_LAST_WAIT_S = 10.0


class CheckpointSync:
    """Scans the checkpoints of running trials, and once more when an attempt has ended.

    Args:
        files: Paths of the checkpoints.
        recorder: Records them.
        objects: Uploads them; None if there is no object store.
    """

    def __init__(
        self, files: StudyFiles, recorder: Recorder, objects: ObjectStore | None = None
    ) -> None:
        self._files = files
        self._recorder = recorder
        self._objects = objects
        #: Recorded checkpoints, by trial number.
        self._known: dict[int, dict[str, SavedState]] = {}
        #: Ended trials without checkpoints: results of earlier scans of them are outdated.
        self._emptied: set[int] = set()
        #: Attempts to scan next in addition to running ones, by trial number.
        self._attempts: dict[int, Attempt] = {}
        #: Attempts whose processes are gone.
        self._over: list[Attempt] = []
        self._seen: SimpleQueue[tuple[Attempt, dict[str, SavedState]]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._looked_at_s: float | None = None
        #: Seconds from launch to first checkpoint, for each attempt that has saved.
        self.first_save_s: deque[float] = deque(maxlen=_N_FIRST)
        self._have_saved: set[AttemptId] = set()

    def poll(self, now: Instant, running: Callable[[], Iterable[Attempt]]) -> None:
        """Records the result of the last scan, and starts another if it is due."""
        self._note()
        is_due = self._looked_at_s is None or now.monotonic_s - self._looked_at_s >= _LOOK_EVERY_S
        if is_due and not self._is_busy:
            self._looked_at_s = now.monotonic_s
            for attempt in running():
                self.ended(attempt)
            self._begin()

    def ended(self, attempt: Attempt) -> None:
        """Schedules one more scan of an attempt."""
        self._attempts[attempt.trial_number] = attempt

    def settles(self, attempt: Attempt) -> None:
        """Records checkpoints before a trial is requeued: its next owner must see a due upload."""
        if self._objects is None:
            return
        with contextlib.suppress(OSError):
            self._seen.put((attempt, look(self._files.checkpoints(attempt.trial_number))))
            self._note()

    def over(self, attempt: Attempt) -> None:
        """Removes incomplete files of an attempt whose processes are gone."""
        if self._objects is not None:
            self._objects.over(attempt)
        self._over.append(attempt)
        self.ended(attempt)

    def resume(self, trial_id: int, trial_number: int) -> str:
        """Checks before a trial runs again whether its newest checkpoint is here.

        Returns:
            A message to show; empty if the trial continues from its newest checkpoint, or has none.

        Raises:
            Unavailable: If the database does not answer now.
        """
        stored = self._recorder.history.checkpoints_of(trial_id)
        folder = self._files.checkpoints(trial_number)
        found = look(folder)
        if not stored:
            return ""
        newest = stored[0]
        is_there = str(folder / Path(newest.path).name) in found
        # It may have been replaced by newer ones, which no look has found yet.
        if not is_there and all(each.saved_at <= newest.saved_at for each in found.values()):
            return _loss_text(trial_number, newest, folder, found)
        # One folder, which may have another path on each machine.
        self._known[trial_number] = {}
        for each in stored:
            here = str(folder / Path(each.path).name)
            if here not in found:
                self._recorder.removed(trial_id, each.path)
                continue
            self._known[trial_number][here] = found[here]
            if here != each.path:
                self._recorder.renamed(trial_id, each.path, here)
        return ""

    def finish(self) -> None:
        """Scans once more, at the end of a study."""
        if self._has_joined():
            self._begin()
            self._has_joined()
        self._note()

    def forget(self, trial_number: int) -> None:
        """Forgets the removed checkpoints of an ended trial."""
        self._known.pop(trial_number, None)
        self._emptied.add(trial_number)
        folder = str(self._files.checkpoints(trial_number))
        self._recorder.forget_checkpoints(trial_number, folder)

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self) -> None:
        if not self._attempts:
            return
        attempts, self._attempts = list(self._attempts.values()), {}
        over, self._over = self._over, []
        self._thread = threading.Thread(
            target=self._look, args=(attempts, over), name="saved states", daemon=True
        )
        self._thread.start()

    def _look(self, attempts: Iterable[Attempt], over: Iterable[Attempt]) -> None:
        for attempt in over:
            self._remove_leftovers(attempt)
        for attempt in attempts:
            try:
                found = look(self._files.checkpoints(attempt.trial_number))
            except OSError as error:
                _log.warning("Checkpoints of %s cannot be looked at: %s", attempt, error)
            else:
                self._seen.put((attempt, found))

    def _remove_leftovers(self, attempt: Attempt) -> None:
        """Removes other attempts' files only at the trial's end: a fenced host may run one."""
        outcome = attempt.ending.outcome if attempt.ending is not None else None
        is_last = outcome in (Outcome.COMPLETED, Outcome.PRUNED)
        folder = self._files.checkpoints(attempt.trial_number)
        try:
            for left in leftovers(folder, None if is_last else attempt.number):
                remove(left)
        except OSError as error:
            _log.warning("What %s left half-written cannot be removed: %s", attempt, error)

    def _note(self) -> None:
        while True:
            try:
                attempt, found = self._seen.get_nowait()
            except Empty:
                return
            if attempt.trial_number in self._emptied:
                continue
            known = self._known.pop(attempt.trial_number, {})
            if found:
                self._known[attempt.trial_number] = found
            added, gone = changes(known, found)
            for state in added:
                self._recorder.saved(attempt, state)
                self._note_first(attempt, state)
                if self._objects is not None:
                    self._objects.saved(attempt, state)
            for path in gone:
                self._recorder.removed(attempt.trial_id, path)

    def _note_first(self, attempt: Attempt, state: SavedState) -> None:
        began = attempt.leased_at
        if attempt.id not in self._have_saved and state.saved_at >= began:
            self._have_saved.add(attempt.id)
            self.first_save_s.append((state.saved_at - began).total_seconds())

    def _has_joined(self) -> bool:
        if self._thread is not None:
            self._thread.join(_LAST_WAIT_S)
        return not self._is_busy


def _loss_text(
    trial_number: int, newest: StoredCheckpoint, folder: Path, found: Mapping[str, SavedState]
) -> str:
    begin = "starts again from the beginning"
    if found:
        last = max(found.values(), key=lambda state: state.saved_at)
        begin = f"continues from step {last.step}"
    return (
        f"Trial {trial_number} {begin}: the state that it saved at step {newest.step} on "
        f"{newest.host}, {newest.path}, is not in {folder} here. Machines that share that folder "
        "continue from each other's checkpoints."
    )
