"""Copies of checkpoints that are in an object store: a reference, which any machine can fetch."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuner.checkpoints.hand_over import StateCopies
from tuner.checkpoints.paths import StudyFiles
from tuner.store.records.upload_rows import UploadRecords
from tuner.store.schema.models import UploadKind

_KNOWN_FOR_S = 2.0


class StoredCopies(StateCopies):
    """Links files on this disk; else refers to objects in the store.

    Args:
        files: Paths of the study's files.
        is_own: Whether a trial's folder holds that trial's files.
        records: Records of the store.
    """

    def __init__(
        self, files: StudyFiles, is_own: Callable[[int], bool], records: UploadRecords
    ) -> None:
        super().__init__(files, is_own)
        self._records = records
        #: By number: whether there is a reservation, and when this was read.
        self._is_there: dict[int, tuple[bool, float]] = {}

    def has_state(self, number: int) -> bool:
        """Whether a trial has a checkpoint here or in the store."""
        stored = self._records.newest_of(number, UploadKind.CHECKPOINT)
        return super().has_state(number) or stored is not None

    def take(self, parent: int, replaced: int) -> int | None:
        """Reserves the newest checkpoint for a copy; returns its step."""
        stored = self._records.hand_on(parent, replaced)
        linked = super().take(parent, replaced)
        return stored if linked is None else linked

    def is_here(self, replaced: int) -> bool:
        """Whether a copy can start on this machine."""
        return super().is_here(replaced) or self._has_reference(replaced)

    def give(self, replaced: int, child: int) -> int | None:
        """Gives the reserved checkpoint to the copy; returns its newest step."""
        # First, as the other drops what was handed on.
        stored = self._records.give(replaced, child)
        linked = super().give(replaced, child)
        return stored if linked is None else linked

    def drop(self, replaced: int) -> None:
        """Drops a reservation that no copy uses."""
        super().drop(replaced)
        self._records.drop(replaced)

    def _has_reference(self, replaced: int) -> bool:
        known, at_s = self._is_there.get(replaced, (False, 0.0))
        if not known and time.monotonic() - at_s > _KNOWN_FOR_S:
            known = self._records.newest_of(replaced, UploadKind.HANDED_ON) is not None
            self._is_there[replaced] = (known, time.monotonic())
        return known
