"""The object store of a study, as the dispatcher's loop uses it. Only `finish` blocks."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial

from tuner.checkpoints.object_store.keys import StoreKeys
from tuner.checkpoints.object_store.process import Transfers
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.retention import RetentionRule
from tuner.checkpoints.scan import SavedState
from tuner.dispatch.object_store.removals import Removals
from tuner.dispatch.object_store.restores import Restores
from tuner.dispatch.object_store.uploads import Uploads
from tuner.domain.attempt import Attempt
from tuner.host.clock import Clock, Instant
from tuner.search.study import StudySearch
from tuner.store.connection.transactions import Unavailable
from tuner.store.records.recorder import Recorder

_log = logging.getLogger(__name__)

_POLL_S = 0.1
#: Seconds without an upload at the end of a study after which it stops waiting.
_PATIENCE_S = 60.0


class ObjectStore:
    """Uploads, fetches and removes checkpoints of one study.

    Args:
        transfers: The transfer process.
        keys: Names of objects.
        files: Paths of the study's files.
        recorder: Has the records.
        search: The study.
        rule: What is kept of ended trials.
        n_newest: Number of checkpoints kept per trial.
        clock: The time.
    """

    def __init__(
        self,
        transfers: Transfers,
        keys: StoreKeys,
        *,
        files: StudyFiles,
        recorder: Recorder,
        search: StudySearch,
        rule: RetentionRule,
        n_newest: int,
        clock: Clock,
    ) -> None:
        self._transfers = transfers
        self._keys = keys
        self._files = files
        self._clock = clock
        self._recorder = recorder
        #: Messages to the user that are not shown yet.
        self._notes: list[str] = []
        say, records = self._notes.append, recorder.uploads
        self._uploads = Uploads(transfers, records, keys, n_newest, say)
        self.restores = Restores(transfers, records, keys, files, say)
        self._removals = Removals(transfers, records, keys, search, rule, say)
        self._has_begun = False

    def saved(self, attempt: Attempt, state: SavedState) -> None:
        """Queues a checkpoint that was found on disk."""
        self._uploads.offer(attempt, state)

    def over(self, attempt: Attempt) -> None:
        """Queues the logs of an attempt that has ended."""
        self._uploads.offer_logs(attempt, self._files)

    def poll(self, now: Instant) -> list[str]:
        """Handles replies and sends new requests; returns messages to show.

        Raises:
            Unavailable: If the database does not answer now.
        """
        now_s = now.monotonic_s
        self._hear(now_s)
        if not self._has_begun:
            self._uploads.offer_again(socket.gethostname(), self._files)
            self._has_begun = True
        self._uploads.poll(now_s)
        self.restores.poll(now_s)
        self._removals.poll(now_s)
        return self._take_notes()

    def finish(self, grace_s: float | None, is_told_to_end: Callable[[float], bool]) -> list[str]:
        """Finishes uploads after the last attempt has ended.

        Args:
            grace_s: Maximum time in seconds; None for as long as uploads succeed.
            is_told_to_end: Waits for this many seconds; returns whether the user wants an immediate
                end.

        Returns:
            Messages to show.
        """
        began_s = moved_at_s = self._clock.now().monotonic_s
        n_left = self._uploads.n_left
        patience_s = _PATIENCE_S if grace_s is None else grace_s
        while self._is_busy(is_last=grace_s is None):
            now_s = self._clock.now().monotonic_s
            if self._uploads.n_left < n_left:
                n_left, moved_at_s = self._uploads.n_left, now_s
            since_s = moved_at_s if grace_s is None else began_s
            if now_s - since_s > patience_s or is_told_to_end(_POLL_S):
                break
        if self._uploads.n_left:
            self._notes.append(_left_text(self._uploads.n_left, self._keys.address.url))
        return self._take_notes()

    def _is_busy(self, *, is_last: bool) -> bool:
        """Polls once; returns whether work is left."""
        now_s = self._clock.now().monotonic_s
        self._hear(now_s)
        try:
            self._uploads.poll(now_s)
            if not self._uploads.n_left and is_last:
                self._removals.poll(now_s, is_last=True)
        except Unavailable as error:
            _log.warning("Uploads are not recorded: %s", error)
        return bool(self._uploads.n_left or self._removals.n_left)

    def _hear(self, now_s: float) -> None:
        for answer in self._transfers.take():
            for hear in (partial(self._uploads.hear, now_s=now_s), self._removals.hear):
                hear(answer)
            self.restores.hear(answer, now_s)

    def _take_notes(self) -> list[str]:
        notes = list(self._notes)
        self._notes.clear()
        return notes


def _left_text(n_left: int, url: str) -> str:
    files = "1 file is" if n_left == 1 else f"{n_left} files are"
    return (
        f"{files} not in {url}. The next start of the study on this host uploads the checkpoints "
        "that are missing there."
    )
