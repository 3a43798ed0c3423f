"""Rescues the data of a database file that is deleted or replaced while a study runs.

SQLite accepts transactions on an open file that is gone, and they are lost. The study therefore
ends: its trials save, everything is written to a new file, and the exit code reports a failure.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.host.clock import Instant
from tuner.search.study import StudySearch
from tuner.store.connection.database import open_database
from tuner.store.connection.database_file import places_for_copies
from tuner.store.connection.filesystem import path_of
from tuner.store.records.recorder import Recorder

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0


class Rescue:
    """Checks whether the database file is the open one, and saves its data elsewhere if not.

    Args:
        recorder: Writes to the file.
        search: The study, whose trials are in memory.
    """

    def __init__(self, recorder: Recorder, search: StudySearch) -> None:
        self._recorder = recorder
        self._search = search
        self._looked_at_s = -math.inf
        self._problem = ""
        self._copy: Path | None = None

    @property
    def is_lost(self) -> bool:
        return bool(self._problem)

    @property
    def is_cut_off(self) -> bool:
        """Whether nothing more can be written until the study's end."""
        return self.is_lost and self._copy is None

    def is_due(self, now: Instant) -> bool:
        """Whether the next check is due."""
        return now.monotonic_s - self._looked_at_s >= _LOOK_EVERY_S

    def look(self, now: Instant) -> str:
        """The message to show if the file is lost; else empty."""
        self._looked_at_s = now.monotonic_s
        if self.is_lost:
            return ""
        self._problem = self._recorder.file_problem
        if not self._problem:
            return ""
        self._copy = self._recorder.rescue()
        where = f"All that it held is in {self._copy}, and so will be what these trials report. "
        return (
            f"The database file is lost: {self._problem}. "
            f"{where if self._copy else ''}Stopping: no trial starts any more; those that run may "
            "save and end."
        )

    def end(self) -> None:
        """Finishes at the end of a study, after the last write.

        Raises:
            StoreError: If the file is lost, with the name of the new one.
        """
        if not self.is_lost:
            return
        copy = self._copy or self._write_trials()
        kept = (
            f"The study is in {copy} now. Look at it with `tuner status {copy}`; to continue, put "
            "it in the place of the lost file and start the same command again."
            if copy
            else "No other file could be written either: the results in memory are lost."
        )
        raise StoreError(
            f"The database file was lost while the study ran: {self._problem}. {kept}",
            exit_code=EXIT_STUDY_FAILED,
        )

    def _write_trials(self) -> Path | None:
        """Writes the study and its trials from memory; None if no file can be written."""
        lost = path_of(self._recorder.url)
        for place in places_for_copies(lost) if lost is not None else ():
            with suppress(OSError, StoreError):
                database = open_database(
                    sa.URL.create("sqlite", database=str(place)).render_as_string()
                )
                try:
                    self._search.write_copy(database.storage)
                finally:
                    database.close()
                return place
        return None
