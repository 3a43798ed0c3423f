"""Fetches checkpoints from the object store before their trials get devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tuner.checkpoints.object_store.keys import StoreKeys
from tuner.checkpoints.object_store.orders import Answer, Work
from tuner.checkpoints.object_store.process import Transfers
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.scan import look
from tuner.search.asked_trial import AskedTrial
from tuner.store.records.upload_rows import StoredUpload, UploadRecords

#: Maximum seconds to wait for an upload by a live dispatcher that has saved a newer checkpoint.
_LONGEST_WAIT_S = 60.0
_LOOK_EVERY_S = 1.0
_N_TRIES = 6


@dataclass(slots=True, kw_only=True)
class _Wait:
    asked: AskedTrial
    began_at_s: float
    look_at_s: float = 0.0
    order: int | None = None
    step: int = 0
    n_failed: int = 0


class Restores:
    """Fetches checkpoints that are newer in the store than on this disk.

    Args:
        transfers: The transfer process.
        records: Records of uploaded objects.
        keys: Names of objects.
        files: Paths of checkpoints.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        transfers: Transfers,
        records: UploadRecords,
        keys: StoreKeys,
        files: StudyFiles,
        say: Callable[[str], None],
    ) -> None:
        self._transfers = transfers
        self._records = records
        self._keys = keys
        self._files = files
        self._say = say
        self._waits: list[_Wait] = []
        self._ready: deque[AskedTrial] = deque()

    @property
    def trial_ids(self) -> list[int]:
        """Trials that have not been handed out again yet."""
        return [*(each.asked.trial_id for each in self._waits), *(a.trial_id for a in self._ready)]

    @property
    def n_waiting(self) -> int:
        """Number of trials whose checkpoint is not here yet."""
        return len(self._waits)

    def is_needed(self, asked: AskedTrial) -> bool:
        """Whether the store has, or will soon have, a newer checkpoint of a trial than this disk.

        Raises:
            Unavailable: If the database does not answer now.
        """
        stored, is_awaited = self._find(asked)
        return stored is not None or is_awaited

    def begin(self, asked: AskedTrial, now_s: float) -> None:
        """Starts to fetch a trial's checkpoint; its folder must be ready."""
        self._waits.append(_Wait(asked=asked, began_at_s=now_s))

    def take_ready(self) -> AskedTrial | None:
        """A trial that may start now."""
        return self._ready.popleft() if self._ready else None

    def take_all(self) -> list[AskedTrial]:
        """Empties the queue; returns its trials."""
        left = [*(each.asked for each in self._waits), *self._ready]
        self._waits.clear()
        self._ready.clear()
        return left

    def poll(self, now_s: float) -> None:
        """Checks again for checkpoints that were missing.

        Raises:
            Unavailable: If the database does not answer now.
        """
        for wait in list(self._waits):
            if wait.order is None and now_s >= wait.look_at_s:
                wait.look_at_s = now_s + _LOOK_EVERY_S
                self._look(wait, now_s)

    def hear(self, answer: Answer, now_s: float) -> None:
        """Handles the reply to a request, if it is a download."""
        wait = next((each for each in self._waits if each.order == answer.id), None)
        if wait is None:
            return
        wait.order = None
        number = wait.asked.number
        if not answer.problem:
            self._say(
                f"Trial {number} continues from step {wait.step}, fetched from "
                f"{self._keys.address.url}."
            )
            self._give_out(wait)
            return
        wait.n_failed += 1
        wait.look_at_s = now_s + min(2.0**wait.n_failed, 15.0)
        if wait.n_failed == 1:
            self._say(f"The checkpoint of trial {number} cannot be fetched: {answer.problem}")
        if wait.n_failed >= _N_TRIES or not answer.is_temporary:
            self._give_out(wait)

    def _look(self, wait: _Wait, now_s: float) -> None:
        stored, is_awaited = self._find(wait.asked)
        if is_awaited and now_s - wait.began_at_s < _LONGEST_WAIT_S:
            return
        if stored is None:
            self._give_out(wait)
            return
        try:
            key = self._keys.address.key_of(stored.uri)
        except ValueError as error:
            self._say(f"The checkpoint of trial {wait.asked.number} is not fetched: {error}.")
            self._give_out(wait)
            return
        wait.step = stored.step
        folder = self._files.checkpoints(wait.asked.number)
        size_bytes = 0 if key.endswith(".json") else stored.size_bytes
        wait.order = self._transfers.send(Work.GET, key, folder, size_bytes=size_bytes)

    def _give_out(self, wait: _Wait) -> None:
        self._waits.remove(wait)
        self._ready.append(wait.asked)

    def _find(self, asked: AskedTrial) -> tuple[StoredUpload | None, bool]:
        """The newest upload if newer than all local checkpoints; whether another may follow."""
        folder = self._files.checkpoints(asked.number)
        here = max((each.saved_at for each in look(folder).values()), default=None)
        uploads = self._records.of_trial(asked.trial_id)
        stored = uploads[0] if uploads else None
        saved = self._records.newest_saved(asked.trial_id)
        newest = max((each.saved_at for each in (stored, saved) if each is not None), default=None)
        if newest is None or (here is not None and here >= newest):
            return None, False
        is_awaited = (
            saved is not None
            and saved.is_awaited
            and (stored is None or stored.saved_at < saved.saved_at)
        )
        if stored is not None and here is not None and here >= stored.saved_at:
            stored = None
        return stored, is_awaited
