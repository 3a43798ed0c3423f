"""The paths of all of a study's files.

Everything is below `tuner-files/<study>/` next to the study file: a folder per trial, with a log
per attempt and its checkpoints.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.checkpoints.layout import newest_first

FOLDER_NAME = "tuner-files"
OWNER_NAME = "study.json"
_CHECKPOINTS = "checkpoints"
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.+-]+")


def expanded(text: str) -> Path:
    """A path with `~` expanded; unchanged if the user does not exist."""
    return Path(os.path.expanduser(text))


@dataclass(frozen=True, kw_only=True)
class StudyFiles:
    """Paths of one study's files.

    Args:
        folder: The study file's folder.
        study: Name of the study.
    """

    folder: Path
    study: str

    @functools.cached_property
    def root(self) -> Path:
        name = _NOT_IN_FILE_NAMES.sub("_", self.study)
        if name != self.study:
            # `a b` and `a_b` are two studies, and must not find each other's checkpoints.
            name += f"-{hashlib.sha256(self.study.encode()).hexdigest()[:6]}"
        return self.folder / FOLDER_NAME / name

    @property
    def preload_log(self) -> Path:
        """Output of the user's modules when they are imported before the trials."""
        return self.root / "imports.log"

    @property
    def dispatcher_log(self) -> Path:
        """The dispatcher's log, with tracebacks of unexpected errors."""
        return self.root / "dispatcher.log"

    @property
    def dispatchers(self) -> Path:
        """A file for each dispatcher, locked by its workers."""
        return self.root / "dispatchers"

    @property
    def code(self) -> Path:
        """Copies of the code, one for each content that was submitted to an engine."""
        return self.root / "code"

    @property
    def order(self) -> Path:
        """The submission order, for dispatchers that request more allocations."""
        return self.root / "allocation-order.json"

    @property
    def allocation_logs(self) -> Path:
        """Output of dispatchers in allocations."""
        return self.root / "allocations"

    @property
    def hooks_log(self) -> Path:
        """Output of the programs of `on_finish`, `on_best` and `on_failure`."""
        return self.root / "hooks.log"

    @property
    def trackers(self) -> Path:
        """Progress of each tracker."""
        return self.root / "trackers"

    @property
    def trackers_log(self) -> Path:
        """Output of the trackers' processes."""
        return self.root / "trackers.log"

    @property
    def uploads(self) -> Path:
        """Folder in which checkpoints are held while they are uploaded to an object store."""
        return self.root / "uploads"

    @property
    def uploads_log(self) -> Path:
        """Output of the transfer process."""
        return self.root / "uploads.log"

    @property
    def owner_file(self) -> Path:
        """Names the study that owns the folder."""
        return self.root / OWNER_NAME

    @property
    def functions(self) -> Path:
        """Functions passed to `tuner.tune` that are in no module."""
        return self.root / "functions"

    @property
    def moved_aside(self) -> Path:
        """Files of other studies and trials that were in this study's place."""
        return self.moved_aside_below(self.root)

    @staticmethod
    def moved_aside_below(root: Path) -> Path:
        """The same for the folder of any study."""
        return root / "moved-aside"

    def trial(self, trial_number: int) -> Path:
        return self.root / f"trial-{trial_number}"

    def log(self, trial_number: int, attempt_number: int, rank: int = 0) -> Path:
        """Output of one rank of an attempt, both streams; rank 0 is most attempts' only one."""
        of_rank = f".rank-{rank}" if rank else ""
        return self.trial(trial_number) / f"attempt-{attempt_number}{of_rank}.log"

    def checkpoints(self, trial_number: int) -> Path:
        """Shared by all attempts of a trial, so that a later one can continue from there."""
        return self.trial(trial_number) / _CHECKPOINTS

    def has_checkpoint(self, trial_number: int) -> bool:
        """Whether a later attempt of a trial has something to continue from."""
        return bool(newest_first(self.checkpoints(trial_number)))

    def removed_checkpoints(self, trial_number: int) -> Path:
        """Path of checkpoints while they are being removed."""
        return self.trial(trial_number) / f"{_CHECKPOINTS}.removed"

    def set_aside_checkpoints(self, trial_number: int, attempt_number: int) -> Path:
        """Checkpoints with which an attempt had nothing left to do."""
        return self.trial(trial_number) / f"{_CHECKPOINTS}.set-aside-{attempt_number}"

    def handed_on(self, trial_number: int) -> Path:
        """The checkpoint from which the copy that replaces this trial starts."""
        return self.trial(trial_number) / f"{_CHECKPOINTS}.handed-on"

    def trials(self) -> list[int]:
        """Numbers of the trials that have files."""
        found = (re.fullmatch(r"trial-(\d+)", path.name) for path in self._entries())
        return [int(each[1]) for each in found if each]

    def attempts_of(self, trial_number: int) -> list[int]:
        """Numbers of a trial's attempts that have a log, the oldest first."""
        return sorted(self._numbers(self.trial(trial_number), r"attempt-(\d+)\.log"))

    def ranks_of(self, trial_number: int, attempt_number: int) -> list[int]:
        """Ranks of an attempt that have a log."""
        name = rf"attempt-{attempt_number}(?:\.rank-(\d+))?\.log"
        return sorted(self._numbers(self.trial(trial_number), name))

    def _entries(self) -> list[Path]:
        try:
            return list(self.root.iterdir())
        except FileNotFoundError:
            return []

    @staticmethod
    def _numbers(folder: Path, name: str) -> Iterator[int]:
        for path in folder.glob("attempt-*.log"):
            if found := re.fullmatch(name, path.name):
                yield int(found[1] or 0)


def checkpoints_in(folder: Path) -> Path:
    """The checkpoints in the folder of a trial, wherever that is."""
    return folder / _CHECKPOINTS
